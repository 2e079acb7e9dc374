//go:build !linux

package local

import (
	"context"
	"errors"
	"io/fs"
	"net"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/network"
)

func supported() error {
	return &driver.UnsupportedError{Field: "isolation", Reason: "sandboxes that are isolated need Linux"}
}

var refusedDial = errors.ErrUnsupported

func alive(container.Info) error                           { return errors.ErrUnsupported }
func openRoot(container.Info, uint32) (*files.Root, error) { return nil, errors.ErrUnsupported }
func openSpace(container.Info) (*network.Space, error)     { return nil, errors.ErrUnsupported }
func dial(context.Context, container.Info, int) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func spread(string) error { return nil }

func spaceOf(string) space         { return space{} }
func freeOf(string) (int64, error) { return 0, errors.ErrUnsupported }
func rootOf(container.Info) string { return "" }
func memoryOfMachine() int64       { return 0 }
func pidsOfMachine() int64         { return 0 }
func bootID() string               { return "" }
func isWhiteout(fs.FileInfo) bool  { return false }
func isOpaque(string) bool         { return false }
