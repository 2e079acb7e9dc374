//go:build !linux

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OpenRoot is for Linux only.
func OpenRoot(*os.File, uint32) (*Root, error) {
	return nil, fmt.Errorf("the files of a sandbox need Linux: %w", errors.ErrUnsupported)
}

// OpenOwnRoot is for Linux only.
func OpenOwnRoot(dir *os.File) (*Root, error) { return OpenRoot(dir, 0) }

func (r *Root) open(*Actor, string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

func (r *Root) isForeign(int) bool { return true }

func (r *Root) shift(fs.FileInfo) {}

type stamp struct{}

func (r *Root) stampOf(string) stamp { return stamp{} }

func (r *Root) readAccounts(string) string { return "" }

func (a *Actor) removeTree(*handle, string) error { return errors.ErrUnsupported }
