//go:build !linux

package distant

import "io/fs"

func timesOf(fs.FileInfo) fileTimes { return fileTimes{-1, -1} }
