//go:build !linux

package spool

import "github.com/tend-run/tend/process"

// CreateDir, OpenStream and Punch are the keeper's, which runs on Linux only.
func CreateDir(string, process.ID) (string, error)   { return "", process.ErrUnsupported }
func OpenStream(string, process.Stream) (int, error) { return -1, process.ErrUnsupported }
func Punch(int, int64, int64) error                  { return process.ErrUnsupported }
