package ports_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/ports"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// wire is a program that says what it likes to each request: answer has the connection, the path and
// how many requests came before on it. It returns the port.
func wire(t *testing.T, secure *tls.Config, answer func(c net.Conn, path string, before int)) int {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := l.Addr().(*net.TCPAddr).Port
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				br := bufio.NewReader(c)
				for before := 0; ; before++ {
					r, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					answer(c, r.URL.Path, before)
				}
			})
		}
	})
	t.Cleanup(func() {
		end()
		l.Close()
		all.Wait()
	})
	return port
}

// lines are so many headers, as short as they can be.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "x%04x:\r\n", i)
	}
	return b.String()
}

const ok = "HTTP/1.1 200 OK\r\n"

// secureBox is a sandbox whose program at the port speaks TLS.
func secureSandbox(t *testing.T, s *server, port int) (id string) {
	t.Helper()
	sandbox := proctest.Value(s.driver.Create(t.Context(), driver.Spec{Network: driver.Network{Public: true},
		Notes: map[string]string{protocol.NoteHTTPSPorts: fmt.Sprint(port)}}))(t)
	return string(proctest.Value(sandbox.Info(t.Context()))(t).ID)
}

// certificate is some program's.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	h := httptest.NewTLSServer(nil)
	defer h.Close()
	return &tls.Config{Certificates: h.TLS.Certificates}
}

// A line of a header takes far more in memory than on the wire: their number has a limit, too, also
// when the head has no end.
func TestHeadersOfManyLinesAreRefused(t *testing.T) {
	s := serve(t, http.NotFoundHandler())
	answer := func(c net.Conn, path string, _ int) {
		switch io.WriteString(c, ok); path {
		case "/endless":
			io.WriteString(c, lines(30<<10))
			c.Close()
		case "/many":
			io.WriteString(c, lines(8<<10)+"\r\n")
			c.Close()
		default:
			io.WriteString(c, "Content-Length: 2\r\n"+lines(900)+"\r\nok")
		}
	}
	plain, secure := wire(t, nil, answer), wire(t, certificate(t), answer)
	for what, at := range map[string]string{"plain": name(plain, s.public), "TLS": name(secure, secureSandbox(t, s, secure))} {
		for _, path := range []string{"/endless", "/many"} {
			if res, text := s.get(path, at); res.StatusCode != 502 || !strings.Contains(text, "1000 lines of headers") {
				t.Errorf("%s, %s: %s %.200q", what, path, res.Status, text)
			}
		}
		if res, text := s.get("/few", at); res.StatusCode != 200 || text != "ok" || len(res.Header) < 900 {
			t.Errorf("%s, 900 lines: %s %.200q", what, res.Status, text)
		}
	}
}

// Heads that do not come to their end are charged for while they come: a hundred clients of one
// sandbox hold its share, and no more.
func TestHeadsThatDoNotEndHoldAShare(t *testing.T) {
	const whole, clients, each = 8 << 20, 100, 900
	held := budget.New(whole)
	s := serve(t, http.NotFoundHandler(), func(c *ports.Config) { c.Budget = held })
	of := budget.Sandbox(s.public)
	port := wire(t, nil, func(c net.Conn, path string, _ int) {
		if path == "/short" {
			io.WriteString(c, ok+"Content-Length: 2\r\n\r\nok")
			return
		}
		io.WriteString(c, ok+lines(each))
	})
	ctx, leave := context.WithCancel(t.Context())
	tr := &http.Transport{DisableKeepAlives: true}
	var refused, other atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			req := proctest.Value(http.NewRequestWithContext(ctx, "GET", s.url+"/endless", nil))(t)
			_, req.Host, _ = strings.Cut(name(port, s.public), ": ")
			res, err := tr.RoundTrip(req)
			if err != nil { // it hangs until it leaves
				return
			}
			defer res.Body.Close()
			if text, _ := io.ReadAll(res.Body); res.StatusCode == 503 && strings.Contains(string(text), "of sandbox "+s.public) {
				refused.Add(1)
			} else {
				other.Add(1)
			}
		})
	}
	proctest.Eventually(t, "what hangs is charged for", func() bool {
		if got := held.UsedBy(of); got > whole/4 {
			t.Fatalf("one sandbox holds %d bytes of %d", got, whole)
		}
		hang := clients - refused.Load()
		return hang < clients && held.UsedBy(of) >= hang*each*200
	})
	if refused.Load() == clients || other.Load() != 0 {
		t.Errorf("%d of %d were refused, %d were answered", refused.Load(), clients, other.Load())
	}
	token := "E2b-Traffic-Access-Token: " + string(s.secret.TrafficToken(s.closed))
	if res, text := s.get("/short", name(port, s.closed), token); res.StatusCode != 200 || text != "ok" {
		t.Errorf("another sandbox's: %s %.200s", res.Status, text)
	}
	leave()
	all.Wait()
	proctest.Eventually(t, "all is given back", func() bool { return held.Used() == 0 })
}

// Trailers are held until the client has them, and so are the names of them in the head.
func TestTrailersAreCharged(t *testing.T) {
	held := budget.New(2 << 20) // a quarter for one sandbox
	s := serve(t, http.NotFoundHandler(), func(c *ports.Config) { c.Budget = held })
	const chunked = ok + "Transfer-Encoding: chunked\r\n"
	port := wire(t, nil, func(c net.Conn, path string, _ int) {
		switch path {
		case "/names":
			io.WriteString(c, chunked+"Trailer: a"+strings.ReplaceAll(strings.ReplaceAll(lines(8<<10), "\r\n", ""), ":", ",")+"\r\n\r\n0\r\n\r\n")
		case "/lines":
			io.WriteString(c, chunked+"\r\n2\r\nok\r\n0\r\n"+lines(10)+"\r\n")
		}
	})
	if res, text := s.get("/names", name(port, s.public)); res.StatusCode != 503 {
		t.Errorf("names of trailers: %s %.200q", res.Status, text)
	}
	if res, text := s.get("/lines", name(port, s.public)); res.StatusCode != 200 || text != "ok" || len(res.Trailer) != 10 {
		t.Errorf("trailers: %s %.200q %d", res.Status, text, len(res.Trailer))
	}
	proctest.Eventually(t, "all is given back", func() bool { return held.Used() == 0 })
}

// Lines are counted in heads alone: not in bodies, in what comes after an upgrade, or in all heads
// of one connection together.
func TestOnlyTheLinesOfAHeadAreCounted(t *testing.T) {
	s := serve(t, http.NotFoundHandler())
	short := strings.Repeat("\n", 5000)
	port := wire(t, nil, func(c net.Conn, path string, before int) {
		head := ok + fmt.Sprintf("Before: %d\r\nContent-Length: %d\r\n", before, len(short))
		switch path {
		case "/body":
			io.WriteString(c, head+lines(900)+"\r\n"+short)
		case "/hints":
			for range 20 { // all at once, so that the last one comes with the body
				head = "HTTP/1.1 103 Early Hints\r\n" + lines(100) + "\r\n" + head
			}
			io.WriteString(c, head+"\r\n"+short)
		case "/upgrade":
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n"+short)
			c.Close()
		}
	})
	at := name(port, s.public)
	for n := range 3 {
		if res, text := s.get("/body", at); res.StatusCode != 200 || text != short || res.Header.Get("Before") != fmt.Sprint(n) {
			t.Errorf("answer %d of the connection: %s, %d bytes, %s before", n, res.Status, len(text), res.Header.Get("Before"))
		}
	}
	if res, text := s.get("/hints", at); res.StatusCode != 200 || text != short {
		t.Errorf("after hints: %s, %d bytes", res.Status, len(text))
	}
	if res, text := s.get("/upgrade", at, "Connection: Upgrade", "Upgrade: lines"); res.StatusCode != 101 || text != short {
		t.Errorf("after an upgrade: %s, %d bytes", res.Status, len(text))
	}
}
