//go:build !linux

package files

import "os"

// readNow: see [handle.isPseudo].
func readNow(path string) ([]byte, error) { return os.ReadFile(path) }
