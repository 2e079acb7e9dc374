package idletrim

import (
	"os"
	"testing"
)

func TestOnlyWhatNobodyWritesIsUnmapped(t *testing.T) {
	const maps = `00400000-00401000 r-xp 00000000 fe:00 77 /opt/a b/tend
00401000-00403000 r--p 00001000 fe:00 77                                  /opt/a b/tend
00403000-00404000 rw-p 00003000 fe:00 77                                  /opt/a b/tend
00404000-00405000 r--s 00000000 fe:00 77                                  /opt/a b/tend
00405000-00406000 r-xp 00000000 fe:00 78                                  /opt/a b/tend (deleted)
00406000-00407000 r--p 00000000 fe:00 79                                  /usr/lib/other
7ffd1000-7ffd2000 r-xp 00000000 00:00 0                                   [vdso]
7ffd2000-7ffd3000 r--p 00000000 00:00 0
`
	got := spansOf(maps, "/opt/a b/tend")
	want := []span{{0x400000, 0x1000}, {0x401000, 0x2000}}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("found %v; want %v", got, want)
	}
	if got := spansOf(maps, "/opt/a b/tend (deleted)"); len(got) != 1 || got[0].from != 0x405000 {
		t.Errorf("of a program that was replaced: %v", got)
	}
}

// TestAnUnmappedProgramGoesOn: the test is the program.
func TestAnUnmappedProgramGoesOn(t *testing.T) {
	p := newProgram()
	if len(p.spans) < 2 {
		t.Fatalf("found %v", p.spans)
	}
	before := resident(t, p.spans)
	p.unmap()
	// What the test itself needs is mapped again at once, and what lies around it.
	if after := resident(t, p.spans); after >= before*4/5 {
		t.Errorf("%d pages of the program are mapped; before it was unmapped, %d", after, before)
	}
}

// resident counts the pages that are mapped, which are those that pagemap has as present.
func resident(t *testing.T, spans []span) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range spans {
		b := make([]byte, s.length/uintptr(os.Getpagesize())*8)
		if _, err := f.ReadAt(b, int64(s.from/uintptr(os.Getpagesize())*8)); err != nil {
			t.Fatal(err)
		}
		for i := 7; i < len(b); i += 8 {
			if b[i]&0x80 != 0 {
				n++
			}
		}
	}
	return n
}

// A machine that has read the program from the disk again is not asked a second time.
func TestAProgramThatWasReadAgainIsKept(t *testing.T) {
	p := newProgram()
	p.unmapped, p.faults = true, fromDisk()-mostFaults-1
	before := resident(t, p.spans)
	p.unmap()
	if after := resident(t, p.spans); !p.kept || after < before*4/5 {
		t.Errorf("kept: %v; %d of %d pages are mapped", p.kept, after, before)
	}
	p.faults = fromDisk()
	if p.unmap(); !p.kept {
		t.Error("it was unmapped later")
	}
}
