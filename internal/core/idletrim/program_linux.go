package idletrim

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// program unmaps what a role has mapped of its own program. Most of that was read once, when
// it started; what is needed again is mapped again, by the kernel, as it is used.
//
// The pages stay in memory, in the page cache, and to map them again takes a microsecond for
// 16 of them. But a machine that is short of memory, or that looks for what is cold, takes
// pages first that nobody has mapped: then they come from the disk, which takes a millisecond
// for each piece. Where that has happened the program is left as it is from then on.
type program struct {
	spans    []span
	unmapped bool  // once
	faults   int64 // that had read from the disk then
	kept     bool  // the machine does not keep what is unmapped
}

type span struct{ from, length uintptr }

// mostFaults are those of other causes that may come between two rests.
const mostFaults = 4

// Program returns what a Trimmer calls to unmap the program, where that can be done.
func Program() func() {
	p := newProgram()
	return p.unmap
}

func newProgram() *program {
	p := &program{}
	self, err := os.Readlink("/proc/self/exe")
	maps, merr := os.ReadFile("/proc/self/maps")
	if err != nil || merr != nil {
		return p
	}
	p.spans = spansOf(string(maps), self)
	return p
}

// spansOf finds the parts of a program that nobody writes to, in the text of
// /proc/PID/maps: the kernel has the same of them in the file.
func spansOf(maps, program string) (spans []span) {
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		if len(f) < 6 || len(f[1]) != 4 || f[1][0] != 'r' || f[1][1] != '-' || f[1][3] != 'p' || f[4] == "0" {
			continue
		}
		if _, path, _ := strings.Cut(line, f[4]); strings.TrimSpace(path) != program {
			continue
		}
		low, high, _ := strings.Cut(f[0], "-")
		from, err := strconv.ParseUint(low, 16, 64)
		to, terr := strconv.ParseUint(high, 16, 64)
		if err != nil || terr != nil || to <= from {
			continue
		}
		spans = append(spans, span{uintptr(from), uintptr(to - from)})
	}
	return spans
}

// unmap does it, or learns that it must not.
func (p *program) unmap() {
	if p.kept || p.unmapped && fromDisk()-p.faults > mostFaults {
		p.kept = true
		return
	}
	for _, s := range p.spans {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.from, s.length, unix.MADV_DONTNEED) // it stays mapped
	}
	p.unmapped, p.faults = true, fromDisk()
}

// fromDisk is how often this process has waited for a page from a disk.
func fromDisk() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Majflt
}
