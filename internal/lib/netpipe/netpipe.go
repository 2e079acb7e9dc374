// Package netpipe joins two connections.
package netpipe

import (
	"io"
	"net"
	"sync"
)

// Join copies what comes from each connection to the other, until both directions
// have ended. The end of one direction is passed on, and an error ends both. It closes
// neither connection for good: the caller does, when Join has returned.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { Half(a, b) })
	Half(b, a)
	wg.Wait()
}

// Half copies one direction to its end and passes the end on. An error ends both
// connections.
func Half(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if h, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = h.CloseWrite() // the other end may be gone already
		return
	}
	// A stream of yamux closes one direction with Close; after an error all is over.
	to.Close()
	if err != nil {
		from.Close()
	}
}
