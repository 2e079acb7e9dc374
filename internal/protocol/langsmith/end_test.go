package langsmith

import (
	"testing"

	"github.com/tend-run/tend/process"
)

func TestAnEndThatNobodySawIsAnError(t *testing.T) {
	for _, cause := range []process.Cause{process.CauseLost, process.CauseShutdown} {
		if err := endError(&process.Exit{Code: -1, Cause: cause}); err == nil {
			t.Errorf("cause %v is told as an exit", cause)
		}
	}
}
