package process_test

import (
	"testing"

	"github.com/tend-run/tend/process"
)

func TestAnEndIsToldAsItWasOrNotAtAll(t *testing.T) {
	for name, tt := range map[string]struct {
		exit   process.Exit
		lost   bool
		status int
		text   string
	}{
		"a code":                       {process.Exit{Code: 3}, false, 3, "exit status 3"},
		"a signal":                     {process.Exit{Signal: 15, Cause: process.CauseSignalled}, false, 143, "signal: terminated"},
		"ended in an orderly shutdown": {process.Exit{Signal: 15, Cause: process.CauseShutdown}, false, 143, "signal: terminated"},
		"lost with all of tend":        {process.Exit{Code: -1, Cause: process.CauseShutdown}, true, -1, "exit status unknown (lost in a shutdown)"},
		"lost":                         {process.Exit{Code: -1, Cause: process.CauseLost}, true, -1, "exit status unknown (lost)"},
	} {
		if e := &tt.exit; e.Lost() != tt.lost || e.ShellStatus() != tt.status || e.String() != tt.text {
			t.Errorf("%s: lost %v, status %d, %q; want %v, %d, %q", name, e.Lost(), e.ShellStatus(), e.String(), tt.lost, tt.status, tt.text)
		}
	}
}
