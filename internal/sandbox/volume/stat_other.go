//go:build !linux

package volume

import (
	"io/fs"
	"time"
)

// There are no sandboxes, and so no volumes.
const noWait, onlyDir = 0, 0

func more(info fs.FileInfo) (uid, gid uint32, accessed, changed time.Time) {
	return nobody, nobody, info.ModTime(), info.ModTime()
}
