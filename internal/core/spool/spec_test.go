package spool

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// fill gives every field below v a value of its own that is not zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("value %d", *n))
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(-int64(*n) * 1_000_003)
	case reflect.Uint8:
		v.SetUint(uint64(*n)%250 + 1)
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n) + 300)
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, n)
			fill(e, n)
			v.SetMapIndex(k, e)
		}
	default:
		panic("the test does not know how to fill " + v.Type().String())
	}
}

func TestEveryFieldOfASpecIsEncoded(t *testing.T) {
	var want process.Spec
	n := 0
	fill(reflect.ValueOf(&want).Elem(), &n)
	for name, spec := range map[string]process.Spec{
		"all fields":          want,
		"no field":            {},
		"empty words and env": {Argv: []string{"a", "", "b", ""}, Env: map[string]string{"A": "", "B": "=\xff\n"}, PTY: &process.Size{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := EncodeSpec([]byte("head"), &spec)
			got := proctest.Value(DecodeSpec(b[len("head"):]))(t)
			if diff := cmp.Diff(spec, got); diff != "" {
				t.Errorf("a spec changes on its way (-want +got):\n%s", diff)
			}
			newer := field(b[len("head"):len(b):len(b)], 9999, "of a newer version")
			if got, err := DecodeSpec(newer); err != nil || !got.Equal(&spec) {
				t.Errorf("an unknown tag is not skipped: %v", err)
			}
			at := time.Unix(1, 2)
			if want, got := AppendSpec(nil, at, &spec), AppendEncodedSpec(nil, at, b[len("head"):]); !bytes.Equal(got, want) {
				t.Errorf("encoded before, the record is %x; want %x", got, want)
			}
			if j, err := parseJournal(AppendEncodedSpec(nil, at, newer)); err != nil || !j.Asked(&spec) {
				t.Errorf("with an unknown tag the journal has %+v, %v", j, err)
			}
		})
	}
}

func FuzzDecodeSpec(f *testing.F) {
	var full process.Spec
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	f.Add(EncodeSpec(nil, &full))
	f.Add([]byte{tagPTY, 4, 80, 0, 24, 0})
	f.Add([]byte{tagArg, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{tagEnv, 1, 'a'})
	f.Add([]byte{tagRlimit, 1, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSpec(b)
		if err != nil {
			return
		}
		again, err := DecodeSpec(EncodeSpec(nil, &s))
		if err != nil || !s.Equal(&again) {
			t.Errorf("decoded %+v, and again %+v, %v", s, again, err)
		}
	})
}

// journalBytes is a journal with a record of each kind, and where each ends.
func journalBytes() (b []byte, ends []int) {
	at := time.Unix(1700000000, 12345)
	full := process.Spec{ID: "id", Argv: []string{"sh", "-c", "true"}, Env: map[string]string{"A": "b"}}
	add := func(next []byte) { b = next; ends = append(ends, len(b)) }
	add(AppendSpec(nil, at, &full))
	add(AppendStarted(b, at.Add(1), Started{PID: 42, StartTicks: 77, BootID: "boot"}))
	add(AppendInside(b, at.Add(1), 17))
	add(AppendEOF(b, at.Add(2), process.Stderr, 1<<40))
	add(appendRecord(b, 200, at, func(b []byte) []byte { return append(b, "of a newer version"...) }))
	add(AppendExited(b, at, &process.Exit{Code: 3, Signal: 9, Cause: process.CauseTimeout, CoreDumped: true,
		UserTime: 5, SystemTime: 6, MaxRSS: 7, Time: at.Add(4)}))
	add(AppendTreeGone(b, at.Add(5)))
	add(AppendPinned(b, at.Add(6), true))
	add(AppendInput(b, at.Add(7), Input{Accepted: 1 << 33, EOF: true}))
	return b, ends
}
