package files

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// self acts for the account of the test, with a home of its own.
func self(t *testing.T) FS {
	t.Helper()
	u, err := Lookup("")
	if err != nil {
		t.Fatal(err)
	}
	u.Home = t.TempDir()
	return FS{User: u}
}
