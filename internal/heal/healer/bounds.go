package healer

import (
	"errors"
	"strings"

	"github.com/tend-run/tend/process"
)

// Lessen removes from the limits of a tree the one that this machine cannot enforce,
// according to the error of the start, and returns its name: the repair continues without
// it, and reports that. If the error names no limit, all are removed. "": nothing can be
// removed, so another start would fail in the same way.
func Lessen(l *process.Limits, err error) (taken string) {
	if !errors.Is(err, process.ErrUnsupported) {
		return ""
	}
	text, all := err.Error(), ""
	for _, one := range []struct {
		name string
		has  bool
		drop func()
	}{
		{"limits.memory_max", l.MemoryMax != 0, func() { l.MemoryMax = 0 }},
		{"limits.pids_max", l.PidsMax != 0, func() { l.PidsMax = 0 }},
		{"limits.cpus", l.CPUs != 0, func() { l.CPUs = 0 }},
		{"limits.nice", l.Nice != 0, func() { l.Nice = 0 }}, // that of the daemon is greater
	} {
		if !one.has {
			continue
		}
		if strings.Contains(text, one.name) {
			one.drop()
			return one.name
		}
		all += ", " + one.name
	}
	if all == "" {
		return ""
	}
	l.MemoryMax, l.PidsMax, l.CPUs, l.Nice = 0, 0, 0, 0
	return all[2:]
}
