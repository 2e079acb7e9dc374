//go:build !linux

package files

import (
	"errors"
	"os"
	"path/filepath"
)

func openHandle(path string, follow bool) (*handle, error) {
	if !follow {
		if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSymlink != 0 {
			return nil, errors.Join(err, errors.ErrUnsupported)
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &handle{file: file}, nil
}

func handleFlags(bool) int { return 0 }

// openThrough opens the path through all links.
func openThrough(path string, flags int, mode uint32) (*os.File, error) {
	return os.OpenFile(path, flags, os.FileMode(mode))
}

func (h *handle) self() string { return h.file.Name() }

func (h *handle) at(name string) string { return filepath.Join(h.file.Name(), name) }

func (h *handle) link() (string, error) { return os.Readlink(h.file.Name()) }

func (h *handle) real() (string, error) { return filepath.EvalSymlinks(h.file.Name()) }

// isPseudo knows Linux's file systems only.
func (h *handle) isPseudo() (bool, error) { return false, nil }
