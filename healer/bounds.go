package healer

import (
	"errors"
	"strings"

	"github.com/tend-run/tend/process"
)

// Lessen takes from the limits of a tree the one that this machine cannot enforce, by the
// error of the start, and returns its name: a repair is made without it, and it is said. All
// are taken if the error names none; "" is that nothing can be taken, so that another start
// would fail as this one did.
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
	l.MemoryMax, l.PidsMax, l.CPUs = 0, 0, 0
	return all[2:]
}
