package tendpb

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

func seed(f *testing.F, messages ...proto.Message) {
	f.Helper()
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzSpec: no message makes ToSpec panic, and a spec that is valid comes back
// the same from the message made of it.
func FuzzSpec(f *testing.F) {
	seed(f, &tendv1.Spec{}, &tendv1.Spec{Id: "a", Argv: []string{"true"}, Env: map[string]string{"A": "1"}, Stdin: 1, Timeout: durationpb.New(1), Pty: &tendv1.Size{Cols: 80, Rows: 24}},
		&tendv1.Spec{RawArgv: [][]byte{{0xff}, {}}, RawDir: []byte("/\xff"), RawShell: []byte{0xfe}, RawEnv: []*tendv1.Spec_RawVariable{{Name: []byte("B"), Value: []byte{0xff}}, nil}},
		&tendv1.Spec{Shell: "true", Inherit: -1}, &tendv1.Spec{Shell: "true", TimeoutScope: 1 << 20}, &tendv1.Spec{Shell: "true", Timeout: &durationpb.Duration{Seconds: 1 << 62, Nanos: -1}},
		&tendv1.Spec{Shell: "true", Timeout: &durationpb.Duration{Seconds: 315576000000}, Retention: &tendv1.Retention{Limit: -1, Policy: 1, Ttl: durationpb.New(-5)}},
		&tendv1.Spec{Shell: "true", Limits: &tendv1.Limits{Nice: -1 << 31, MemoryMax: -1, PidsMax: 1 << 62, Rlimits: []*tendv1.Rlimit{{Resource: 1<<32 - 1, Soft: 1<<64 - 1}, nil}}},
		&tendv1.Spec{Shell: "true", Pty: &tendv1.Size{Cols: 1<<32 - 1}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m tendv1.Spec
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		s, err := ToSpec(&m)
		if err != nil || s.Validate() != nil || CheckText(&s) != nil {
			return
		}
		wire, err := proto.Marshal(Spec(&s))
		if err != nil {
			t.Fatalf("a valid spec cannot be sent: %v", err)
		}
		var back tendv1.Spec
		proctest.Must(t, proto.Unmarshal(wire, &back))
		again, err := ToSpec(&back)
		if err != nil || !again.Equal(&s) {
			t.Fatalf("%+v came back as %+v, %v", s, again, err)
		}
	})
}

// FuzzRequests: no request makes its conversion panic or leave its bounds.
func FuzzRequests(f *testing.F) {
	seed(f, &tendv1.Selector{By: &tendv1.Selector_Pid{Pid: 1<<32 - 1}}, &tendv1.Selector{By: &tendv1.Selector_Any{Any: "x"}}, &tendv1.ListRequest{Tag: "a", Labels: map[string]string{"b": "c"}},
		&tendv1.WaitRequest{Until: &tendv1.WaitRequest_Match_{Match: &tendv1.WaitRequest_Match{Pattern: "("}}}, &tendv1.WaitRequest{Until: &tendv1.WaitRequest_Match_{}},
		&tendv1.WaitRequest{Until: &tendv1.WaitRequest_Port{Port: 70000}}, &tendv1.WaitRequest{Until: &tendv1.WaitRequest_Quiet{Quiet: durationpb.New(-1)}},
		&tendv1.Size{Cols: 65536}, &durationpb.Duration{Seconds: -1 << 63})
	f.Fuzz(func(t *testing.T, b []byte) {
		var sel tendv1.Selector
		if proto.Unmarshal(b, &sel) == nil {
			if s, err := ToSelector(&sel); err == nil && (s == (process.Selector{}) || s.PID < 0) {
				t.Errorf("a selector of nothing: %+v", s)
			}
		}
		var list tendv1.ListRequest
		if proto.Unmarshal(b, &list) == nil {
			if filter, err := ToFilter(&list); err == nil && len(filter.Labels) > process.MaxLabels {
				t.Errorf("%d labels", len(filter.Labels))
			}
		}
		var wait tendv1.WaitRequest
		if proto.Unmarshal(b, &wait) == nil {
			if u, err := ToUntil(&wait); err == nil && (u.Quiet < 0 || u.Port < 0 || u.Port > 65535 || len(u.Match) > MaxPattern) {
				t.Errorf("until %+v", u)
			}
		}
		var read tendv1.ReadRequest
		if proto.Unmarshal(b, &read) == nil {
			if o, err := ToReadOptions(&read); err == nil && (o.MaxChunk < 0 || o.Drain < 0 || min(o.From[0], o.From[1], o.From[2], o.From[3]) < 0) {
				t.Errorf("read %+v", o)
			}
		}
		var some tendv1.ViewRequest
		if proto.Unmarshal(b, &some) == nil {
			_, _ = ToViewOptions(&some)
		}
		var grep tendv1.GrepRequest
		if proto.Unmarshal(b, &grep) == nil {
			_, _ = ToGrepOptions(&grep)
		}
	})
}

// FuzzAnswers: no answer of a server makes its conversion panic in a client.
func FuzzAnswers(f *testing.F) {
	seed(f, &tendv1.Info{Id: "a", Pid: 1<<32 - 1, Spec: &tendv1.Spec{Shell: "x"}, State: -1, Exit: &tendv1.Exit{Code: -1, Signal: -1}},
		&tendv1.Event{}, &tendv1.Gap{}, &tendv1.WaitResult{}, &tendv1.KillResponse{Survivors: []uint32{1<<32 - 1}})
	f.Fuzz(func(t *testing.T, b []byte) {
		read := func(m proto.Message) bool { return proto.Unmarshal(b, m) == nil }
		if m := new(tendv1.Info); read(m) {
			_, _ = ToInfo(m)
		}
		if m := new(tendv1.Event); read(m) {
			_, _ = ToEvent(m)
		}
		if m := new(tendv1.Gap); read(m) {
			_ = ToGap(m)
		}
		if m := new(tendv1.WaitResult); read(m) {
			_ = ToWaitResult(m)
		}
		if m := new(tendv1.KillResponse); read(m) {
			_ = ToKillResult(m)
		}
		if m := new(tendv1.ViewResponse); read(m) {
			_ = ToViewItem(m)
		}
		if m := new(tendv1.GrepResponse_Match); read(m) {
			_ = ToMatch(m)
		}
	})
}
