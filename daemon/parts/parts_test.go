package parts

import (
	"testing"

	"github.com/tend-run/tend/internal/fakeproc"
)

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"no manager":         {StateDir: t.TempDir()},
		"no state directory": {Manager: fakeproc.New(t)},
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("Open with %s succeeded", name)
		}
	}
}
