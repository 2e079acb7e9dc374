//go:build !linux

package unpack

import (
	"context"
	"errors"
	"io"
)

// Layer is for Linux alone.
func Layer(context.Context, io.Reader, string, Options) (Result, error) {
	return Result{}, errors.ErrUnsupported
}

// View is for Linux alone.
type View struct{}

// OpenView is for Linux alone.
func OpenView([]string) (*View, error) { return nil, errors.ErrUnsupported }

func (*View) Close()                                 {}
func (*View) ReadFile(string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func (*View) IsDir(string) bool                      { return false }

// MakeDir is for Linux alone.
func MakeDir(context.Context, string, []string, string) error { return errors.ErrUnsupported }
