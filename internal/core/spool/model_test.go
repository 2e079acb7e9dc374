//go:build linux

package spool

import (
	"bytes"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tend-run/tend/process"
)

// model is what was written, byte by byte.
type model struct {
	w       *writer
	content [4][]byte
	seq     [4][]int // by byte: when it arrived by the index; 0: the index does not say
	wrote   int
	atExit  *[4]int64
	readers []*modelReader
}

// modelReader holds a reader to the contract.
type modelReader struct {
	*reader
	opts      process.ReadOptions
	want      [4]bool
	at, stop  [4]int64
	seq       int
	sent      map[process.EventKind]int
	eof       [4]bool
	ended     bool
	exitAtNew bool
}

func TestReadersSeeWhatAModelSees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "spool")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &model{w: newWriter(t, dir)}
		defer m.w.close()
		defer func() {
			for _, r := range m.readers {
				r.Close()
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "write more": m.write, "trim": m.trim, "other kind": m.other, "end a stream": m.end,
			"exit": m.exit, "open": m.open, "read": m.read, "read more": m.read,
		})
		m.exit(t)
		for _, s := range outputs {
			m.w.eof(s)
		}
		for _, r := range m.readers {
			m.step(t, r, 1<<20)
			if !r.ended {
				t.Fatal("a reader does not end although all has ended")
			}
		}
	})
}

func (m *model) write(t *rapid.T) {
	s := rapid.SampledFrom(outputs).Draw(t, "stream")
	if m.w.p.EOF[s] {
		return
	}
	index := rapid.SampledFrom([]int{whole, whole, whole, damaged, hole}).Draw(t, "index")
	b := make([]byte, rapid.IntRange(1, 3*BlockSize).Draw(t, "bytes"))
	m.wrote++
	for i := range b {
		at := len(m.content[s]) + i
		b[i] = pattern(s, int64(at))
		if index == whole {
			m.seq[s] = append(m.seq[s], m.wrote)
		} else {
			m.seq[s] = append(m.seq[s], 0)
		}
	}
	m.content[s] = append(m.content[s], b...)
	m.w.data(s, b, index)
}

func (m *model) trim(t *rapid.T) {
	s := rapid.SampledFrom(outputs).Draw(t, "stream")
	m.w.trim(s, rapid.Int64Range(0, m.w.p.End[s]).Draw(t, "before"))
}

// other writes a record of a kind that is not about data, or that no version knows yet.
func (m *model) other(t *rapid.T) {
	s := rapid.SampledFrom(outputs).Draw(t, "stream")
	r := IndexRecord{Kind: IndexKind(rapid.SampledFrom([]int{3, 9}).Draw(t, "kind")), Stream: s, Offset: m.w.p.End[s], Len: rapid.Uint32().Draw(t, "size")}
	m.w.record(r, false)
}

func (m *model) end(t *rapid.T) { m.w.eof(rapid.SampledFrom(outputs).Draw(t, "stream")) }

func (m *model) exit(*rapid.T) {
	if m.atExit == nil {
		end := m.w.p.End
		m.atExit = &end
		m.w.exit(7)
	}
}

func (m *model) open(t *rapid.T) {
	if len(m.readers) == 6 {
		return
	}
	r := &modelReader{sent: map[process.EventKind]int{}, exitAtNew: m.atExit != nil}
	r.opts = process.ReadOptions{
		Streams:   rapid.SampledFrom([][]process.Stream{nil, outputs[:1], outputs[1:], outputs}).Draw(t, "streams"),
		NoFollow:  rapid.Bool().Draw(t, "no follow"),
		Unordered: rapid.Bool().Draw(t, "unordered"),
		Drain:     rapid.SampledFrom([]time.Duration{0, -1}).Draw(t, "drain"),
		MaxChunk:  rapid.SampledFrom([]int{0, 1000, BlockSize, maxChunk}).Draw(t, "chunk"),
	}
	r.stop = m.w.p.End
	for _, s := range outputs {
		r.want[s] = len(r.opts.Streams) == 0 || slices.Contains(r.opts.Streams, s)
		r.opts.From[s] = rapid.OneOf(rapid.Just[int64](0), rapid.Just(process.FromNow), rapid.Int64Range(0, r.stop[s])).Draw(t, "from")
		if r.at[s] = r.opts.From[s]; r.at[s] == process.FromNow {
			r.at[s] = r.stop[s]
		}
	}
	pr, err := NewReader(m.w.dir, "p", outputs, m.w, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	r.reader = pr.(*reader)
	m.readers = append(m.readers, r)
}

func (m *model) read(t *rapid.T) {
	if len(m.readers) > 0 {
		r := m.readers[rapid.IntRange(0, len(m.readers)-1).Draw(t, "reader")]
		m.step(t, r, rapid.IntRange(1, 20).Draw(t, "events"))
	}
}

// step takes up to n events.
func (m *model) step(t *rapid.T, r *modelReader, n int) {
	for i := range n {
		spans, p := (i+len(r.sent))%3 == 0, m.w.p
		var ev process.Event
		var span process.Span
		var ok bool
		var err error
		if spans {
			if ev, span, ok, err = r.NextSpan(777); ev.Kind == process.EventOutput {
				ev.Data = make([]byte, span.Len)
				if _, err := span.File.ReadAt(ev.Data, span.Offset); err != nil || !r.Valid(ev.Stream, ev.Offset) || span.Len > 777 {
					t.Fatalf("span %+v: %v", span, err)
				}
			}
		} else {
			ev, ok, err = r.Next()
		}
		if err == io.EOF {
			m.ended(t, r)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.ended {
			t.Fatalf("%v after the end", ev.Kind)
		}
		if !ok {
			m.waits(t, r)
			return
		}
		if first := len(r.sent) == 0; first != (ev.Kind == process.EventStarted) {
			t.Fatalf("%v is the first event: %v", ev.Kind, first)
		}
		r.sent[ev.Kind]++
		m.check(t, r, ev, &p)
	}
}

func (m *model) check(t *rapid.T, r *modelReader, ev process.Event, p *Progress) {
	s := ev.Stream
	switch ev.Kind {
	case process.EventOutput:
		if !r.want[s] || ev.Offset != r.at[s] || len(ev.Data) == 0 || r.opts.MaxChunk > 0 && len(ev.Data) > max(r.opts.MaxChunk, 777) {
			t.Fatalf("%s: %d bytes at %d; want them at %d", s, len(ev.Data), ev.Offset, r.at[s])
		}
		to := ev.Offset + int64(len(ev.Data))
		if to > int64(len(m.content[s])) || !bytes.Equal(ev.Data, m.content[s][ev.Offset:to]) {
			t.Fatalf("%s: wrong bytes at %d", s, ev.Offset)
		}
		if r.opts.NoFollow && to > r.stop[s] {
			t.Fatalf("%s: bytes up to %d to a reader that ends at %d", s, to, r.stop[s])
		}
		r.at[s] = to
		for _, seq := range m.seq[s][ev.Offset:to] {
			if seq > 0 && !r.opts.Unordered {
				if seq < r.seq {
					t.Fatalf("%s: what arrived as number %d comes after number %d", s, seq, r.seq)
				}
				r.seq = seq
			}
		}
		if known := m.seq[s][ev.Offset] > 0 && !r.opts.Unordered; known == ev.Time.IsZero() {
			t.Fatalf("%s: the bytes at %d have the time %v; the index knows it: %v", s, ev.Offset, ev.Time, known)
		}
	case process.EventGap:
		to := p.Base[s]
		if r.opts.NoFollow {
			to = min(to, r.stop[s])
		}
		if p.Exit != nil && r.sent[process.EventExited] > 0 && r.opts.Drain == 0 {
			to = min(to, ev.Gap.To) // bounded by where the reader ends
		}
		if want := (process.Gap{Stream: s, From: r.at[s], To: to}); ev.Gap != want || to <= r.at[s] {
			t.Fatalf("gap %+v; want %+v", ev.Gap, want)
		}
		r.at[s] = to
	case process.EventExited:
		if ev.Exit == nil || ev.Exit.Code != 7 || r.sent[ev.Kind] > 1 {
			t.Fatalf("exit %+v, told %d times", ev.Exit, r.sent[ev.Kind])
		}
		for _, s := range outputs {
			if end := m.atExit[s]; r.want[s] && r.at[s] < end && !r.opts.NoFollow {
				t.Fatalf("the exit is told with %s at %d, before its output up to %d", s, r.at[s], end)
			}
		}
	case process.EventEOF:
		if !p.EOF[s] || ev.Offset != p.End[s] || r.at[s] != p.End[s] || r.eof[s] {
			t.Fatalf("%s: end of stream told at %d, read to %d, length %d", s, ev.Offset, r.at[s], p.End[s])
		}
		r.eof[s] = true
	}
}

// waits checks that nothing is withheld.
func (m *model) waits(t *rapid.T, r *modelReader) {
	for _, s := range outputs {
		if r.want[s] && (r.opts.NoFollow || r.at[s] != m.w.p.End[s]) {
			t.Fatalf("%s: the reader waits at %d of %d", s, r.at[s], m.w.p.End[s])
		}
	}
	if r.buf != nil || r.cur.batch != nil {
		t.Fatal("a waiting reader holds a buffer")
	}
}

func (m *model) ended(t *rapid.T, r *modelReader) {
	r.ended = true
	var upTo [4]int64
	switch {
	case r.opts.NoFollow:
		upTo = r.stop
	case r.opts.Drain < 0:
		upTo = m.w.p.End
	default:
		upTo = *m.atExit
	}
	for _, s := range outputs {
		if r.want[s] && (r.at[s] < upTo[s] || !r.opts.NoFollow && r.opts.Drain < 0 && !r.eof[s]) {
			t.Fatalf("%s: the reader ends at %d, before %d; end of stream told: %v", s, r.at[s], upTo[s], r.eof[s])
		}
	}
	if told := r.sent[process.EventExited] == 1; told != (!r.opts.NoFollow || r.exitAtNew) {
		t.Fatalf("the exit is told: %v", told)
	}
}
