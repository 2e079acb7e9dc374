package network

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// world has two networks that tests made: outside, which stands for the machine, and an
// internet that it is connected to. Nothing of it touches the machine's own network.
type world struct {
	t         *testing.T
	outside   *Space
	internet  *Space
	host      *Host
	nameserve *nameserver
}

const (
	hostAddr   = "203.0.113.1" // of outside
	dnsAddr    = "203.0.113.2" // of the internet, as those below
	goodAddr   = "203.0.113.3"
	evilAddr   = "203.0.113.4"
	sharedAddr = "203.0.113.5" // of several names
	metadata   = "169.254.169.254"
	host6      = "2001:db8:1::1"
	good6      = "2001:db8:1::3"
)

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	proctest.Root(t)
	w := &world{t: t, outside: space(t), internet: space(t)}
	proctest.Must(t, w.outside.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out"}, PeerName: "in"}); err != nil {
			return err
		}
		peer, err := netlink.LinkByName("in")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetNsFd(peer, int(w.internet.ns.Fd())); err != nil {
			return err
		}
		return addresses("out", hostAddr+"/24", host6+"/64")
	}))
	proctest.Must(t, w.internet.Do(func() error {
		return addresses("in", dnsAddr+"/24", goodAddr+"/32", evilAddr+"/32", sharedAddr+"/32", metadata+"/32", "2001:db8:1::2/64", good6+"/128")
	}))
	proctest.Must(t, w.outside.Do(func() error { // all else is there
		out, err := netlink.LinkByName("out")
		if err != nil {
			return err
		}
		return errorsJoin(
			netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: net.ParseIP(dnsAddr)}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: net.ParseIP("2001:db8:1::2")}),
		)
	}))
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	proctest.Must(t, os.WriteFile(conf, []byte("search test\nnameserver "+dnsAddr+"\n"), 0o644))
	cfg := Config{Outside: w.outside, ResolvConf: conf}
	if change != nil {
		change(&cfg)
	}
	w.host = NewHost(cfg)
	w.host.sniff = time.Second
	w.nameserve = w.serveNames()
	return w
}

func errorsJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func addresses(link string, all ...string) error {
	for _, name := range []string{"lo", link} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		if name == "lo" {
			continue
		}
		for _, s := range all {
			a, err := netlink.ParseAddr(s)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(l, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// space is a namespace that ends with the test.
func space(t *testing.T) *Space {
	t.Helper()
	s, err := scratch()
	proctest.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// sandbox is the network of one.
type sandbox struct {
	*Space
	proxy *Proxy
}

func (w *world) sandbox(allow, deny []string) *sandbox {
	w.t.Helper()
	policy, err := ParsePolicy(allow, deny)
	proctest.Must(w.t, err)
	s, err := scratch()
	proctest.Must(w.t, err)
	inside := proctest.Value(OpenSpace("/proc/self/fd/" + strconv.Itoa(int(s.ns.Fd()))))(w.t) // the proxy takes the other over
	p, err := w.host.Open(s, policy)
	proctest.Must(w.t, err)
	w.t.Cleanup(func() { p.Close(); inside.Close() })
	return &sandbox{inside, p}
}

// listen serves TCP connections in a space.
func (w *world) listen(s *Space, addr string, serve func(net.Conn)) string {
	w.t.Helper()
	var l net.Listener
	proctest.Must(w.t, s.Do(func() (err error) { l, err = net.Listen("tcp", addr); return err }))
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(c)
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// says answers everything with its own name.
func says(name string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := io.WriteString(c, name); err == nil {
			io.Copy(io.Discard, c)
		}
	}
}

// echo sends back what comes.
func echo(c net.Conn) { io.Copy(c, c) }

// webs says its name to HTTP requests.
func webs(name string) func(net.Conn) {
	return func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			body := name + " " + r.Host
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
		}
	}
}

// secure says its name over TLS.
func secure(t *testing.T, name string) func(net.Conn) {
	key := proctest.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der := proctest.Value(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key))(t)
	cfg := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return func(c net.Conn) {
		s := tls.Server(c, cfg)
		if s.Handshake() == nil {
			io.WriteString(s, name)
			s.CloseWrite()
		}
	}
}

// dial connects from inside.
func (s *sandbox) dial(t *testing.T, to string) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := s.Dial(ctx, netip.MustParseAddrPort(to))
	if err == nil {
		t.Cleanup(func() { c.Close() })
		proctest.Must(t, c.SetDeadline(time.Now().Add(2*time.Minute)))
	}
	return c, err
}

// hears is what a connection from inside gets to read, to its end or to a number of
// bytes. An error is "".
func (s *sandbox) hears(t *testing.T, to string, n int) string {
	t.Helper()
	c, err := s.dial(t, to)
	if err != nil {
		return ""
	}
	b := make([]byte, n)
	n, err = io.ReadFull(c, b)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Errorf("%s is silent", to)
	}
	return string(b[:n])
}

// get is the answer to an HTTP request from inside; "": it was cut.
func (s *sandbox) get(t *testing.T, to, hostHeader string) string {
	t.Helper()
	c, err := s.dial(t, to)
	if err != nil {
		return ""
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+hostHeader+"\r\nConnection: close\r\n\r\n"); err != nil {
		return ""
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(res.Body)
	return string(b)
}

// handshake is what is heard over TLS with a server name; "": it was cut.
func (s *sandbox) handshake(t *testing.T, to, name string) string {
	t.Helper()
	c, err := s.dial(t, to)
	if err != nil {
		return ""
	}
	defer c.Close()
	tc := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	b, _ := io.ReadAll(tc)
	return string(b)
}

// lookup asks a resolver from inside.
func (s *sandbox) lookup(t *testing.T, at, name string) ([]netip.Addr, error) {
	t.Helper()
	r := &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		to := netip.MustParseAddrPort(at)
		if strings.HasPrefix(network, "udp") {
			return s.DialUDP(to)
		}
		return s.Dial(ctx, to)
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return r.LookupNetIP(ctx, "ip4", name)
}

// nameserver answers for names of a table.
type nameserver struct {
	mu    sync.Mutex
	addrs map[string][]string // guarded by mu
	alias map[string]string   // guarded by mu
	asked []string            // guarded by mu
}

func (n *nameserver) set(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs[name] = addrs
}

func (n *nameserver) questions() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.asked, " ")
}

func (n *nameserver) answer(msg []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(msg) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, name)
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	at := q.Name
	if to := n.alias[name]; to != "" {
		next := dnsmessage.MustNewName(to + ".")
		out.Answers = append(out.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: at, Class: q.Class, TTL: 1}, Body: &dnsmessage.CNAMEResource{CNAME: next}})
		name, at = to, next
	}
	addrs, there := n.addrs[name]
	if !there {
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		h := dnsmessage.ResourceHeader{Name: at, Class: q.Class, TTL: 1}
		if a.Is4() && q.Type == dnsmessage.TypeA {
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		} else if a.Is6() && q.Type == dnsmessage.TypeAAAA {
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, _ := out.Pack()
	return b
}

func (w *world) serveNames() *nameserver {
	n := &nameserver{addrs: map[string][]string{
		"good.test": {goodAddr, good6}, "evil.test": {evilAddr}, "allowed.test": {sharedAddr}, "neighbour.test": {sharedAddr},
		"evil.test.allowed.test": {evilAddr}, "notallowed.test": {evilAddr}, "xn--bcher-kva.test": {goodAddr},
	}, alias: map[string]string{"alias.test": "evil.test"}}
	var c net.PacketConn
	proctest.Must(w.t, w.internet.Do(func() (err error) { c, err = net.ListenPacket("udp", dnsAddr+":53"); return err }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			k, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if out := n.answer(b[:k]); out != nil {
				c.WriteTo(out, from)
			}
		}
	}()
	w.t.Cleanup(func() { c.Close(); <-done })
	w.listen(w.internet, dnsAddr+":53", func(c net.Conn) {
		for {
			msg, err := readMessage(c)
			if err != nil || writeMessage(c, n.answer(msg)) != nil {
				return
			}
		}
	})
	return n
}
