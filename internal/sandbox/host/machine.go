package host

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// Machine is this machine as one sandbox that was there before, and that nobody
// ends: where requests go that name no sandbox.
type Machine struct {
	processes process.Manager
	users     files.Machine
	own       func() (files.User, error)
}

var _ driver.Access = (*Machine)(nil)

// NewMachine returns this machine with the processes of a manager.
func NewMachine(m process.Manager) *Machine {
	return &Machine{processes: m, own: sync.OnceValues(func() (files.User, error) { return files.Lookup("") })}
}

// Processes implements driver.Access.
func (m *Machine) Processes() process.Manager { return m.processes }

// User implements driver.Access.
func (m *Machine) User(name string) (files.User, error) {
	if name == "" {
		return m.own()
	}
	return m.users.User(name)
}

// Files implements driver.Access. Relative paths start at the user's home.
func (m *Machine) Files(user, dir string) (driver.Files, error) {
	u, err := m.User(user)
	return filesOf(u, err, dir)
}

// filesOf are the files of this machine for a user who was found without error.
func filesOf(u files.User, err error, dir string) (driver.Files, error) {
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	return files.FS{User: u, Workdir: dir}, nil
}

// Dial implements driver.Access.
func (m *Machine) Dial(ctx context.Context, port int) (net.Conn, error) { return dial(ctx, port) }

// dial connects to a port of this machine.
func dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, &driver.InvalidError{Field: "port", Reason: fmt.Sprintf("is %d; 1 to 65535 are allowed", port)}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		return c, nil
	}
	// Some servers listen on the IPv6 loopback alone.
	if c, err6 := d.DialContext(ctx, "tcp", net.JoinHostPort("::1", strconv.Itoa(port))); err6 == nil {
		return c, nil
	}
	return nil, err
}
