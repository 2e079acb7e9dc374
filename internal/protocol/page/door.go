package page

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// Door is a port of this machine's loopback address for the page alone, for a daemon that listens on
// no TCP port. The server answers on it what the page needs, and only with a login of the page,
// whether the daemon has a token or not ([module.AtDoor]). It is opened when somebody first
// asks for the page, and again by each later server at the same port, so that a page that is open
// goes on.
type Door struct {
	file string

	mu    sync.Mutex
	serve func(net.Listener) // guarded by mu
	open  net.Listener       // guarded by mu; nil: closed
}

// NewDoor returns a closed one. file remembers its port: an absolute path.
func NewDoor(file string) *Door { return &Door{file: file} }

// Open opens the door, if it is closed, and returns its URL.
func (d *Door) Open() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		port := d.port()
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil && port != "0" { // somebody else has it now
			l, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return "", fmt.Errorf("a port for the page: %w", err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		if err := atomicfile.File(d.file, []byte(port+"\n"), 0o600); err != nil {
			l.Close()
			return "", fmt.Errorf("a port for the page: %w", err)
		}
		d.open = l
		if d.serve != nil {
			d.serve(l)
		}
	}
	return "http://" + d.open.Addr().String(), nil
}

// port is that of before; "0": any.
func (d *Door) port() string {
	data, err := atomicfile.Read(d.file, 64)
	if n, nerr := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 16); err == nil && nerr == nil {
		return strconv.FormatUint(n, 10)
	}
	return "0"
}

// Serve sets what serves the door, which must return at once, and opens it if it was open before.
// That it cannot be opened is told when somebody asks for the page.
func (d *Door) Serve(serve func(net.Listener)) {
	d.mu.Lock()
	d.serve = serve
	l := d.open
	d.mu.Unlock()
	if l != nil {
		serve(l)
	} else if d.port() != "0" {
		_, _ = d.Open()
	}
}

// Close closes it for this server; a later one opens it again.
func (d *Door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serve = nil
	if d.open == nil {
		return nil
	}
	err := d.open.Close()
	d.open = nil
	return err
}
