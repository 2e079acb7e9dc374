//go:build !linux

package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
)

// Layer is for Linux alone.
func Layer(context.Context, io.Reader, string, Options) (Result, error) {
	return Result{}, errors.ErrUnsupported
}

// Tar is for Linux alone.
func Tar(context.Context, string, io.Writer) error { return errors.ErrUnsupported }

// View is for Linux alone.
type View struct{}

// OpenView is for Linux alone.
func OpenView([]string) (*View, error) { return nil, errors.ErrUnsupported }

func (*View) Close()                                 {}
func (*View) ReadFile(string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func (*View) IsDir(string) bool                      { return false }
func (*View) Lstat(string) (*tar.Header, error)      { return nil, errors.ErrUnsupported }
func (*View) List(string) ([]string, error)          { return nil, errors.ErrUnsupported }
func (*View) Open(string) (*os.File, error)          { return nil, errors.ErrUnsupported }

// MakeDir is for Linux alone.
func MakeDir(context.Context, string, []string, string) error { return errors.ErrUnsupported }
