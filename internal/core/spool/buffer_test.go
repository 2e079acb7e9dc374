//go:build linux

package spool

import (
	"testing"

	"github.com/tend-run/tend/process"
)

func TestAThousandReadersWhoseConsumersStallHoldLittleTogether(t *testing.T) {
	const readers, size = 1000, 4 << 20
	w := testWriter(t)
	w.data(process.Stdout, make([]byte, size), whole)
	all := make([]process.Reader, readers)
	for i := range all {
		all[i] = w.open(t, process.ReadOptions{MaxChunk: maxChunk})
		defer all[i].Close()
		if ev, ok, err := all[i].Next(); !ok || err != nil || ev.Kind != process.EventStarted {
			t.Fatalf("%v, %v, %v", ev.Kind, ok, err)
		}
	}
	held := 0
	for _, r := range all {
		ev, ok, err := r.Next()
		if !ok || err != nil || len(ev.Data) == 0 {
			t.Fatalf("%d bytes, %v, %v", len(ev.Data), ok, err)
		}
		held += len(ev.Data)
	}
	if most := mostLent + readers*bufferSizes[0]; held > most {
		t.Errorf("%d readers that stall hold %d bytes; at most %d", readers, held, most)
	}
	for _, r := range all[1:] {
		r.Close()
	}
	for at := 0; ; {
		ev, ok, err := all[0].Next()
		if !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		if at = int(ev.Offset) + len(ev.Data); len(ev.Data) >= defaultChunk {
			break // pieces are large again
		}
		if at >= size {
			t.Fatal("pieces stay small for a reader that is alone again")
		}
	}
}
