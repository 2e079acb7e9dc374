package network

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestRequestsThatServersReadInTwoWays: no byte of them goes out, also behind a request that is
// allowed. What is no HTTP passes, as it comes.
func TestRequestsThatServersReadInTwoWays(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, goodAddr+":80", webs("good"))
	w.listen(w.internet, goodAddr+":81", echo)
	s := w.sandbox([]string{"good.test", "allowed.test"}, []string{"0.0.0.0/0"})
	proctest.Value(s.lookup(t, "8.8.8.8:53", "good.test."))(t)
	const evil = "Host: evil.test\r\n\r\n"
	const well = "POST /?to=http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n"
	for name, text := range map[string]string{
		"two spaces":                  "GET  / HTTP/1.1\r\n" + evil,
		"two spaces behind":           "GET /  HTTP/1.1\r\n" + evil,
		"a tab":                       "GET\t/ HTTP/1.1\r\n" + evil,
		"a vertical tab":              "GET /\vHTTP/1.1\r\n" + evil,
		"an empty line before it":     "\r\nGET / HTTP/1.1\r\n" + evil,
		"line feeds before it":        "\n\n \nGET / HTTP/1.1\r\n" + evil,
		"no version":                  "GET /\r\n" + evil,
		"no version, and a host":      "GET http://evil.test/\r\n\r\n",
		"a method in small letters":   "get / HTTP/1.1\r\n" + evil,
		"a version in small letters":  "GET / http/1.1\r\n" + evil,
		"a version that there is not": "GET / HTTP/1.2\r\n" + evil,
		"nearly HTTP/2":               "PRI * HTTP/2.0\n" + evil,
		"line feeds alone":            "GET / HTTP/1.1\nHost: evil.test\n\n",
		"a carriage return in it":     "GET / HTTP/1.1\r\nX: y\rHost: good.test\r\n" + evil,
		"a space before the colon":    "GET / HTTP/1.1\r\nHost: good.test\r\nHost : evil.test\r\n\r\n",
		"a folded line":               "GET / HTTP/1.1\r\nX: y\r\n" + " " + evil,
		"another host in the target":  "GET http://good.test/ HTTP/1.1\r\n" + evil,
		"a head that ends":            "GET / HTTP/1.1\r\nHost: evil.test\r\n",
		"two lengths":                 well + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
		"a length and chunks":         well + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a length with a sign":        well + "Content-Length: +5\r\n\r\n",
		"another coding":              well + "Transfer-Encoding: gzip, chunked\r\n\r\n",
		"chunks of an older version":  "POST / HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		c := proctest.Value(s.dial(t, goodAddr+":81"))(t)
		io.WriteString(c, text) // it may be cut meanwhile
		c.(*net.TCPConn).CloseWrite()
		if b, _ := io.ReadAll(c); len(b) != 0 {
			t.Errorf("%s: %q went out", name, b)
		}
		first := well + "Content-Length: 2\r\n\r\nhi"
		c = proctest.Value(s.dial(t, goodAddr+":81"))(t)
		io.WriteString(c, first+text)
		c.(*net.TCPConn).CloseWrite()
		if b, _ := io.ReadAll(c); !strings.HasPrefix(first, string(b)) {
			t.Errorf("%s, behind another: %q went out", name, b)
		}
	}
	for name, text := range map[string]string{
		"a request": well + "\r\n",
		"several": well + "Content-Length: 5\r\n\r\nHost:" +
			well + "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n" + well + "\r\n",
		"another that may be": well + "\r\nGET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"an old one":          "GET / HTTP/1.0\r\n\r\n",
		"HTTP/2":              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nHost: evil.test",
		"SSH":                 "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
		"mail":                "EHLO evil.test\r\nMAIL FROM:<a@evil.test>\r\n",
		"IMAP":                "a1 CAPABILITY\r\n",
		"FTP":                 "USER x\r\nCWD /\r\n",
		"RTSP":                "OPTIONS rtsp://good.test/ RTSP/1.0\r\n\r\n",
		"Redis":               "*2\r\n$3\r\nGET\r\n$1\r\n/\r\n",
		"half a word":         "GET",
		"an empty line":       "\r\n\r\n",
		"long words":          strings.Repeat("x", 300) + " y z\r\n" + evil,
		"bytes in lines":      "\x00\x01 / HTTP/1\x00.1 x\n" + evil,
	} {
		c := proctest.Value(s.dial(t, goodAddr+":81"))(t)
		proctest.Value(io.WriteString(c, text))(t)
		proctest.Must(t, c.(*net.TCPConn).CloseWrite())
		if b, err := io.ReadAll(c); string(b) != text {
			t.Errorf("%s: %q came back, %v", name, b, err)
		}
	}
}

// TestARequestWithAMethodThatNobodyHas: what does not begin as methods do is passed on as it comes,
// so only the end of its first line is held back. No server reads a request without it.
func TestARequestWithAMethodThatNobodyHas(t *testing.T) {
	w := newWorld(t, nil)
	w.listen(w.internet, goodAddr+":81", echo)
	s := w.sandbox([]string{"good.test"}, []string{"0.0.0.0/0"})
	proctest.Value(s.lookup(t, "8.8.8.8:53", "good.test."))(t)
	for name, method := range map[string]string{
		"22 letters":             strings.Repeat("A", 22),
		"more than is looked at": strings.Repeat("A", 2*maxSniffed),
		"no text":                "\x00\x01",
		"an empty line before":   "\r\n\x7f",
		"letters of Latin 1":     "G\xc9T",
		"two spaces":             strings.Repeat("A", 30) + " ",
		"a comma":                strings.Repeat("A,", 30),
	} {
		for _, line := range []string{" / HTTP/1.1", " / http/1.0", " /", " http://evil.test/", "\t/a b\vHTTP/1.2"} {
			c := proctest.Value(s.dial(t, goodAddr+":81"))(t)
			io.WriteString(c, method+line+"\r\nHost: evil.test\r\n\r\n") // it may be cut meanwhile
			c.(*net.TCPConn).CloseWrite()
			if b, _ := io.ReadAll(c); strings.Contains(strings.TrimPrefix(string(b), "\r\n"), "\n") {
				t.Errorf("%s, %q: the end of the line went out: %.60q", name, line, b)
			}
		}
		c := proctest.Value(s.dial(t, goodAddr+":81"))(t) // nothing of it waits for an end of a line
		proctest.Value(io.WriteString(c, method))(t)
		got := make([]byte, len(method))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != method {
			t.Errorf("%s: what came back at once is %.60q, %v", name, got, err)
		}
		c.Close()
	}
}

// TestAnotherProtocolFollowsWhereTheServerAgrees: only there are bytes passed on that are not
// looked at.
func TestAnotherProtocolFollowsWhereTheServerAgrees(t *testing.T) {
	w := newWorld(t, nil)
	answers := func(answer string) func(net.Conn) {
		return func(c net.Conn) {
			br := bufio.NewReader(c)
			for range 2 {
				r, err := http.ReadRequest(br)
				if err != nil {
					break
				}
				if r.URL.Path == "/plain" || r.Header.Get("Upgrade") == "" && r.Method != "CONNECT" {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
					continue
				}
				io.WriteString(c, answer)
				break
			}
			io.Copy(c, br)
		}
	}
	w.listen(w.internet, goodAddr+":80", answers("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n"))
	w.listen(w.internet, goodAddr+":81", answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"))
	s := w.sandbox([]string{"good.test"}, []string{"0.0.0.0/0"})
	proctest.Value(s.lookup(t, "8.8.8.8:53", "good.test."))(t)
	const upgrade = "GET /ws HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	const tunnel = "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n"
	const evil = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	for _, tc := range []struct {
		name, port, say string
		echoed          bool
	}{
		{"agreed", "80", upgrade, true},
		{"refused", "81", upgrade, false},
		{"a tunnel", "81", tunnel, true},
		{"no tunnel", "80", tunnel, false},
		{"asked for late", "80", "GET /plain HTTP/1.1\r\nHost: good.test\r\n\r\n" + upgrade, false},
	} {
		c := proctest.Value(s.dial(t, goodAddr+":"+tc.port))(t)
		io.WriteString(c, tc.say+evil)
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		if got := strings.HasSuffix(string(b), evil); got != tc.echoed {
			t.Errorf("%s: what is not looked at passes: %v, want %v: %q", tc.name, got, tc.echoed, b)
		}
	}
}
