package work

import (
	"os"
	"testing"

	"github.com/tend-run/tend/internal/testbin"
)

// bin is the directory of the programs.
var bin string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		bin = dir
		return m.Run()
	}, testbin.Released))
}
