package envd

import (
	"net"
	"sync"
)

// hangups notifies the streams on taken-over connections when their client has
// left. net/http keeps a goroutine for this on each connection; here one
// goroutine does it for all.
type hangups struct {
	mu   sync.Mutex
	next uint64              // guarded by mu
	live map[uint64]*watched // guarded by mu
	poll poller
	wg   sync.WaitGroup
	open bool // guarded by mu: poll runs
}

type watched struct {
	conn net.Conn
	left func() // called once, from the poller
}

// add calls left when the peer of conn closes its side. The token ends it.
func (h *hangups) add(conn net.Conn, left func()) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		if err := h.poll.start(h); err != nil {
			return 0, err
		}
		h.open = true
		h.live = map[uint64]*watched{}
	}
	h.next++
	token := h.next
	h.live[token] = &watched{conn: conn, left: left}
	if err := h.poll.add(conn, token); err != nil {
		delete(h.live, token)
		return 0, err
	}
	return token, nil
}

// remove ends the watch. left may still be running when it returns.
func (h *hangups) remove(token uint64) {
	h.mu.Lock()
	w := h.live[token]
	delete(h.live, token)
	h.mu.Unlock()
	if w != nil {
		h.poll.remove(w.conn)
	}
}

// hungUp is called by the poller.
func (h *hangups) hungUp(token uint64) {
	h.mu.Lock()
	w := h.live[token]
	h.mu.Unlock()
	if w != nil {
		w.left()
	}
}

// closeAll closes the connections that are still watched.
func (h *hangups) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.live {
		w.conn.Close()
	}
}

// stop ends the poller. No stream may be running any more.
func (h *hangups) stop() {
	h.mu.Lock()
	open := h.open
	h.open = false
	h.mu.Unlock()
	if open {
		h.poll.stop()
		h.wg.Wait()
	}
}
