//go:build linux

package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tend-run/tend/process"
)

// frameHead is the length of the head of each write: writer, number, length.
const frameHead = 12

// writers: several writers write to one process at once. Each write comes back
// whole and once, in the order of its writer. A writer that was away for ten seconds in the
// middle of a write, while others have written, is told, and gives up.
func writers(ctx context.Context, b *bench) error {
	const several = 3
	counts := [several]int{}
	var cut [several]int // what was accepted of the last write, if the writer gave up
	var sizes [several][]int
	for w := range several {
		counts[w] = 1 + b.rnd.IntN(30)
		for range counts[w] {
			n := b.rnd.IntN(20 << 10)
			if b.rnd.IntN(20) == 0 {
				n = b.rnd.IntN(3 << 20) // sent in parts
			}
			sizes[w] = append(sizes[w], n)
		}
	}
	write := func(p process.Process, w int) error {
		name := fmt.Sprintf("w%d-%x", w, rand.Uint64())
		at := int64(0)
		for i, n := range sizes[w] {
			data := frameOf(w, i, n)
			from := at
			err := put(ctx, p, process.Input{Data: data, Writer: name, Offset: &at, Again: true})
			if errors.Is(err, process.ErrWriterForgotten) && len(data) > process.MaxWhole {
				cut[w], err = b.ended(ctx, p, name, from)
				counts[w] = i + 1
				return err
			}
			if err != nil {
				return fmt.Errorf("writer %d, write %d at %d: %w", w, i, at, err)
			}
			at = from + int64(len(data))
		}
		return nil
	}
	return b.whole(ctx, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe}, process.Exit{}, func(p process.Process) error {
		var got []byte
		if err := together(func() error {
			var all []func() error
			for w := range several {
				all = append(all, func() error { return write(p, w) })
			}
			if err := together(all...); err != nil {
				return err
			}
			return put(ctx, p, process.Input{EOF: true})
		}, func() (err error) {
			got, err = b.readAll(ctx, p)
			return err
		}); err != nil {
			return err
		}
		return checkFrames(got, counts[:], cut[:])
	})
}

// ended ends the write that a writer began at an offset, and returns how much of it was accepted.
func (b *bench) ended(ctx context.Context, p process.Process, name string, from int64) (int, error) {
	var acc process.Accepted
	err := insist(ctx, func() (err error) {
		acc, err = p.Write(ctx, process.Input{Writer: name, Offset: new(int64)})
		return err
	})
	if n := acc.Written - from; err != nil || n > 0 && n%process.MaxWhole == 0 {
		return int(n), err
	}
	return 0, fmt.Errorf("%d bytes were accepted of a writer whose write began at %d and lost its rest; want whole parts", acc.Written, from)
}

func frameOf(writer, number, n int) []byte {
	data := make([]byte, frameHead+n)
	binary.LittleEndian.PutUint32(data, uint32(writer))
	binary.LittleEndian.PutUint32(data[4:], uint32(number))
	binary.LittleEndian.PutUint32(data[8:], uint32(n))
	fill(data[frameHead:], int64(writer)<<32|int64(number)<<24)
	return data
}

// readAll reads all of stdout.
func (b *bench) readAll(ctx context.Context, p process.Process) (got []byte, err error) {
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{process.Stdout}, Drain: -1}) {
		if err != nil {
			return nil, fmt.Errorf("read, at byte %d: %w", len(got), err)
		}
		if ev.Kind == process.EventGap {
			return nil, fmt.Errorf("gap from %d to %d", ev.Gap.From, ev.Gap.To)
		}
		b.bytes.Add(int64(len(ev.Data)))
		got = append(got, ev.Data...)
	}
	return got, nil
}

// checkFrames checks that an output consists of the frames of all writers, so many of each. Of
// the last frame of a writer that gave up there is only what was accepted.
func checkFrames(got []byte, counts, cut []int) error {
	next := make([]int, len(counts))
	for at := 0; at < len(got); {
		if len(got)-at < frameHead {
			return fmt.Errorf("%d bytes are over at byte %d", len(got)-at, at)
		}
		head := got[at : at+frameHead]
		w, n := int(binary.LittleEndian.Uint32(head)), int(binary.LittleEndian.Uint32(head[8:]))
		if w >= len(counts) || n > 3<<20 {
			return fmt.Errorf("at byte %d, where a write must begin, is %x", at, head)
		}
		want := frameOf(w, next[w], n)
		if next[w]++; next[w] == counts[w] && cut[w] > 0 {
			want = want[:cut[w]]
		}
		if !bytes.HasPrefix(got[at:], want) {
			return fmt.Errorf("at byte %d is number %d of writer %d with %d bytes; want its number %d, %d bytes of it",
				at, binary.LittleEndian.Uint32(head[4:]), w, n, next[w]-1, len(want))
		}
		at += len(want)
	}
	for w := range counts {
		if next[w] != counts[w] {
			return fmt.Errorf("%d writes of writer %d came of %d", next[w], w, counts[w])
		}
	}
	return nil
}
