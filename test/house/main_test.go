// Package house_test looks at the whole tree: what may import what, what documents name, what
// each script does.
package house_test

import (
	"os"
	"testing"

	"github.com/tend-run/tend/internal/support/testbin"
)

// TestMain has the tests run at the root of the tree.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	testbin.KeepNoResult() // go test sees neither the directory nor what scripts read
	os.Exit(m.Run())
}
