//go:build !linux

package disk

import (
	"errors"
	"os"
)

// Mount is the filesystem of a file, mounted nowhere.
type Mount struct{}

// Able is errors.ErrUnsupported here, as are all.
func Able() error { return errors.ErrUnsupported }

func Open(string) (*Mount, error)         { return nil, errors.ErrUnsupported }
func Lock(string) (*os.File, bool, error) { return nil, false, errors.ErrUnsupported }
func (m *Mount) Take() int                { return -1 }
func (m *Mount) Path() string             { return "" }
func (m *Mount) Close() error             { return errors.ErrUnsupported }
