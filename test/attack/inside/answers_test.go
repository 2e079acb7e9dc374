//go:build linux

package inside

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

const webPort = 8123

// web is a server that sends an answer as it is, for each request.
const web = `
def serve(answer, endless=b""):
    l = socket.create_server(("127.0.0.1", 8123), backlog=64)
    print("holds", flush=True)
    def one(c):
        try:
            while True:
                text = b""
                while b"\r\n\r\n" not in text:
                    piece = c.recv(65536)
                    if not piece: return
                    text += piece
                c.sendall(answer)
                while endless: c.sendall(endless)
        except OSError: pass
        finally: c.close()
    while True: threading.Thread(target=one, args=(l.accept()[0],), daemon=True).start()
`

// at is the name of a port of a sandbox.
func at(t *testing.T, s *tend.Sandbox) string {
	return fmt.Sprintf("%d-%s.localhost", webPort, proctest.Value(s.ID(t.Context()))(t))
}

func public(s *tend.SandboxSpec) { s.Network.Public = true }

// mostPatient is how long a program is waited for that may never answer.
const mostPatient = 500 * time.Millisecond

// get asks for a path of a port, over a client's connections, and reads at most some bytes.
func (w *world) get(t *testing.T, c *http.Client, host, path string, patience time.Duration) (res *http.Response, text string, err error) {
	t.Helper()
	err = inTime(t, "an answer", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+path, nil)
		if err != nil {
			return err
		}
		req.Host = host
		if res, err = c.Do(req); err != nil {
			return err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		text = string(b)
		return err
	})
	return res, text, err
}

var answers = []attempt{
	{"hides an answer for its neighbour's visitors behind its own", false, func(t *testing.T, w *world) {
		honest := w.sandbox(t, public)
		hold(t, honest, "0:0", web+`threading.Thread(target=serve,
			args=(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhonest",)).start(); sys.stdin.read()`)
		forged := `HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged`
		for _, answer := range []string{
			`HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok` + forged,
			`HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 200\r\n\r\nok` + forged,
			`HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n` + forged,
			`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2;` + strings.Repeat("x",
				100) + `\r\nok\r\n0\r\n\r\n` + forged,
			`HTTP/1.1 204 No Content\r\nContent-Length: 50\r\n\r\n` + forged,
			`HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n` + forged,
			`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n` + forged,
			`HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n` + forged + forged,
			`HTTP/1.1 200 OK\nContent-Length : 2\r\nX: y\r\n z\r\n\r\nok` + forged,
			`HTTP/1.1 -1 \r\n\r\n` + forged, `HTTP/9.9 200 OK\r\n\r\n` + forged, `\r\n\r\n` + forged, `\x00` + forged,
		} {
			s := w.sandbox(t, public)
			hold(t, s, "0:0", web+`threading.Thread(target=serve, args=(b"`+answer+`",)).start(); sys.stdin.read()`)
			tr := &http.Transport{MaxConnsPerHost: 1}
			c := &http.Client{Transport: tr}
			for range 2 {
				w.get(t, c, at(t, s), "/", mostPatient)
				if _, text, err := w.get(t, c, at(t, honest), "/", time.Minute); err != nil || text != "honest" {
					t.Errorf("after %.80q the neighbour's visitor gets %q, %v", answer, text, err)
				}
			}
			tr.CloseIdleConnections()
			s.Destroy(t.Context())
		}
	}},
	{"sends answers without an end: interim ones, headers, trailers, chunk sizes", false, func(t *testing.T, w *world) {
		before := w.memory(t)
		for begin, endless := range map[string]string{
			``:                    `HTTP/1.1 103 Early Hints\r\nLink: </` + strings.Repeat("x", 1000) + `>\r\n\r\n`,
			`HTTP/1.1 200 OK\r\n`: `X-Header: ` + strings.Repeat("x", 1000) + `\r\n`,
			`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\n`:              `X: ` + strings.Repeat("x", 1000) + `\r\n`,
			`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n`:                                 `0000`,
			`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;`:                               `x=` + strings.Repeat("y", 1000) + `;`,
			`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`: strings.Repeat("x", 1000),
		} {
			s := w.sandbox(t, public)
			hold(t, s, "0:0", web+`threading.Thread(target=serve, args=(b"`+begin+`", b"`+endless+`")).start(); sys.stdin.read()`)
			done := make(chan struct{})
			for range 8 {
				go func() {
					defer func() { done <- struct{}{} }()
					c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: mostPatient}
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL, nil)
					req.Host = at(t, s)
					if res, err := c.Do(req); err == nil {
						io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
						res.Body.Close()
					}
				}()
			}
			for range 8 {
				<-done
			}
			w.grewBy(t, before, 96<<20)
			s.Destroy(t.Context())
		}
	}},
	{"sets and clears cookies of its neighbours and of the page", false, func(t *testing.T, w *world) {
		s := w.sandbox(t, public)
		hold(t, s, "0:0", web+`threading.Thread(target=serve,
			args=(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: tend=x; Domain=localhost; Path=/\r\n"
b"Set-Cookie: a=b;domain=.localhost\r\nClear-Site-Data: \"cookies\"\r\n\r\nok",)).start(); sys.stdin.read()`)
		res, text, err := w.get(t, http.DefaultClient, at(t, s), "/", time.Minute)
		if err != nil || text != "ok" {
			t.Fatalf("it answers %q, %v", text, err)
		}
		for _, c := range res.Cookies() {
			if c.Domain != "" {
				t.Errorf("a cookie is for %s", c.Domain)
			}
		}
		if len(res.Cookies()) != 2 || res.Header.Get("Clear-Site-Data") != "" {
			t.Errorf("the answer has %v", res.Header)
		}
	}},
	{"takes connections and never answers, or reads a byte at a time", false, func(t *testing.T, w *world) {
		s := w.sandbox(t, public)
		hold(t, s, "0:0", `
l = socket.create_server(("127.0.0.1", 8123), backlog=512)
print("holds", flush=True)
held = []
while True:
    held.append(l.accept()[0])
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)`)
		host := at(t, s)
		var open []net.Conn
		defer func() {
			for _, c := range open {
				c.Close()
			}
		}()
		before := w.memory(t)
		for range 100 {
			c := proctest.Value(net.Dial("tcp", w.Addr()))(t)
			open = append(open, c)
			c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000000\r\n\r\n", host)
			c.Write(make([]byte, 64<<10))
		}
		w.goesOn(t)
		w.grewBy(t, before, 96<<20)
	}},
	{"asks the daemon's proxy, by its own name, for the daemon itself", false, func(t *testing.T, w *world) {
		s := w.sandbox(t, public)
		host := at(t, s)
		for _, request := range []string{
			"CONNECT " + w.Addr() + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
			"GET /tend.v1.ProcessService/List HTTP/1.1\r\nHost: " + host + "\r\nE2b-Sandbox-Id: \r\n\r\n",
			"GET /ui/ HTTP/1.1\r\nHost: " + host + "\r\nX-Forwarded-Host: " + w.Addr() + "\r\n\r\n",
		} {
			c := proctest.Value(net.Dial("tcp", w.Addr()))(t)
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprint(c, request)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || res.StatusCode < 400 {
				t.Errorf("%.80q gets %+v, %v", request, res, err)
			}
			c.Close()
		}
	}},
}
