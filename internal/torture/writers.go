//go:build linux

package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/tend-run/tend/process"
)

// frameHead is the length of the head of each write: writer, number, length.
const frameHead = 12

// writers: several writers write to one process at once. Each write comes back
// whole and once, in the order of its writer.
func writers(ctx context.Context, b *bench) error {
	const several = 3
	counts := [several]int{}
	total := int64(0)
	var sizes [several][]int
	for w := range several {
		counts[w] = 1 + b.rnd.IntN(30)
		for range counts[w] {
			n := b.rnd.IntN(20 << 10)
			if b.rnd.IntN(20) == 0 {
				n = b.rnd.IntN(3 << 20) // sent in parts
			}
			sizes[w] = append(sizes[w], n)
			total += int64(n) + frameHead
		}
	}
	write := func(p process.Process, w int) error {
		name := fmt.Sprintf("w%d-%x", w, rand.Uint64())
		at := int64(0)
		for i, n := range sizes[w] {
			data := frameOf(w, i, n)
			if err := put(ctx, p, process.Input{Data: data, Writer: name, Offset: &at, Again: true}); err != nil {
				return fmt.Errorf("writer %d, write %d at %d: %w", w, i, at, err)
			}
			at += int64(len(data))
		}
		return nil
	}
	return b.whole(ctx, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe}, process.Exit{}, func(p process.Process) error {
		return together(func() error {
			var all []func() error
			for w := range several {
				all = append(all, func() error { return write(p, w) })
			}
			if err := together(all...); err != nil {
				return err
			}
			return put(ctx, p, process.Input{EOF: true})
		}, func() error { return b.readFrames(ctx, p, counts[:], total) })
	})
}

func frameOf(writer, number, n int) []byte {
	data := make([]byte, frameHead+n)
	binary.LittleEndian.PutUint32(data, uint32(writer))
	binary.LittleEndian.PutUint32(data[4:], uint32(number))
	binary.LittleEndian.PutUint32(data[8:], uint32(n))
	fill(data[frameHead:], int64(writer)<<32|int64(number)<<24)
	return data
}

// readFrames checks that stdout consists of the frames.
func (b *bench) readFrames(ctx context.Context, p process.Process, counts []int, total int64) error {
	var got []byte
	at := int64(0)
	next := make([]int, len(counts))
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{process.Stdout}, Drain: -1}) {
		if err != nil {
			return fmt.Errorf("read, at byte %d of %d: %w", at, total, err)
		}
		if ev.Kind == process.EventGap {
			return fmt.Errorf("gap from %d to %d", ev.Gap.From, ev.Gap.To)
		}
		b.bytes.Add(int64(len(ev.Data)))
		got = append(got, ev.Data...)
		for len(got) >= frameHead {
			w, n := int(binary.LittleEndian.Uint32(got)), int(binary.LittleEndian.Uint32(got[8:]))
			if w >= len(counts) || n > 3<<20 {
				return fmt.Errorf("at byte %d, where a write must begin, is %x", at, got[:frameHead])
			}
			if len(got) < frameHead+n {
				break
			}
			if want := frameOf(w, next[w], n); !bytes.Equal(got[:len(want)], want) {
				return fmt.Errorf("at byte %d is number %d of writer %d with %d bytes; want its number %d, whole", at, binary.LittleEndian.Uint32(got[4:]), w, n, next[w])
			}
			next[w]++
			got, at = got[frameHead+n:], at+frameHead+int64(n)
		}
	}
	for w := range counts {
		if next[w] != counts[w] {
			return fmt.Errorf("%d writes of writer %d came of %d", next[w], w, counts[w])
		}
	}
	if len(got) > 0 || at != total {
		return fmt.Errorf("%d of %d bytes, and %d over", at, total, len(got))
	}
	return nil
}
