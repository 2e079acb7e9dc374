package work

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tend-run/tend/process"
)

// The output and the exit of a hook are not those of a run, unless it is why there is none.
func TestAHookTellsOfARunOnlyIfItPreventedIt(t *testing.T) {
	ended, failed := &process.Exit{}, &process.Exit{Code: 1}
	for _, tt := range []struct {
		hook string
		exit *process.Exit
		want bool
	}{
		{"", nil, true}, {"", ended, true}, {"pre_start", nil, false}, {"pre_start", ended, false}, {"pre_start", failed, true},
		{"post_start", failed, false}, {"pre_stop", failed, false}, {"post_stop", failed, false}, {"post_stop", ended, false},
	} {
		labels := map[string]string{process.LabelService: "web"}
		if tt.hook != "" {
			labels[process.LabelHook] = tt.hook
		}
		if got := tellsOfRun(&process.Info{Spec: process.Spec{Labels: labels}, Exit: tt.exit}); got != tt.want {
			t.Errorf("%q with exit %v: %v", tt.hook, tt.exit, got)
		}
	}
}

// lacking is a machine without the cgroup controllers of some limits.
type lacking struct {
	lacks []string
	got   []process.Limits
}

func (l *lacking) Start(_ context.Context, s process.Spec) (process.Process, error) {
	l.got = append(l.got, s.Limits)
	for _, one := range []struct {
		name string
		has  bool
	}{{"limits.memory_max", s.Limits.MemoryMax != 0}, {"limits.pids_max", s.Limits.PidsMax != 0}, {"limits.cpus", s.Limits.CPUs != 0}} {
		if one.has && slices.Contains(l.lacks, one.name) {
			return nil, fmt.Errorf("%s needs the cgroup controller %q: %w", one.name, "x", process.ErrUnsupported)
		}
	}
	return nil, nil
}

// A command has those bounds for which there is a controller, and what it does not have is said
// once.
func TestACommandHasTheBoundsThatThereAre(t *testing.T) {
	all := process.Limits{MemoryMax: 1, PidsMax: 2, CPUs: 3, Nice: 5}
	for name, c := range map[string]struct {
		lacks []string
		want  process.Limits
		notes int
	}{
		"all controllers": {nil, all, 0},
		"none of tasks":   {[]string{"limits.pids_max"}, process.Limits{MemoryMax: 1, CPUs: 3, Nice: 5}, 1},
		"tasks alone":     {[]string{"limits.memory_max", "limits.cpus"}, process.Limits{PidsMax: 2, Nice: 5}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var notes []string
			w := &worker{says: func(text string) { notes = append(notes, text) }}
			m := &lacking{lacks: c.lacks}
			for range 2 {
				if _, err := w.startBounded(t.Context(), m, process.Spec{Limits: all}); err != nil {
					t.Fatal(err)
				}
			}
			if got := m.got[len(m.got)-1]; fmt.Sprint(got) != fmt.Sprint(c.want) || len(notes) != c.notes {
				t.Errorf("it has %+v, and %q was said; want %+v and %d notes", got, notes, c.want, c.notes)
			}
		})
	}
}
