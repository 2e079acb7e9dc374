package envd

import (
	"testing"

	"github.com/tend-run/tend/process"
)

func TestAnEndThatNobodySawIsNoExit(t *testing.T) {
	for _, cause := range []process.Cause{process.CauseLost, process.CauseShutdown} {
		if e := endOf(&process.Exit{Code: -1, Cause: cause}); e.Exited || e.ExitCode != -1 || e.Error == "" {
			t.Errorf("cause %v is told as %+v", cause, e)
		}
	}
}
