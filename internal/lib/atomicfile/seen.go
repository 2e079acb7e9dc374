package atomicfile

import (
	"io/fs"
	"os"
	"time"
)

// settles is above the tick of the clock of each file system (FAT: 2 s).
const settles = 3 * time.Second

// Seen is the version of a file that was read: its inode, size and time. The zero value is
// of none.
type Seen struct{ info fs.FileInfo }

// Look is the version that is there now, for [Seen.Same]. A file that is younger than 3 s
// counts as none: it may be replaced twice within one tick of the file system's clock, and
// the second file have the inode and the time of the first, and often its size.
func Look(path string) (Seen, error) {
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()).Abs() < settles {
		return Seen{}, err
	}
	return Seen{info}, nil
}

// Same reports whether two looks were at the same version; of none, they were not.
func (s Seen) Same(as Seen) bool {
	return s.info != nil && as.info != nil && os.SameFile(s.info, as.info) && s.info.ModTime().Equal(as.info.ModTime()) &&
		s.info.Size() == as.info.Size()
}
