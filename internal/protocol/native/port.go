package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/internal/lib/netpipe"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// dialTime bounds how long a port inside may take to answer.
const dialTime = 10 * time.Second

// MaxPorts is how many connections to ports inside there are at a time.
const MaxPorts = 4096

// ports carries TCP connections into sandboxes: tendpb.DialPath.
type ports struct {
	driver driver.Driver // nil: there are none
	write  *connect.ErrorWriter
	most   int // how many connections there may be at a time

	mu    sync.Mutex
	over  bool                  // no more are carried; guarded by mu
	open  int                   // requests that are served; guarded by mu
	conns map[net.Conn]struct{} // of clients, once they are taken over; guarded by mu
	wg    sync.WaitGroup        // one for each of conns
}

func newPorts(d driver.Driver) *ports {
	return &ports{driver: d, write: connect.NewErrorWriter(), most: MaxPorts, conns: map[net.Conn]struct{}{}}
}

// ServeHTTP takes the connection over.
func (p *ports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.serve(w, r); err != nil {
		_ = p.write.Write(w, r, err) // fails when the client has left
	}
}

// serve returns an error as long as it can be answered.
func (p *ports) serve(w http.ResponseWriter, r *http.Request) error {
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), tendpb.DialProtocol) {
		w.Header().Set("Upgrade", tendpb.DialProtocol)
		return wireError(&process.InvalidError{Field: "Upgrade", Reason: fmt.Sprintf("is %.40q over %s; %q over HTTP/1.1 is needed",
			r.Header.Get("Upgrade"), r.Proto, tendpb.DialProtocol)})
	}
	q := r.URL.Query()
	port, err := strconv.ParseUint(q.Get("port"), 10, 16)
	if err != nil || port == 0 {
		return wireError(&process.InvalidError{Field: "port", Reason: fmt.Sprintf("is %.20q; 1 to 65535 are allowed", q.Get("port"))})
	}
	if err := p.begin(); err != nil {
		return err
	}
	defer p.end()
	key := q.Get("sandbox")
	sandbox, err := find(r.Context(), p.driver, key)
	if err != nil {
		return wireError(err)
	}
	dialing, cancel := context.WithTimeout(r.Context(), dialTime)
	defer cancel()
	inside, err := sandbox.Dial(dialing, int(port))
	if err != nil {
		return notDialed(key, int(port), err)
	}
	defer inside.Close()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return wireError(err)
	}
	defer conn.Close()
	if !p.track(conn) {
		return nil
	}
	defer p.leave(conn)
	_ = conn.SetDeadline(time.Time{}) // net/http set some of its own; an error shows in the first write
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tendpb.DialProtocol+
		"\r\n\r\n"); err != nil {
		return nil
	}
	if n := rw.Reader.Buffered(); n > 0 { // the client did not wait for the answer
		ahead, err := rw.Reader.Peek(n)
		if err == nil {
			_, err = inside.Write(ahead)
		}
		if err != nil {
			return nil
		}
	}
	netpipe.Join(conn, inside)
	return nil
}

// notDialed is the error about a port that cannot be reached.
func notDialed(key string, port int, err error) error {
	for _, known := range []error{driver.ErrNotFound, driver.ErrStopped, driver.ErrPaused, driver.ErrUnsupported} {
		if errors.Is(err, known) {
			return wireError(err)
		}
	}
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("port %d of sandbox %q: %w; start a program there that listens on it",
		port, key, err))
}

// begin notes a request, as long as there may be one more.
func (p *ports) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return connect.NewError(connect.CodeUnavailable, errors.New("the server ends; connect again"))
	}
	if p.open >= p.most {
		return wireError(fmt.Errorf("%d connections to ports are open, and no more may be; close some: %w", p.open, process.ErrLimit))
	}
	p.open++
	return nil
}

func (p *ports) end() {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
}

// track notes a connection that is to be cut at the end of the server. false: that is now.
func (p *ports) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.conns[c] = struct{}{}
	p.wg.Add(1)
	return true
}

func (p *ports) leave(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	p.wg.Done()
}

// streams is how many connections are carried.
func (p *ports) streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// close cuts all connections.
func (p *ports) close() {
	p.mu.Lock()
	p.over = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
