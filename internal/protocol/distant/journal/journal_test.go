package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var samples = []Record{
	{Kind: KindState, Data: []byte(`{"ID":1}`)},
	{Kind: KindMessage, Frame: 7, Request: 5, Data: []byte("answer")},
	{Kind: KindMessage, Frame: 8, Data: []byte{}},
	{Kind: KindOutput, Frame: 9, Slot: 2, Stream: process.Stderr, Offset: 1 << 40, Length: 4096},
	{Kind: KindDone, Frame: 10, Slot: 2, Data: []byte("done")},
	{Kind: KindHeartbeat, Frame: 11},
	{Kind: KindStream, Data: []byte(`{"Slot":3}`)},
	{Kind: KindInput, Request: 6, Index: 1, Process: 77, Offset: 12},
	{Kind: KindOTP, Data: bytes.Repeat([]byte{1}, 64)},
	{Kind: 200, Data: []byte("from the future")},
}

func TestRecordsComeBack(t *testing.T) {
	for _, want := range samples {
		b := want.Append([]byte("before"))[6:]
		got, n, err := Parse(append(b, "behind"...))
		if err != nil || n != len(b) {
			t.Fatalf("%+v: %v, %d bytes of %d", want, err, n, len(b))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for cut := range len(b) {
			if _, _, err := Parse(b[:cut]); !errors.Is(err, ErrTorn) {
				t.Fatalf("%+v: its first %d bytes of %d were taken for a record", want, cut, len(b))
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	s := State{Answered: 4}
	for _, n := range []uint64{7, 6, 9, 7, 3} {
		s.answer(n)
	}
	if s.Answered != 4 || !cmp.Equal(s.Above, []uint64{6, 7, 9}) {
		t.Fatalf("%+v", s)
	}
	s.answer(5)
	if s.Answered != 7 || !cmp.Equal(s.Above, []uint64{9}) || s.WasAnswered(8) || !s.WasAnswered(9) || !s.WasAnswered(2) {
		t.Fatalf("%+v", s)
	}
}

func create(t *testing.T, limit int64) *Log {
	t.Helper()
	l := proctest.Value(Create(filepath.Join(t.TempDir(), "s"), State{ID: 5, Sent: 6, Answered: 4}))(t)
	l.limit = limit
	t.Cleanup(func() { l.Close() })
	return l
}

func appendAll(t *testing.T, l *Log, records ...Record) {
	t.Helper()
	for _, r := range records {
		proctest.Must(t, l.Append(r))
	}
}

func TestStateSurvives(t *testing.T) {
	l := create(t, 200) // several segments
	st := Stream{Slot: 1, Number: 77, Process: "p", Origin: "o", Own: true}
	if err := errors.Join(l.AppendJSON(KindStream, st), l.Append(Record{Kind: KindOTP, Data: append(bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)...)}),
		l.AppendJSON(KindWatch, Watch{Path: "/a"}), l.AppendJSON(KindWatch, Watch{Path: "/b"}), l.AppendJSON(KindWatch, Watch{Path: "/a", Removed: true})); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(20) {
		appendAll(t, l, Record{Kind: KindOutput, Frame: 7 + i, Slot: 1, Stream: process.Stdout, Offset: int64(i) * 10, Length: 10})
	}
	appendAll(t, l, Record{Kind: KindMessage, Frame: 27, Request: 5, Data: []byte("x")},
		Record{Kind: KindInput, Request: 6, Process: 77, Offset: 3})
	want := l.State().clone()
	for _, damage := range []struct {
		name string
		do   func(path string) error
	}{
		{"as it is", func(string) error { return nil }},
		{"with a torn record at the end", func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.Write(samples[1].Append(nil)[:12])
			return err
		}},
		{"with a segment that was never begun", func(path string) error {
			return os.WriteFile(segmentPath(filepath.Dir(path), l.segment+1), []byte{1, 2, 3}, 0o600)
		}},
	} {
		t.Run(damage.name, func(t *testing.T) {
			proctest.Must(t, damage.do(segmentPath(l.dir, l.segment)))
			again := proctest.Value(Open(l.dir))(t)
			defer again.Close()
			if diff := cmp.Diff(&want, again.State()); diff != "" {
				t.Error(diff)
			}
			if err := again.Append(Record{Kind: KindInput, Request: 6, Process: 77, Offset: 3}); err != nil {
				t.Error(err)
			}
		})
	}
	fi, err := os.Stat(l.dir)
	if err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the directory with the passwords has mode %v (%v)", fi.Mode(), err)
	}
}

func TestFrames(t *testing.T) {
	l := create(t, 1000)
	for n := uint64(7); n <= 60; n++ {
		appendAll(t, l, Record{Kind: KindMessage, Frame: n, Data: fmt.Append(nil, n)})
	}
	for _, tc := range []struct {
		name     string
		from, to uint64
		err      error
	}{
		{"the last ones, over a change of segments", 40, 60, nil},
		{"one in the middle", 44, 45, nil},
		{"none", 60, 60, nil},
		{"some that are not remembered", 6, 60, ErrForgotten},
		{"some that were never sent", 50, 61, ErrForgotten},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := tc.from + 1
			err := l.Frames(tc.from, tc.to, func(r Record) error {
				if r.Frame != next || string(r.Data) != fmt.Sprint(next) {
					t.Errorf("frame %d with %q came, want %d", r.Frame, r.Data, next)
				}
				next++
				return nil
			})
			if !errors.Is(err, tc.err) || err == nil && next != tc.to+1 {
				t.Errorf("error %v, next %d", err, next)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, r := range samples {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		for {
			r, n, err := Parse(b)
			if err != nil {
				return
			}
			if again := r.Append(nil); !bytes.Equal(again, b[:n]) {
				t.Fatalf("%x was read and written as %x", b[:n], again)
			}
			s.apply(&r)
			b = b[n:]
		}
	})
}
