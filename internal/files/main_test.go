package files

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(inRoot) != "" {
		if err := openMachine(); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// inRoot is set in the environment of the tests that run once more with a Root, which
// is this machine's own.
const inRoot = "TEND_TEST_FILES_IN_ROOT"

var machineRoot *Root

func openMachine() error {
	dir, err := os.Open("/")
	if err != nil {
		return err
	}
	defer dir.Close()
	machineRoot, err = OpenRoot(dir, 0)
	return err
}

// self acts for the account of the test, with a home of its own.
func self(t *testing.T) FS {
	t.Helper()
	u, err := Lookup("")
	if err != nil {
		t.Fatal(err)
	}
	u.Home = t.TempDir()
	return FS{User: u, Root: machineRoot}
}
