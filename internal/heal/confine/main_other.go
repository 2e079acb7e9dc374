//go:build !linux

package confine

import (
	"fmt"
	"os"
)

// Main says that files can be hidden on Linux alone.
func Main(args, _ []string) int {
	_, _, err := parse(args)
	if err == nil {
		err = fmt.Errorf("files can be hidden from a command on Linux alone")
	}
	fmt.Fprintln(os.Stderr, "tend: the command was not run:", err)
	return Refused
}

// MainInside is as Main.
func MainInside(args, env []string, _ func(Sandbox) (Shadow, error)) int { return Main(args, env) }
