package tendpb

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// fill sets each field of v to something that is not its zero value, so that a
// field which a conversion forgets shows up as a difference.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 123).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := 1; i < v.Len(); i++ { // by stream; the first is stdin
			fill(v.Index(i))
		}
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k)
		fill(e)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.String:
		v.SetString("word")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(3.25)
	case reflect.Uint8:
		v.SetUint(1)
	default:
		v.SetUint(7)
	}
}

func full[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// wired sends a message over the wire.
func wired[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b := proctest.Value(proto.Marshal(m))(t)
	out := m.ProtoReflect().New().Interface().(M)
	proctest.Must(t, proto.Unmarshal(b, out))
	return out
}

func same[T any](t *testing.T, want, got T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%T lost something on the wire (-sent +got):\n%s", want, diff)
	}
}

func TestEveryFieldSurvivesTheWire(t *testing.T) {
	info := full[process.Info]()
	gotInfo, err := ToInfo(wired(t, Info(&info)))
	same(t, info, gotInfo, err)

	opts := full[process.ReadOptions]()
	gotOpts, err := ToReadOptions(wired(t, ReadOptions(opts)))
	same(t, opts, gotOpts, err)

	res := full[process.WaitResult]()
	same(t, res, ToWaitResult(wired(t, WaitResult(&res))), nil)

	kill := full[process.KillResult]()
	same(t, kill, ToKillResult(wired(t, KillResult(kill))), nil)

	filter := full[process.Filter]()
	gotFilter, err := ToFilter(wired(t, Filter(filter)))
	same(t, filter, gotFilter, err)
}

func TestBytesThatAreNoTextSurviveTheWire(t *testing.T) {
	spec := process.Spec{Argv: []string{"ls", "\xff\x00"}, Dir: "/\xfe", Env: map[string]string{"A": "b", "\xfd": "c", "D": "\xfc"}}
	got, err := ToSpec(wired(t, Spec(&spec)))
	same(t, spec, got, err)
	spec = process.Spec{Shell: "echo \xff"}
	got, err = ToSpec(wired(t, Spec(&spec)))
	same(t, spec, got, err)
}

func TestTextFieldsThatAreNoTextAreNamed(t *testing.T) {
	for field, spec := range map[string]process.Spec{
		"name": {Name: "\xff"}, "tag": {Tag: "\xff"}, "user": {User: "\xff"}, "labels": {Labels: map[string]string{"a": "\xff"}},
	} {
		e, ok := errors.AsType[*process.InvalidError](CheckText(&spec))
		if !ok || e.Field != field {
			t.Errorf("%s: %v", field, e)
		}
	}
}

func TestNamesAndTagsWithControlCharactersAreRefused(t *testing.T) {
	for text, said := range map[string]string{"a\nb": "U+000A at byte 1", "\x1b[2J": "U+001B at byte 0", "é\u009b": "U+009B at byte 2", "a\x7f": "U+007F", "\t": "U+0009"} {
		for field, spec := range map[string]process.Spec{"name": {Name: text}, "tag": {Tag: text}} {
			e, ok := errors.AsType[*process.InvalidError](CheckText(&spec))
			if !ok || e.Field != field || !strings.Contains(e.Reason, said) {
				t.Errorf("%s %q: %v", field, text, e)
			}
		}
	}
	if err := CheckText(&process.Spec{Name: "größe 測試 🙂", Tag: "a b/c:d", Labels: map[string]string{"note": "two\nlines"}, Argv: []string{"a\x1b"}}); err != nil {
		t.Error(err)
	}
}

func TestConditionsSurviveTheWire(t *testing.T) {
	for _, u := range []process.Until{
		{}, {Quiet: time.Second}, {Match: "ready", From: [4]int64{0, 1, 2, 3}}, {Port: 80}, {Input: true}, {TreeGone: true}, {EOF: true},
	} {
		got, err := ToUntil(wired(t, Until(u)))
		same(t, u, got, err)
	}
}

func TestSelectorsSurviveTheWire(t *testing.T) {
	for _, s := range []process.Selector{{ID: "a"}, {PID: 7}, {Tag: "t"}, {Name: "n"}, {Any: "x"}} {
		got, err := ToSelector(wired(t, Selector(s)))
		same(t, s, got, err)
	}
}

func TestEventsSurviveTheWire(t *testing.T) {
	now := time.Unix(1_700_000_000, 5).UTC()
	exit := full[process.Exit]()
	for _, ev := range []process.Event{
		{Kind: process.EventStarted, ID: "a", Time: now, PID: 7},
		{Kind: process.EventOutput, ID: "a", Time: now, Stream: process.Stderr, Offset: 9, Data: []byte{0, 255}},
		{Kind: process.EventGap, ID: "a", Stream: process.PTY, Offset: 1, Gap: process.Gap{Stream: process.PTY, From: 1, To: 2}},
		{Kind: process.EventExited, ID: "a", Time: now, Exit: &exit},
		{Kind: process.EventEOF, ID: "a", Stream: process.Stdout, Offset: 10},
		{Kind: process.EventTreeGone, ID: "a", Time: now},
		{Kind: process.EventResized, ID: "a", Time: now, Stream: process.PTY, Offset: 9, Size: process.Size{Cols: 80, Rows: 24}},
		{Kind: process.EventRemoved, ID: "a", Time: now},
	} {
		got, ok := ToEvent(wired(t, Event(&ev)))
		if !ok {
			t.Errorf("%v is not known", ev.Kind)
		}
		same(t, ev, got, nil)
	}
}

func TestErrorsAreTheSameOnTheOtherSide(t *testing.T) {
	var errs []error
	for _, s := range sentinels {
		errs = append(errs, s.err, fmt.Errorf("process abc: %w", s.err))
	}
	for r := process.StartNotFound; r <= process.StartOther; r++ {
		errs = append(errs, &process.StartError{Reason: r, What: "prog", Err: syscall.ENOENT})
	}
	errs = append(errs,
		&process.InvalidError{Field: "argv[3]", Reason: "is bad"},
		&process.GapError{Gap: process.Gap{Stream: process.Stdout, From: 1, To: 9}},
		&process.UnfinishedError{Left: "pid 42 (sleep) of its tree runs"},
		&ChangedError{Text: "two files have changed", Paths: []string{"a", "b/c"}},
		&process.StartError{Reason: process.StartLimits, What: "memory", Err: fmt.Errorf("no cgroup: %w", process.ErrUnsupported)},
	)
	for _, err := range errs {
		got := FromError(Error(err))
		if got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
		for _, s := range sentinels {
			if errors.Is(err, s.err) != errors.Is(got, s.err) {
				t.Errorf("%v: is %v on one side only", err, s.err)
			}
		}
		if e, ok := errors.AsType[*process.StartError](err); ok {
			g, ok := errors.AsType[*process.StartError](got)
			if !ok || g.Reason != e.Reason || g.What != e.What || errors.Is(e, syscall.ENOENT) != errors.Is(g, syscall.ENOENT) {
				t.Errorf("%v became %#v", err, got)
			}
		}
		if e, ok := errors.AsType[*process.InvalidError](err); ok {
			if g, ok := errors.AsType[*process.InvalidError](got); !ok || *g != *e {
				t.Errorf("%v became %#v", err, got)
			}
		}
		if e, ok := errors.AsType[*process.UnfinishedError](err); ok {
			if g, ok := errors.AsType[*process.UnfinishedError](got); !ok || *g != *e {
				t.Errorf("%v became %#v", err, got)
			}
		}
		if e, ok := errors.AsType[*ChangedError](err); ok {
			if g, ok := errors.AsType[*ChangedError](got); !ok || !slices.Equal(g.Paths, e.Paths) {
				t.Errorf("%v became %#v", err, got)
			}
		}
		if e, ok := errors.AsType[*process.GapError](err); ok {
			if g, ok := errors.AsType[*process.GapError](got); !ok || *g != *e {
				t.Errorf("%v became %#v", err, got)
			}
		}
	}
}

func TestAHandlerWhoseContextEndsIsUnavailable(t *testing.T) {
	if got := Error(context.Canceled); got.Code() != connect.CodeUnavailable {
		t.Fatal(got)
	}
}

func TestEnumerationsHaveTheSameNumbersOnBothSides(t *testing.T) {
	for _, e := range []struct {
		name      string
		got, want int
	}{
		{"stream", int(tendv1.Stream_STREAM_PTY), int(process.PTY)},
		{"inherit", int(tendv1.Inherit_INHERIT_NONE), int(process.InheritNone)},
		{"stdin", int(tendv1.StdinMode_STDIN_MODE_PIPE), int(process.StdinPipe)},
		{"scope", int(tendv1.Scope_SCOPE_GROUP), int(process.ScopeGroup)},
		{"policy", int(tendv1.RetentionPolicy_RETENTION_POLICY_BLOCK), int(process.Block)},
		{"state", int(tendv1.State_STATE_EXITED), int(process.Exited)},
		{"cause lost", int(tendv1.Cause_CAUSE_LOST), int(process.CauseLost)},
		{"cause oom", int(tendv1.Cause_CAUSE_OOM), int(process.CauseOOM)},
		{"input", int(tendv1.InputState_INPUT_STATE_PASSWORD), int(process.InputPassword)},
		{"start", int(tendv1.StartReason_START_REASON_OTHER), int(process.StartOther)},
	} {
		if e.got != e.want {
			t.Errorf("%s: %d on the wire, %d in the domain", e.name, e.got, e.want)
		}
	}
}

func TestNumbersOutOfRangeNameTheirField(t *testing.T) {
	spec := func(m *tendv1.Spec) error { _, err := ToSpec(m); return err }
	read := func(m *tendv1.ReadRequest) error { _, err := ToReadOptions(m); return err }
	wait := func(m *tendv1.WaitRequest) error { _, err := ToUntil(m); return err }
	for _, c := range []struct {
		field string
		err   error
	}{
		{"pty", spec(&tendv1.Spec{Pty: &tendv1.Size{Cols: 65536}})},
		{"inherit", spec(&tendv1.Spec{Inherit: 9})},
		{"stdin", spec(&tendv1.Spec{Stdin: -1})},
		{"timeout_scope", spec(&tendv1.Spec{TimeoutScope: 3})},
		{"retention.policy", spec(&tendv1.Spec{Retention: &tendv1.Retention{Policy: 2}})},
		{"timeout", spec(&tendv1.Spec{Timeout: &durationpb.Duration{Seconds: 1 << 62}})},
		{"limits.rlimits[0].resource", spec(&tendv1.Spec{Limits: &tendv1.Limits{Rlimits: []*tendv1.Rlimit{{Resource: 1 << 31}}}})},
		{"max_chunk", read(&tendv1.ReadRequest{MaxChunk: MaxChunk + 1})},
		{"streams", read(&tendv1.ReadRequest{Streams: []tendv1.Stream{4}})},
		{"streams", read(&tendv1.ReadRequest{Streams: []tendv1.Stream{0}})},
		{"from", read(&tendv1.ReadRequest{From: []*tendv1.StreamOffset{{Stream: 1, Offset: -2}}})},
		{"from.stream", read(&tendv1.ReadRequest{From: []*tendv1.StreamOffset{{Stream: 77}}})},
		{"port", wait(&tendv1.WaitRequest{Until: &tendv1.WaitRequest_Port{Port: 65536}})},
		{"quiet", wait(&tendv1.WaitRequest{Until: &tendv1.WaitRequest_Quiet{Quiet: durationpb.New(-1)}})},
		{"match", wait(&tendv1.WaitRequest{Until: &tendv1.WaitRequest_Match_{}})},
	} {
		e, ok := errors.AsType[*process.InvalidError](c.err)
		if !ok || e.Field != c.field {
			t.Errorf("%s: %v", c.field, c.err)
		}
	}
	if _, err := ToSelector(nil); err == nil {
		t.Error("a selector that names nothing was taken")
	}
}
