//go:build !linux

package server

import (
	"errors"
	"net"
)

// peerUID: not asked for on this system, so that a unix socket needs the token.
func peerUID(*net.UnixConn) (uid int, err error) {
	return -1, errors.ErrUnsupported
}
