//go:build !linux

package envd

import (
	"errors"
	"net"
)

// poller exists on Linux only. Elsewhere connections are not taken over, and
// net/http reports when a client leaves.
type poller struct{}

func (*poller) start(*hangups) error       { return errors.ErrUnsupported }
func (*poller) add(net.Conn, uint64) error { return errors.ErrUnsupported }
func (*poller) remove(net.Conn)            {}
func (*poller) stop()                      {}

const canWatch = false
