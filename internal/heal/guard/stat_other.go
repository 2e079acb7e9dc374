//go:build !unix

package guard

import (
	"io/fs"
	"os"
)

const (
	openFlags     = 0
	waitForNobody = 0
)

func links(fs.FileInfo) uint64 { return 1 }

func giveTo(*os.File, fs.FileInfo) error { return nil }
