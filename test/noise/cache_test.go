//go:build linux

package noise

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What fills the page cache: files of this size, at most so many, and never more than a
// twentieth of what is free on the disk.
const (
	fileSize  = 64 << 20
	mostFiles = 32
)

func cores() int { return runtime.NumCPU() }

// fillCache writes files and reads them again and again, and removes them.
func (n *noisy) fillCache(d time.Duration) {
	dir := proctest.Value(os.MkdirTemp("", "tend-noise-cache-"))(n.t)
	defer os.RemoveAll(dir)
	var fs unix.Statfs_t
	proctest.Must(n.t, unix.Statfs(dir, &fs))
	most := min(mostFiles, int(int64(fs.Bavail)*fs.Bsize/20/fileSize))
	piece := make([]byte, 1<<20)
	for end, at := time.Now().Add(d), 0; time.Now().Before(end) && most > 0; at++ {
		path := filepath.Join(dir, strconv.Itoa(at%most))
		if at < most {
			f := proctest.Value(os.Create(path))(n.t)
			for range fileSize / len(piece) {
				proctest.Value(f.Write(piece))(n.t)
			}
			proctest.Must(n.t, f.Close())
			continue
		}
		f := proctest.Value(os.Open(path))(n.t)
		proctest.Value(io.CopyBuffer(io.Discard, struct{ io.Reader }{f}, piece))(n.t)
		proctest.Must(n.t, f.Close())
	}
}
