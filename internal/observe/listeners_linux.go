package observe

import (
	"os"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/lib/sockdiag"
)

// listeners returns the TCP sockets that listen in the network namespace of a process, ns;
// a port other than 0 is the only one that is asked for.
//
// The tables in /proc/net hold the connections too: to make one, the kernel walks through
// its whole table of connections, which is milliseconds of a big machine. So they are read
// only where the sockets cannot be asked for by netlink: without the right to
// enter the namespace.
func listeners(pid int, ns string, port uint16) (all []sockdiag.Socket) {
	if all, err := ask(pid, ns, port); err == nil {
		return all
	}
	return inTables(pid, port)
}

// inTables reads them in /proc.
func inTables(pid int, port uint16) (all []sockdiag.Socket) {
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		f, err := os.Open(procfs.Path(pid, name))
		if err != nil {
			continue // no IPv6, or the process is gone
		}
		for s, err := range sockdiag.Table(f) {
			if err == nil && s.State == sockdiag.Listen && s.Inode != 0 && (port == 0 || s.Local.Port() == port) {
				all = append(all, s)
			}
		}
		f.Close()
	}
	return all
}

// ask asks by netlink.
func ask(pid int, ns string, port uint16) ([]sockdiag.Socket, error) {
	open := func() (*sockdiag.Conn, error) { return sockdiag.OpenIn(procfs.Path(pid, "ns/net")) }
	if own, err := os.Readlink("/proc/self/ns/net"); err == nil && own == ns {
		open = sockdiag.Open
	}
	c, err := open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Listening(port)
}
