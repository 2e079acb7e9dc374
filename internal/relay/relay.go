// Package relay joins two connections.
package relay

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
	wg.Go(func() { half(a, b) })
	half(b, a)
	wg.Wait()
}

// half copies one direction to its end and passes the end on.
func half(to, from net.Conn) {
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
