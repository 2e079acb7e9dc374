//go:build !linux

package sockets

import (
	"fmt"

	"github.com/tend-run/tend/process"
)

var errOther = fmt.Errorf("sockets are held for services on Linux alone: %w", process.ErrUnsupported)

func hold(string) error { return errOther }

func become(string, string, []string, []string) (int, error) { return NoSockets, errOther }

// Hold reports process.ErrUnsupported.
func Hold(string, int, []Socket) error { return errOther }
