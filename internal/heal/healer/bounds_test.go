package healer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tend-run/tend/process"
)

func TestOnlyTheLimitThatIsMissingIsTaken(t *testing.T) {
	all := process.Limits{MemoryMax: 1, PidsMax: 2, CPUs: 3, Nice: 5}
	missing := func(name string) error {
		return &process.StartError{Reason: process.StartLimits, What: name + ` needs the cgroup controller "x"`, Err: process.ErrUnsupported}
	}
	for name, c := range map[string]struct {
		had   process.Limits
		err   error
		taken string
		left  process.Limits
	}{
		"memory":     {all, missing("limits.memory_max"), "limits.memory_max", process.Limits{PidsMax: 2, CPUs: 3, Nice: 5}},
		"tasks":      {all, missing("limits.pids_max"), "limits.pids_max", process.Limits{MemoryMax: 1, CPUs: 3, Nice: 5}},
		"processors": {all, missing("limits.cpus"), "limits.cpus", process.Limits{MemoryMax: 1, PidsMax: 2, Nice: 5}},
		"one that is not named": {all, process.ErrUnsupported, "limits.memory_max, limits.pids_max, limits.cpus, limits.nice",
			process.Limits{}},
		"niceness":                 {all, missing("limits.nice"), "limits.nice", process.Limits{MemoryMax: 1, PidsMax: 2, CPUs: 3}},
		"one that was not asked":   {process.Limits{}, missing("limits.pids_max"), "", process.Limits{}},
		"another error":            {all, errors.New("limits.pids_max"), "", all},
		"one of the other's words": {process.Limits{PidsMax: 2}, fmt.Errorf("limits.memory_max: %w", process.ErrUnsupported), "limits.pids_max", process.Limits{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.had
			if taken := Lessen(&got, c.err); taken != c.taken || fmt.Sprint(got) != fmt.Sprint(c.left) {
				t.Errorf("%q is taken of %+v, and %+v left; want %q, %+v", taken, c.had, got, c.taken, c.left)
			}
		})
	}
}
