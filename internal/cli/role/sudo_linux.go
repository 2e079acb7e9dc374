package role

import (
	"os"
	"path/filepath"

	"github.com/tend-run/tend/internal/core/sudo"
)

// asSudo runs the program that sandboxes have as /usr/bin/sudo, if it was started as that.
func asSudo() (status int, ok bool) {
	if len(os.Args) == 0 || filepath.Base(os.Args[0]) != filepath.Base(sudo.Path) {
		return 0, false
	}
	return sudo.Main(os.Args, os.Environ()), true
}
