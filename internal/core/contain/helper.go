//go:build linux && (amd64 || arm64)

package contain

import (
	"bytes"
	"io"
	"os"
	"sync"

	"github.com/tend-run/tend/internal/lib/procfs"
)

var firstProgram = sync.OnceValue(first)

// Helper reports whether a process runs the program of containers' pid 1 but is not the pid 1 of
// a container: it holds a namespace for a moment, until its keeper has opened it. The program
// only waits, so it may be killed whoever started it.
func Helper(pid int) bool {
	f, err := os.Open(procfs.Path(pid, "exe"))
	if err != nil {
		return false
	}
	defer f.Close()
	want := firstProgram()
	b, err := io.ReadAll(io.LimitReader(f, int64(len(want))+1))
	return err == nil && bytes.Equal(b, want) && !isFirst(pid)
}
