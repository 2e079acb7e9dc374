package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatTheMachineReachesIsReachedFromInside(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":80", webs("web"))
	w.listen(w.internet, ":7", echo)
	s := w.sandbox(nil, nil)
	for _, resolver := range []string{dnsAddr + ":53", "8.8.8.8:53", "127.0.0.1:53", "127.0.0.53:53"} {
		if got, err := s.lookup(t, resolver, "good.test"); err != nil || len(got) != 1 || got[0].String() != goodAddr {
			t.Errorf("%s is asked for a name: %v, %v", resolver, got, err)
		}
	}
	for _, to := range []string{goodAddr + ":80", "[" + good6 + "]:80"} {
		if got := s.get(t, to, "good.test"); got != "web good.test" {
			t.Errorf("%s answers %q", to, got)
		}
	}
	c := proctest.Value(s.dial(t, goodAddr+":7"))(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		c.Write(big)
		c.(*net.TCPConn).CloseWrite() // the other direction continues
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes come back, %v", len(got), err)
	}
	if got := s.datagram(t, w, goodAddr, "hello"); got != "hello" {
		t.Errorf("a datagram comes back as %q", got)
	}
	if got := s.datagram(t, w, good6, "hello"); got != "hello" {
		t.Errorf("a datagram of IPv6 comes back as %q", got)
	}
	// What is inside stays inside.
	w.listen(s.Space, "127.0.0.1:8000", says("inside"))
	for _, to := range []string{"127.0.0.1:8000"} {
		if got := s.hears(t, to, 6); got != "inside" {
			t.Errorf("inside, %s says %q", to, got)
		}
	}
	w.listen(s.Space, "0.0.0.0:8001", says("inside"))
	if got := s.hears(t, own4+":8001", 6); got != "inside" {
		t.Errorf("inside, its own address says %q", got)
	}
}

// What goes out and comes back is counted: of a connection that is open, of one that has ended, and of datagrams.
func TestBytesAreCounted(t *testing.T) {
	w := newWorld(t, nil)
	s := w.sandbox(nil, nil)
	w.listen(w.internet, goodAddr+":7", echo)
	counts := func(what string, least int64) {
		t.Helper()
		for r, b := s.proxy.Bytes(); r < least || b < least; r, b = s.proxy.Bytes() {
			time.Sleep(5 * time.Millisecond) // the other end has yet to confirm them, or the proxy to see the end
		}
		if r, b := s.proxy.Bytes(); r < least || r > least+1 || b < least || b > least+2 { // the kernel counts a beginning and an end as one each
			t.Fatalf("%s: %d bytes received and %d sent; want %d", what, r, b, least)
		}
	}
	counts("nothing yet", 0)
	c := proctest.Value(s.dial(t, goodAddr+":7"))(t)
	b := make([]byte, 1000)
	proctest.Value(c.Write(b))(t)
	proctest.Value(io.ReadFull(c, b))(t)
	counts("an open connection", 1000)
	proctest.Value(c.Write(b[:10]))(t)
	proctest.Value(io.ReadFull(c, b[:10]))(t)
	proctest.Must(t, c.Close())
	counts("one that ends", 1010)
	for s.open() > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	counts("one that has ended", 1010)
	if got := s.datagram(t, w, evilAddr, "12345"); got != "12345" {
		t.Fatalf("the datagram came back as %q", got)
	}
	if after, _ := s.proxy.Bytes(); after < 1010+5 {
		t.Errorf("%d bytes received after a datagram of 5", after)
	}
}

// open counts the connections of the proxy.
func (s *sandbox) open() int {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	return len(s.proxy.conns)
}

// datagram sends one from inside to a place that sends it back.
func (s *sandbox) datagram(t *testing.T, w *world, addr, text string) string {
	t.Helper()
	var far net.PacketConn
	proctest.Must(t, w.internet.Do(func() (err error) { far, err = net.ListenPacket("udp", net.JoinHostPort(addr, "0")); return err }))
	defer far.Close()
	done := make(chan struct{})
	defer func() { far.Close(); <-done }()
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			n, from, err := far.ReadFrom(b)
			if err != nil {
				return
			}
			far.WriteTo(b[:n], from)
		}
	}()
	near := proctest.Value(s.DialUDP(netip.MustParseAddrPort(far.LocalAddr().String())))(t)
	defer near.Close()
	b := make([]byte, 2048)
	for range 400 { // datagrams may be lost, and a machine may stand still
		proctest.Value(near.Write([]byte(text)))(t)
		proctest.Must(t, near.SetReadDeadline(time.Now().Add(250*time.Millisecond)))
		if n, err := near.Read(b); err == nil {
			return string(b[:n])
		}
	}
	return ""
}

// TestTheMachineIsNeverReached: whatever the rules allow, and by whatever form of
// its address.
func TestTheMachineIsNeverReached(t *testing.T) {
	w := newWorld(t, nil)
	for _, at := range []string{"127.0.0.1:80", hostAddr + ":80", "[::1]:80", "[" + host6 + "]:80"} {
		w.listen(w.outside, at, says("machine"))
	}
	w.listen(w.internet, ":80", says("elsewhere")) // the metadata's address is there, too
	w.nameserve.set("rebind.test", hostAddr)
	w.nameserve.set("rebind-loop.test", "127.0.0.1")
	w.nameserve.set("rebind-metadata.test", metadata)
	neighbour := w.sandbox(nil, nil)
	w.listen(neighbour.Space, "0.0.0.0:80", says("neighbour"))
	for name, allow := range map[string][]string{
		"no rules": nil, "everything": {"*"}, "by name": {"rebind.test", "rebind-loop.test", "rebind-metadata.test", "*.test"},
		"by address": {"127.0.0.0/8", hostAddr, "169.254.0.0/16", "::/0", "0.0.0.0/1", "192.0.0.0/16", "0.0.0.0/8", "::ffff:0:0/96"},
	} {
		s := w.sandbox(allow, nil)
		for _, n := range []string{"rebind.test", "rebind-loop.test", "rebind-metadata.test"} {
			_, _ = s.lookup(t, "8.8.8.8:53", n)
		}
		for _, to := range []string{
			hostAddr + ":80", "[" + host6 + "]:80", "[::ffff:" + hostAddr + "]:80", metadata + ":80", "[::ffff:" + metadata + "]:80",
			"0.0.0.0:80", "127.0.0.1:80", "127.1.2.3:80", "[::1]:80", "[::]:80", "[64:ff9b::" + hostAddr + "]:80", "[64:ff9b::" + metadata + "]:80",
			"[64:ff9b::127.0.0.1]:80", "[2002:7f00:1::]:80", "[2002:a9fe:a9fe::1]:80", "[::127.0.0.1]:80", "[fd00:ec2::254]:80",
			"192.0.0.1:80", "192.0.0.3:80", "255.255.255.255:80", "203.0.113.255:80", "203.0.113.0:80", "224.0.0.1:80", "100.100.100.200:80",
			"127.0.0.1:1", own4 + ":1",
		} {
			if got := s.hears(t, to, 9); got != "" {
				t.Errorf("with %s, %s says %q", name, to, got)
			}
		}
		// The host of the request leads nowhere else.
		for _, h := range []string{"rebind.test", "rebind-loop.test", "rebind-metadata.test", "127.0.0.1", metadata, "localhost"} {
			if got := s.get(t, evilAddr+":81", h); got != "" {
				t.Errorf("with %s, a request for %s gets %q", name, h, got)
			}
		}
	}
	s := w.sandbox([]string{"*"}, nil)
	var far net.PacketConn
	proctest.Must(t, w.outside.Do(func() (err error) { far, err = net.ListenPacket("udp", hostAddr+":9999"); return err }))
	defer far.Close()
	near := proctest.Value(s.DialUDP(netip.MustParseAddrPort(hostAddr + ":9999")))(t)
	defer near.Close()
	proctest.Value(near.Write([]byte("x")))(t)
	if got := s.datagram(t, w, goodAddr, "after it"); got != "after it" { // it was looked at
		t.Errorf("datagrams come back as %q", got)
	}
	proctest.Must(t, far.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if n, from, err := far.ReadFrom(make([]byte, 9)); err == nil {
		t.Errorf("%d bytes reach the machine from %v", n, from)
	}
}

// TestAnOperatorOpensAndCloses: what the machine's own proxy is for.
func TestAnOperatorOpensAndCloses(t *testing.T) {
	reach := proctest.Value(ParseReach([]string{"127.0.0.1:3128", "127.0.0.1:3130", hostAddr + ":3129", hostAddr, "10.2.0.0/16", "*:81"}))(t)
	deny := proctest.Value(ParseDeny([]string{evilAddr, "private"}))(t)
	w := newWorld(t, func(c *Config) { c.Reach, c.Deny, c.Own = reach, deny, []uint16{3130} })
	for _, at := range []string{"127.0.0.1:3128", "127.0.0.1:3129", "127.0.0.1:3130", "127.0.0.1:81", hostAddr + ":81", hostAddr + ":3128", hostAddr + ":3129"} {
		w.listen(w.outside, at, says("machine"))
	}
	w.listen(w.internet, ":80", says("elsewhere"))
	w.listen(w.internet, ":81", says("elsewhere"))
	w.listen(w.internet, ":3130", says("elsewhere"))
	s := w.sandbox([]string{"*"}, nil)
	if got, err := s.lookup(t, "8.8.8.8:53", GatewayName); err != nil || len(got) != 1 || got[0].String() != Gateway {
		t.Errorf("%s is %v, %v", GatewayName, got, err)
	}
	for to, want := range map[string]string{
		Gateway + ":3128": "machine", Gateway + ":3129": "", hostAddr + ":3128": "", hostAddr + ":3129": "machine",
		goodAddr + ":80": "elsewhe", evilAddr + ":80": "", "10.1.2.3:80": "", "[64:ff9b::" + evilAddr + "]:80": "",
		evilAddr + ":81": "elsewhe", // what is wide opens what is denied, and not this machine
		Gateway + ":81":  "", hostAddr + ":81": "", metadata + ":81": "",
		Gateway + ":3130": "", goodAddr + ":3130": "elsewhe", // the daemon's own port
	} {
		if got := s.hears(t, to, 7); got != want {
			t.Errorf("%s says %q, want %q", to, got, want)
		}
	}
	if got := w.sandbox([]string{"good.test"}, nil).hears(t, Gateway+":3128", 7); got != "" {
		t.Errorf("a sandbox that may not go there hears %q", got)
	}
	if !w.host.reachable(netip.MustParseAddrPort("203.0.113.9:5")) || !w.host.reachable(netip.MustParseAddrPort("10.2.0.1:5")) || w.host.reachable(netip.MustParseAddrPort("10.3.0.1:5")) {
		t.Error("a part of what is denied is not opened alone")
	}
}

// TestRulesOfAnOperator: what is no rule, and what would open nothing.
func TestRulesOfAnOperator(t *testing.T) {
	refused := func(list, text string, parse func([]string) ([]Rule, error)) {
		t.Helper()
		_, err := parse([]string{"192.0.2.1", text})
		if wrong, ok := errors.AsType[*RuleError](err); !ok || wrong.List != list || wrong.Reason == "" {
			t.Errorf("%s of %q: %v", list, text, err)
		}
	}
	for _, text := range []string{"example.com", "*.x", "x:0", "", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3/8", "private:80"} {
		refused("reach", text, ParseReach)
		refused("deny", text, ParseDeny)
	}
	for _, text := range []string{
		"127.0.0.1", "127.0.0.0/8:80", "127.0.0.2:80", "[::1]:80", "::1", "::ffff:127.0.0.1", Gateway + ":80", own4, own6, "169.254.169.254", "169.254.0.0/16:80", "fe80::1", "224.0.0.0/4",
	} {
		refused("reach", text, ParseReach)
		proctest.Value(ParseDeny([]string{text}))(t)
	}
	proctest.Value(ParseReach([]string{"127.0.0.1:80", "[::ffff:127.0.0.1]:80", "169.254.169.254:80", "*", "*:443", "private", "10.0.0.0/8", "0.0.0.0/1", "fe00::/7"}))(t)
	many := strings.Split(strings.Repeat("192.0.2.1 ", MaxRules), " ")
	proctest.Value(ParseReach(many[:MaxRules]))(t)
	if _, err := ParseDeny(append(many[:MaxRules], "192.0.2.2")); err == nil || !strings.Contains(err.Error(), "256") {
		t.Errorf("one too many: %v", err)
	}
}

// TestAFailureThatMayPassIsLookedAtAgain: and one that stays is not, nor is one asked about
// each time.
func TestAFailureThatMayPassIsLookedAtAgain(t *testing.T) {
	h := NewHost(Config{})
	asked, answer := 0, error(fmt.Errorf("socket: %w", os.NewSyscallError("socket", unix.EMFILE)))
	h.probe, h.interval = func() error { asked++; return answer }, time.Hour
	for range 3 {
		if err := h.Unable(); !errors.Is(err, unix.EMFILE) || asked != 1 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	}
	h.interval = 0
	answer = unix.EOPNOTSUPP
	for range 3 {
		if err := h.Unable(); !errors.Is(err, unix.EOPNOTSUPP) || asked != 2 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	}
	h = NewHost(Config{})
	asked, answer = 0, unix.ENOBUFS
	h.probe, h.interval = func() error { asked++; return answer }, 0
	if err := h.Unable(); err == nil {
		t.Error("a failure is none")
	}
	answer = nil
	for range 3 {
		if err := h.Unable(); err != nil || asked != 2 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	}
}

func TestRulesByAddress(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":80", says("elsewhere"))
	w.listen(w.internet, ":81", says("elsewhere"))
	for _, tc := range []struct {
		allow, deny []string
		open, shut  []string
	}{
		{nil, nil, []string{goodAddr + ":80", evilAddr + ":80"}, nil},
		{nil, []string{evilAddr}, []string{goodAddr + ":80"}, []string{evilAddr + ":80", "[::ffff:" + evilAddr + "]:80"}},
		{nil, []string{"203.0.113.4/31"}, []string{goodAddr + ":80"}, []string{evilAddr + ":80", sharedAddr + ":80"}},
		{nil, []string{evilAddr + ":80"}, []string{evilAddr + ":81"}, []string{evilAddr + ":80"}},
		{[]string{goodAddr}, nil, []string{goodAddr + ":80"}, []string{evilAddr + ":80", "[" + good6 + "]:80"}},
		{[]string{goodAddr}, []string{"0.0.0.0/0"}, []string{goodAddr + ":80"}, []string{evilAddr + ":80", "[" + good6 + "]:80"}},
		{[]string{goodAddr + ":81", "[" + good6 + "]:80"}, []string{"0.0.0.0/0"}, []string{goodAddr + ":81", "[" + good6 + "]:80"}, []string{goodAddr + ":80", "[" + good6 + "]:81"}},
		{[]string{goodAddr}, []string{goodAddr}, []string{goodAddr + ":80"}, nil}, // Allow comes first
		{nil, []string{"*"}, nil, []string{goodAddr + ":80", "[" + good6 + "]:80"}},
	} {
		s := w.sandbox(tc.allow, tc.deny)
		for _, to := range tc.open {
			if got := s.hears(t, to, 9); got != "elsewhere" {
				t.Errorf("allow %v, deny %v: %s says %q", tc.allow, tc.deny, to, got)
			}
		}
		for _, to := range tc.shut {
			if got := s.hears(t, to, 9); got != "" {
				t.Errorf("allow %v, deny %v: %s says %q", tc.allow, tc.deny, to, got)
			}
		}
	}
}

// TestRulesByName: a name is what was looked up, what TLS says and what the request says,
// all of them.
func TestRulesByName(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, goodAddr+":80", webs("good"))
	w.listen(w.internet, evilAddr+":80", webs("evil"))
	w.listen(w.internet, sharedAddr+":80", webs("shared"))
	w.listen(w.internet, goodAddr+":443", secure(t, "good"))
	w.listen(w.internet, evilAddr+":443", secure(t, "evil"))
	w.listen(w.internet, sharedAddr+":443", secure(t, "shared"))
	w.listen(w.internet, ":22", says("ssh"))
	s := w.sandbox([]string{"Allowed.TEST.", `~^GO{2}D\.test$`, "bücher.test", "*.below.test"}, []string{"0.0.0.0/0"})
	w.nameserve.set("a.below.test", goodAddr)
	for name, want := range map[string]bool{
		"allowed.test": true, "ALLOWED.test.": true, "good.test": true, "xn--bcher-kva.test": true, "a.below.test": true,
		"below.test": false, "evil.test": false, "evil.test.allowed.test": false, "notallowed.test": false, "allowed.test.evil.test": false, "test": false, "neighbour.test": false,
		"xbelow.test": false,
	} {
		_, err := s.lookup(t, "8.8.8.8:53", strings.TrimSuffix(name, ".")+".")
		if (err == nil) != want {
			t.Errorf("a lookup of %s: %v, want %v", name, err, want)
		}
	}
	if asked := w.nameserve.questions(); strings.Contains(asked, "evil") || strings.Contains(asked, "notallowed") {
		t.Errorf("questions that are not allowed went out: %s", asked)
	}
	for _, tc := range []struct{ to, name, http, tls string }{
		{sharedAddr, "allowed.test", "shared allowed.test", "shared"},
		{sharedAddr, "ALLOWED.test", "shared ALLOWED.test", "shared"},
		{sharedAddr, "neighbour.test", "", ""}, // it has the same address
		{goodAddr, "good.test", "good good.test", "good"},
		{goodAddr, "evil.test", "", ""},
		{evilAddr, "evil.test", "", ""},
		{evilAddr, "evil.test.allowed.test", "", ""},
		{evilAddr, "allowed.test.evil.test", "", ""},
		// The name is what counts, and the address is the name's own.
		{evilAddr, "good.test", "good good.test", "good"},
	} {
		if got := s.get(t, tc.to+":80", tc.name); got != tc.http {
			t.Errorf("a request to %s for %s gets %q, want %q", tc.to, tc.name, got, tc.http)
		}
		if got := s.handshake(t, tc.to+":443", tc.name); got != tc.tls {
			t.Errorf("TLS to %s for %s gets %q, want %q", tc.to, tc.name, got, tc.tls)
		}
	}
	// What names no host goes by what was looked up; the other end may speak first.
	if got := s.hears(t, sharedAddr+":22", 3); got != "ssh" {
		t.Errorf("a host that was looked up says %q", got)
	}
	for line, host := range map[string]string{
		"two hosts":          "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n",
		"one in the target":  "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"a user in it":       "GET http://good.test@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"a tunnel":           "CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"a folded header":    "GET / HTTP/1.1\r\nX: y\r\n Host: good.test\r\nHost: evil.test\r\n\r\n",
		"a broken header":    "GET / HTTP/1.1\r\nHost : good.test\r\n\r\n",
		"a name with a NUL":  "GET / HTTP/1.1\r\nHost: good.test\x00.evil.test\r\n\r\n",
		"an address":         "GET / HTTP/1.1\r\nHost: " + evilAddr + "\r\n\r\n",
		"not a TLS hello":    "\x16\x03\x01\x00\x05hello",
		"an endless header":  "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 64<<10) + "\r\nHost: good.test\r\n\r\n",
		"an endless request": "GET /" + strings.Repeat("x", 64<<10),
	} {
		c := proctest.Value(s.dial(t, goodAddr+":80"))(t)
		if line == "an address" {
			c = proctest.Value(s.dial(t, evilAddr+":80"))(t)
		}
		io.WriteString(c, host) // it may be cut meanwhile
		if b, _ := io.ReadAll(c); len(b) != 0 {
			t.Errorf("%s is answered %q", line, b)
		}
	}
}

func TestNamesThatAreDenied(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":80", webs("web"))
	s := w.sandbox(nil, []string{"evil.test", "*.evil.test", "good.test:81"})
	for name, want := range map[string]bool{"good.test": true, "evil.test": false, "EVIL.test": false, "alias.test": false, "neighbour.test": true} {
		if _, err := s.lookup(t, "8.8.8.8:53", name+"."); (err == nil) != want {
			t.Errorf("a lookup of %s: %v", name, err)
		}
	}
	for host, want := range map[string]string{"good.test": "web good.test", "evil.test": "", "a.evil.test": "", "Evil.Test.": "", "evil.test:80": ""} {
		if got := s.get(t, goodAddr+":80", host); got != want {
			t.Errorf("a request for %s gets %q", host, got)
		}
	}
}

// TestRulesThatChangeCutWhatIsNotAllowedAnyMore.
func TestExpressionsOfRules(t *testing.T) {
	for text, want := range map[string]map[string]bool{
		`~evil`:          {"evil.test": true, "not-evil.test": true, "good.test": false},
		`~^a|b$`:         {"a.test": true, "test.b": true, "test.a.test": false},
		`~\.TEST$`:       {"good.test": true, "test": false},
		`~^(a|b):?\.c$`:  {"a.c": true, "b.c": true, "a.cc": false},
		`~\p{Lu}`:        {"good.test": true}, // there are no capitals, and it is asked without them
		`~[[:digit:]]\z`: {"h1": true, "1h": false},
	} {
		r := proctest.Value(ParseRule(text))(t)
		if r.String() != text {
			t.Errorf("%s is told as %s", text, r.String())
		}
		for name, want := range want {
			if got := r.matchesName(name, 80); got != want {
				t.Errorf("%s finds %s: %v", text, name, got)
			}
		}
		if r.matchesAddr(netip.MustParseAddrPort("192.0.2.1:80")) || r.matchesName("", 80) {
			t.Errorf("%s names what has no name", text)
		}
	}
	for text, want := range map[string]string{
		"~": "1 to 299", "~" + strings.Repeat("a", 300): "1 to 299", "~a)(b": "RE2", "~a)|(?:b": "RE2", "~(?=a)": "RE2", "~a{600}": "500 steps", "~(a{30}){30}": "500 steps", "~a{1000}{11}": "RE2", "~(a{1000}){11}": "RE2", "~\xff": "RE2",
		"10.0.0.0/99": "no CIDR", "10.0.0.0/": "no CIDR", "fc00::/129": "no CIDR", "::ffff:10.0.0.0/8": "no CIDR", "example.com/path": "no CIDR", "*.example.com/8": "no CIDR",
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestRulesThatChangeCutWhatIsNotAllowedAnyMore(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":7", echo)
	s := w.sandbox(nil, nil)
	good, evil := proctest.Value(s.dial(t, goodAddr+":7"))(t), proctest.Value(s.dial(t, evilAddr+":7"))(t)
	talk := func(c net.Conn) bool {
		_, err := io.WriteString(c, "x")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return err == nil
	}
	if !talk(good) || !talk(evil) {
		t.Fatal("they are not connected")
	}
	s.proxy.SetPolicy(proctest.Value(ParsePolicy([]string{goodAddr}, nil))(t))
	if talk(evil) {
		t.Error("a connection goes on that is not allowed any more")
	}
	if !talk(good) {
		t.Error("one that is allowed was cut")
	}
	if got := s.hears(t, evilAddr+":7", 1); got != "" {
		t.Error("a new one is made")
	}
}

// TestRulesChangeWhileConnectionsBegin is for the race detector, too.
func TestRulesChangeWhileConnectionsBegin(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":7", says("hello"))
	s := w.sandbox(nil, nil)
	open, narrow := proctest.Value(ParsePolicy(nil, []string{evilAddr}))(t), proctest.Value(ParsePolicy([]string{goodAddr}, nil))(t)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				s.proxy.SetPolicy([]*Policy{open, narrow}[i%2])
			}
		}
	})
	for range 100 {
		if got := s.hears(t, goodAddr+":7", 5); got != "hello" {
			t.Errorf("what both rules allow is cut: %q", got)
		}
		if got := s.hears(t, evilAddr+":7", 5); got != "" {
			t.Errorf("what neither allows says %q", got)
		}
	}
	close(done)
	wg.Wait()
}

// TestTheNextServerIsTheWayOut: of a server that ends while the next one is there, and of
// one that was killed before.
func TestTheNextServerIsTheWayOut(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":7", echo)
	s := w.sandbox(nil, nil)
	old := proctest.Value(s.dial(t, goodAddr+":7"))(t)
	proctest.Value(io.WriteString(old, "x"))(t)
	proctest.Value(io.ReadFull(old, make([]byte, 1)))(t)
	again := func() *Proxy {
		next := proctest.Value(OpenSpace("/proc/self/fd/" + strconv.Itoa(int(s.ns.Fd()))))(t)
		return proctest.Value(NewHost(w.host.cfg).Open(next, s.proxy.policy.Load()))(t)
	}
	next := again()
	proctest.Value(io.WriteString(old, "x"))(t) // both live
	proctest.Value(io.ReadFull(old, make([]byte, 1)))(t)
	proctest.Must(t, s.proxy.Close())
	if _, err := io.ReadAll(old); err == nil {
		t.Error("a connection of the server that ended has a clean end; it was cut")
	}
	for range 50 {
		c := proctest.Value(s.dial(t, goodAddr+":7"))(t)
		proctest.Value(io.WriteString(c, "x"))(t)
		proctest.Value(io.ReadFull(c, make([]byte, 1)))(t)
		c.Close()
	}
	proctest.Must(t, next.Close())
	last := again() // alone
	defer last.Close()
	if got := s.datagram(t, w, goodAddr, "x"); got != "x" {
		t.Errorf("a datagram comes back as %q", got)
	}
}

// TestASandboxThatFloodsHurtsNobodyElse: connections, half of them silent or endless,
// datagrams and questions.
func TestASandboxThatFloodsHurtsNobodyElse(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, ":80", webs("web"))
	w.listen(w.internet, ":7", echo)
	bad, good := w.sandbox([]string{"good.test"}, nil), w.sandbox(nil, nil)
	plain := w.sandbox(nil, nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	flood := func(f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if f() != nil {
						time.Sleep(time.Millisecond)
					}
				}
			}
		})
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for range MaxConnections + 200 { // more than there may be, and they say nothing
		if c, err := plain.dial(t, goodAddr+":7"); err == nil {
			held = append(held, c)
		}
	}
	plain.proxy.mu.Lock()
	n := len(plain.proxy.conns)
	plain.proxy.mu.Unlock()
	if n > MaxConnections {
		t.Errorf("one sandbox has %d connections", n)
	}
	udp := proctest.Value(bad.DialUDP(netip.MustParseAddrPort(goodAddr + ":99")))(t)
	defer udp.Close()
	flood(func() error { _, err := udp.Write(make([]byte, 1000)); return err })
	dns := proctest.Value(bad.DialUDP(netip.MustParseAddrPort("8.8.8.8:53")))(t)
	defer dns.Close()
	flood(func() error { _, err := dns.Write(make([]byte, 40)); return err })
	port := 1000
	flood(func() error { // each to another place
		port = 1000 + (port+1)%60000
		c, err := plain.DialUDP(netip.AddrPortFrom(netip.MustParseAddr(goodAddr), uint16(port)))
		if err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
		return err
	})
	for range 20 {
		if got := good.get(t, goodAddr+":80", "x"); got != "web x" {
			t.Fatalf("another sandbox gets %q", got)
		}
		if _, err := good.lookup(t, "8.8.8.8:53", "good.test."); err != nil {
			t.Fatalf("another sandbox looks a name up: %v", err)
		}
	}
	plain.proxy.mu.Lock()
	flows := len(plain.proxy.flows)
	plain.proxy.mu.Unlock()
	if flows > MaxFlows+1 {
		t.Errorf("there are %d flows", flows)
	}
}

// TestTheMachinesOwnNetworkIsNeverConfigured: what is done to a sandbox's network would
// end the machine's.
func TestTheMachinesOwnNetworkIsNeverConfigured(t *testing.T) {
	proctest.Root(t)
	for _, path := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net"} {
		s := proctest.Value(OpenSpace(path))(t)
		if own, err := s.isMachines(); err != nil || !own {
			t.Fatalf("%s is taken for a sandbox's: %v", path, err)
		}
		if p, err := NewHost(Config{}).Open(s, &Policy{}); err == nil || !errors.Is(err, errMachines) {
			p.Close()
			t.Errorf("%s is configured: %v", path, err)
		}
	}
	if own, err := (*Space)(nil).isMachines(); err != nil || !own {
		t.Errorf("the process's own: %v, %v", own, err)
	}
	if own, err := space(t).isMachines(); err != nil || own {
		t.Errorf("another one: %v, %v", own, err)
	}
}

// TestAProbeLeavesNothing: and this kernel has what it takes.
func TestAProbeLeavesNothing(t *testing.T) {
	proctest.Root(t)
	count := func() int { return len(proctest.Value(os.ReadDir("/proc/self/fd"))(t)) }
	proctest.Must(t, probe())
	before := count()
	for range 20 {
		proctest.Must(t, probe())
	}
	if after := count(); after > before+2 {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// Connections of sandboxes leave the server descriptors for all else that it does.
func TestConnectionsLeaveDescriptors(t *testing.T) {
	for _, files := range []uint64{1 << 10, 4096, 20_000, 1 << 20, 1 << 62} {
		h := NewHost(Config{Connections: connectionsFor(files)})
		taken := uint64(0)
		for sandbox := range 2000 { // each has what it has in any case, after the first took all
			for n := 0; (sandbox < 8 && n < h.most || n < reserved) && h.acquire(n); n++ {
				taken++
			}
		}
		if left := int64(files) - int64(taken*perConnection); left < int64(files/5) {
			t.Errorf("of %d descriptors, %d are left beside %d connections", files, left, taken)
		}
		if files >= 20_000 && h.most < 400 {
			t.Errorf("with %d descriptors a sandbox has %d connections", files, h.most)
		}
	}
	if l := openFiles(); l == 0 || NewHost(Config{}).cfg.Connections != connectionsFor(l) {
		t.Errorf("a host with %d descriptors lets sandboxes have %d connections", l, NewHost(Config{}).cfg.Connections)
	}
}
