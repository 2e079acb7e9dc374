// Package role implements the command line of the roles that hold processes: launcher,
// anchor and keeper. Two programs use it: tend-keeper,
// the small binary that `make build` embeds in tend; and tend itself, if it was built
// without that binary.
package role

import (
	"fmt"
	"os"
	"path/filepath"
)

// Name is the name under which a program is started as a role, its argv[0].
const Name = "tend-keeper"

// Called reports whether this program was started as a role.
func Called() bool { return len(os.Args) > 0 && filepath.Base(os.Args[0]) == Name }

// Main runs the role that the command line names and returns the exit status.
func Main() int {
	if status, ok := asSudo(); ok {
		return status
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "tend: %v\n", err)
		return 1
	}
	return 0
}
