package cli

import (
	"testing"

	"github.com/tend-run/tend/process"
)

// told is an error of the server: its words, by one of the client's names.
type told struct {
	text string
	as   error
}

func (e told) Error() string { return e.text }
func (e told) Unwrap() error { return e.as }

func TestAHintIsAboutWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{told{`no such process: name x`, process.ErrNotFound}, `no such process: name x (tend ps -a lists all that are known)`},
		{told{`sandbox "x": no such sandbox`, process.ErrNotFound}, `sandbox "x": no such sandbox (tend sandbox ls lists all that are known)`},
	} {
		if got := explain(tt.err); got != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}
