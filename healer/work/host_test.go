package work

import (
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
		labels := map[string]string{labelService: "web"}
		if tt.hook != "" {
			labels[labelHook] = tt.hook
		}
		if got := tellsOfRun(&process.Info{Spec: process.Spec{Labels: labels}, Exit: tt.exit}); got != tt.want {
			t.Errorf("%q with exit %v: %v", tt.hook, tt.exit, got)
		}
	}
}
