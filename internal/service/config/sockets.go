package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// MaxSockets bounds the sockets of a service.
const MaxSockets = 32

// Of a service with sockets, until it has become its command: it is tend itself.
const (
	minSocketPids   = 32
	minSocketMemory = Size(32 << 20)
)

// Sockets are listening sockets in the order of the file.
type Sockets []Socket

// Socket is a listening socket that stays open from one run of a service to the next.
type Socket struct {
	Name   string
	Listen Listen
}

// Listen is where a socket listens: IP:PORT, or unix:PATH; "": nowhere.
type Listen string

// unixPrefix begins the address of a unix socket.
const unixPrefix = "unix:"

// maxUnixPath is the kernel's bound, in bytes.
const maxUnixPath = 107

func (l *Listen) parse(text string) error {
	if path, ok := strings.CutPrefix(text, unixPrefix); ok {
		path = strings.TrimPrefix(path, "//") // as in a URL
		switch {
		case path == "" || strings.HasSuffix(path, "/"):
			return fmt.Errorf("is %q, which names no file; write unix:/run/web.sock, or unix:web.sock below cwd", text)
		case strings.HasPrefix(path, "@"):
			return errors.New("has no file (it begins with @); everybody on the machine could connect: use a file")
		}
		*l = Listen(unixPrefix + filepath.Clean(path))
		return l.bounded()
	}
	port, everywhere := strings.CutPrefix(text, "*:")
	switch {
	case everywhere:
		return fmt.Errorf("is %q; write 0.0.0.0:%s for all addresses of IPv4, or [::]:%s for those of IPv6, too", text, port, port)
	case strings.ContainsRune(text, '/'):
		return fmt.Errorf("is %q, which has a slash; write unix:/run/web.sock for a file, and 127.0.0.1:3000 without http:// or a path for a port", text)
	}
	host, port, err := splitAddress(text)
	if err != nil {
		return err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	at, err := netip.ParseAddrPort(host + ":" + port)
	if err != nil {
		return fmt.Errorf("is %q, which is no address; write 127.0.0.1:3000, [::1]:3000, 0.0.0.0:3000 or unix:/run/web.sock", text)
	}
	if at.Addr().IsMulticast() {
		return fmt.Errorf("is %q; nobody can connect to a multicast address", text)
	}
	*l = Listen(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String())
	return nil
}

// Path returns the file of a unix socket; "": it is none.
func (l Listen) Path() string {
	path, ok := strings.CutPrefix(string(l), unixPrefix)
	if !ok {
		return ""
	}
	return path
}

func (l Listen) bounded() error {
	if n := len(l.Path()); n > maxUnixPath {
		return fmt.Errorf("is a path of %d bytes; the kernel's limit for a unix socket is %d", n, maxUnixPath)
	}
	return nil
}

// sockets reads addresses by name, in the order of the file.
func (d *decoder) sockets(n ast.Node, to *Sockets) {
	all, ok := d.entries(n, "a mapping of names to addresses")
	if !ok {
		return
	}
	if len(all) > MaxSockets {
		d.fail(n, fmt.Sprintf("has %d entries; the limit is %d", len(all), MaxSockets))
		return
	}
	for _, e := range all {
		d.at(e.key, func() {
			if why := badName(e.key, "socket"); why != "" {
				d.fail(e.node, why)
				return
			}
			d.notePlace(e.val)
			s := Socket{Name: e.key}
			d.word(d.plain(e.val), reflect.ValueOf(&s.Listen).Elem(), reflect.StructField{})
			*to = append(*to, s)
		})
	}
}

// checkSockets finds what is wrong with sockets that are each right for themselves.
func (d *decoder) checkSockets(c *Config) {
	users := map[Listen]string{}
	for _, name := range c.Names() {
		s, at := c.Services[name], "services."+name
		for _, one := range s.Sockets {
			path := at + ".sockets." + one.Name
			if one.Listen == "" {
				continue // that was said
			}
			if other := users[one.Listen]; other != "" && (one.Listen.Path() == "" || filepath.IsAbs(one.Listen.Path())) {
				d.failAt(path, fmt.Sprintf("is %s, which is that of %s, too; an address has one socket", one.Listen, other))
			}
			users[one.Listen] = path
		}
		if len(s.Sockets) == 0 {
			continue
		}
		if n := s.Limits.Pids; n > 0 && n < minSocketPids {
			d.failAt(at+".limits.pids", fmt.Sprintf("is %d; a service with sockets begins as tend, which needs up to %d threads", n, minSocketPids))
		}
		if n := s.Limits.Memory; n > 0 && n < minSocketMemory {
			d.failAt(at+".limits.memory", fmt.Sprintf("is %v; a service with sockets begins as tend, which needs up to %v", n, minSocketMemory))
		}
	}
}

// placeSockets makes the paths of a service's sockets absolute.
func (d *decoder) placeSockets(s *Service) {
	for i := range s.Sockets {
		one := &s.Sockets[i]
		path := one.Listen.Path()
		if path == "" {
			continue
		}
		one.Listen = Listen(unixPrefix + below(s.Cwd, path))
		if err := one.Listen.bounded(); err != nil {
			d.failAt("services."+s.Name+".sockets."+one.Name, err.Error())
		}
	}
}
