//go:build !linux

package files

import "os"

// Metadata is kept on Linux only.
func readMetadata(way) map[string]string { return nil }

func writeMetadata(*os.File, map[string]string) error { return nil }
