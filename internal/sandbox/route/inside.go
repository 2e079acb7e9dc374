package route

import (
	"context"
	"net"
	"sync"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// EnvdPort is where clients of envd's protocol find it in each sandbox, programs inside
// by localhost.
const EnvdPort = 49983

// CodePort is where E2B's clients find the code interpreter, in the same way.
const CodePort = 49999

type insideKey struct{}

type inside struct {
	id   driver.ID
	port int
}

// WithInside marks the requests of a connection from inside a sandbox, to one of the server's ports there. They are for
// that sandbox and port, whatever their names and headers say.
func WithInside(ctx context.Context, id driver.ID, port int) context.Context {
	return context.WithValue(ctx, insideKey{}, inside{id, port})
}

// Inside returns the sandbox that a request comes from; "": from outside of all.
func Inside(ctx context.Context) driver.ID {
	in, _ := ctx.Value(insideKey{}).(inside)
	return in.id
}

// insidePort is the port that it has connected to.
func insidePort(ctx context.Context) int {
	in, _ := ctx.Value(insideKey{}).(inside)
	return in.port
}

// Doors passes listening sockets inside sandboxes from the driver to the server, which
// begins later. The zero value is ready.
type Doors struct {
	mu    sync.Mutex
	serve func(driver.ID, net.Listener) // guarded by mu
	early []func()                      // guarded by mu
}

// Open has connections to a listener served as of that sandbox, until the listener is
// closed. It does not wait.
func (d *Doors) Open(id driver.ID, l net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serve == nil {
		d.early = append(d.early, func() { d.serve(id, l) })
		return
	}
	d.serve(id, l)
}

// Serve sets what serves a listener; it must return at once. When the server has ended,
// that is what closes it.
func (d *Doors) Serve(serve func(driver.ID, net.Listener)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serve = serve
	for _, open := range d.early {
		open()
	}
	d.early = nil
}
