package work

import (
	"context"
	"os"
	"testing"

	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/support/testbin"
)

// bin is the directory of the programs.
var bin string

// TestMain makes the test binary what a worker starts, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Verb {
		if err := project.Serve(context.Background(), os.Environ(), os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(testbin.Main(func(dir string) int {
		bin = dir
		return m.Run()
	}, testbin.Released))
}
