//go:build linux

package local

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

// startPath starts a process by envd's protocol, which answers pages of all origins that are let
// in.
const startPath = "/process.Process/Start"

const connectJSON = "Content-Type: application/connect+json"

// starts is the body that has a shell run a line.
func starts(line string) string {
	m, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", line}}})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m)))) + string(m)
}

// byPage starts a program as a page would, with these lines of the header, and returns what was
// won.
func byPage(path string, header ...string) func(*testing.T, *target) string {
	return func(t *testing.T, d *target) string {
		answer := d.ask(t, asks("POST", d.fill(path), starts(d.command()), append([]string{connectJSON}, d.filled(header)...)...))
		if won := d.ran(t); won != "" {
			return won + ": " + answer
		}
		if strings.Contains(strings.ToLower(answer), "access-control-allow-origin") {
			return "the page reads the answer: " + answer
		}
		return ""
	}
}

// fill puts the port of the daemon in the place of PORT.
func (d *target) fill(text string) string { return strings.ReplaceAll(text, "PORT", d.port) }

func (d *target) filled(all []string) (out []string) {
	for _, text := range all {
		out = append(out, d.fill(text))
	}
	return out
}

// TestAPage: a browser of the daemon's owner shows a page of somebody else. What such a browser
// sends comes from the owner's user.
func TestAPage(t *testing.T) {
	d := attack(t, "")
	if d.ask(t, asks("POST", startPath, starts(d.command()), "Host: "+d.Addr(), connectJSON)); d.ran(t) == "" {
		t.Fatal("the owner's own program starts nothing, so no page could")
	}
	sandbox := proctest.Value(d.client.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "box", Isolation: tend.IsolationNone}))(t)
	id := proctest.Value(sandbox.Info(t.Context()))(t).ID
	const local, runs = "Host: 127.0.0.1:PORT", "programs as the daemon's user"
	cors := func(origin, site string) []string {
		return []string{local, "Origin: " + origin, "Sec-Fetch-Site: " + site, "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}
	}
	d.run(t, []attempt{
		{"A page of another port of localhost fetches a start.", runs, byPage(startPath, cors("http://localhost:3000", "same-site")...)},
		{"A page of the same port of 127.0.0.2 fetches a start.", runs, byPage(startPath, cors("http://127.0.0.2:PORT", "cross-site")...)},
		{"A page of a port that begins with the daemon's fetches a start.", runs, byPage(startPath, cors("http://127.0.0.1:PORT0",
			"same-site")...)},
		{"A page whose host begins with the daemon's name fetches a start.", runs, byPage(startPath,
			cors("http://127.0.0.1:PORT.evil.example", "cross-site")...)},
		{"A page that has the daemon's name as its user name fetches a start.", runs, byPage(startPath,
			cors("http://127.0.0.1:PORT@evil.example", "cross-site")...)},
		{"A page in a sandboxed frame, which has no origin, fetches a start.", runs, byPage(startPath, cors("null", "cross-site")...)},
		{"An extension or a file:// page fetches a start.", runs, byPage(startPath, cors("file://", "cross-site")...)},
		{"A page of a program in a sandbox, by its name below localhost, fetches a start.", runs, byPage(startPath,
			cors("http://3000-"+id+".localhost:PORT", "same-site")...)},
		{"A page makes its own name lead to 127.0.0.1 and fetches a start from its own origin.", runs, byPage(startPath,
			"Host: evil.example:PORT", "Origin: http://evil.example:PORT", "Sec-Fetch-Site: same-origin")},
		{"A page with a rebound name sends no origin.", runs, byPage(startPath, "Host: evil.example:PORT")},
		{"A page with a rebound name that ends like a local one fetches a start.", runs, byPage(startPath,
			"Host: localhost.evil.example:PORT", "Origin: http://localhost.evil.example:PORT")},
		{"A page with a rebound name that begins like an address fetches a start.", runs, byPage(startPath, "Host: 127.0.0.1.evil.example",
			"Origin: http://127.0.0.1.evil.example")},
		{"A page names the daemon in the request line and itself in Host.", runs, byPage("http://127.0.0.1:PORT"+startPath,
			"Host: evil.example", "Origin: http://evil.example")},
		{"A page names itself in the request line and the daemon in Host.", runs, byPage("http://evil.example"+startPath, local,
			"Origin: http://evil.example")},
		{"A page gets a second Host past the check.", runs, byPage(startPath, local, "Host: evil.example", "Origin: http://evil.example")},
		{"A page says by X-Forwarded-Host that the daemon is at the page's name.", runs, byPage(startPath, local,
			"X-Forwarded-Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site")},
		{"A form of a page posts, without an origin, as a navigation.", runs, byPage(startPath, local, "Sec-Fetch-Site: cross-site",
			"Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")},
		{"A form of a page posts with text/plain to the name of another path.", runs, byPage("/ui/.."+startPath, cors("http://localhost:3000",
			"same-site")...)},
		{"A page posts below a link of LangSmith with a token that is none.", runs,
			byPage("/langsmith/"+id+"/service/80/~a.b/../../../.."+startPath, cors("http://localhost:3000", "same-site")...)},
		{"A page asks by a preflight whether it may, for a private network, too.", "leave for all requests", func(t *testing.T,
			d *target) string {
			answer := d.ask(t, asks("OPTIONS", startPath, "", "Host: "+d.Addr(), "Origin: http://localhost:3000",
				"Access-Control-Request-Method: POST",
				"Access-Control-Request-Headers: content-type", "Access-Control-Request-Private-Network: true"))
			if strings.Contains(strings.ToLower(answer), "access-control-allow") {
				return answer
			}
			return admitted(answer)
		}},
		{"A form of a page uploads a file, which needs no preflight.", "files of the daemon's user", func(t *testing.T, d *target) string {
			d.mark++
			body := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nby a page\r\n--x--\r\n"
			d.ask(t, asks("POST", "/files?path="+d.markPath(), body, "Host: "+d.Addr(), "Content-Type: multipart/form-data; boundary=x",
				"Origin: http://localhost:3000", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"))
			return d.ran(t)
		}},
		{"A page reads a file by an image, a script and a frame.", "files of the daemon's user", func(t *testing.T, d *target) string {
			for _, by := range []string{"image", "script", "iframe"} {
				mode := map[bool]string{true: "navigate", false: "no-cors"}[by == "iframe"]
				answer := d.ask(t, asks("GET", "/files?path=/etc/passwd", "", "Host: "+d.Addr(), "Sec-Fetch-Site: same-site",
					"Sec-Fetch-Mode: "+mode, "Sec-Fetch-Dest: "+by))
				// A page does not see into a frame of another origin, and nothing runs in it.
				inert := strings.Contains(answer, "\r\nContent-Security-Policy: ") && strings.Contains(answer, "sandbox") &&
					strings.Contains(answer, "\r\nX-Content-Type-Options: nosniff")
				if won := admitted(answer); won != "" && (by != "iframe" || !inert) {
					return by + ": " + won
				}
			}
			return ""
		}},
		{"A page opens WebSockets of each protocol, for which there is no preflight.", "a shell", func(t *testing.T, d *target) string {
			for _, path := range []string{"/langsmith/" + id + "/execute/ws", "/langsmith/" + id + "/tunnel", "/mcp",
				"/tend.v1.SandboxService/Dial?sandbox=box&port=1"} {
				// The second request, of a connection that is still HTTP, ends it.
				answer := d.ask(t, "GET "+path+" HTTP/1.1\r\nHost: "+d.Addr()+"\r\nOrigin: http://localhost:3000\r\n"+
					"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"+
					asks("GET", "/-/healthz", "", "Host: "+d.Addr()))
				if won := admitted(answer); won != "" {
					return path + ": " + won
				}
			}
			return ""
		}},
		{"A page reads events by an EventSource.", "what programs print", func(t *testing.T, d *target) string {
			return admitted(d.ask(t, asks("GET", "/mcp", "", "Host: "+d.Addr(), "Accept: text/event-stream", "Origin: http://localhost:3000",
				"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors")))
		}},
		{"A page that was on the port before asks for the script of its worker, at each place.", "a page that outlives the daemon's return",
			func(t *testing.T, d *target) string {
				for _, path := range []string{"/", "/ui/", "/ui/index.html", "/health", "/files?path=" + bin, "/langsmith/x/service/80/~a.b/",
					"/.tend/open", "/no/such"} {
					answer := d.ask(t, asks("GET", path, "", "Host: "+d.Addr(), "Service-Worker: script", "Sec-Fetch-Site: same-origin",
						"Sec-Fetch-Mode: same-origin", "Sec-Fetch-Dest: serviceworker"))
					if won := admitted(answer); won != "" || !strings.Contains(answer, "Clear-Site-Data") {
						return path + ": " + answer
					}
				}
				return ""
			}},
		{"The page of a sandbox calls the daemon at the page's own name.", "what is the daemon's", func(t *testing.T, d *target) string {
			for _, name := range []string{"3000-" + id, "70000-" + id, "0-" + id, "x-" + id, "-" + id} {
				for _, path := range []string{"/tend.v1.ProcessService/List", "/ui/", "/sandboxes", "/-/metrics", "/mcp", "/v2/sandboxes/boxes"} {
					host := name + ".localhost:" + d.port
					answer := d.ask(t, asks("POST", path, "{}", "Host: "+host, "Origin: http://"+host, "Content-Type: application/json",
						"Sec-Fetch-Site: same-origin"))
					if won := admitted(answer); won != "" {
						return host + path + ": " + won
					}
				}
			}
			return ""
		}},
		{"A page puts the daemon's page into a frame, or a window that it keeps a hold of.", "clicks of the owner", func(t *testing.T,
			d *target) string {
			answer := d.ask(t, asks("GET", "/ui/", "", "Host: "+d.Addr(), "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate",
				"Sec-Fetch-Dest: iframe"))
			for _, line := range []string{"frame-ancestors 'none'", "X-Frame-Options: DENY", "Cross-Origin-Opener-Policy: same-origin"} {
				if !strings.Contains(answer, line) {
					return "without " + line + ": " + answer
				}
			}
			return ""
		}},
	})
}

// TestAPageAndTheJSONLines: the port of JSON lines has no token, and browsers speak more than
// HTTP to a port: a page names its own server, has it send a ticket of TLS, and makes the name lead
// to 127.0.0.1. The browser then shows that ticket, whatever it says, to whoever is there.
func TestAPageAndTheJSONLines(t *testing.T) {
	d := attack(t, "")
	file := filepath.Join(d.Dir(), "lines")
	cmd := exec.CommandContext(t.Context(), bin, "distant", "--listen-json", "127.0.0.1:0", "--port-file", file, "--url", d.URL)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it says that it was asked to end
	})
	proctest.Eventually(t, "the port of JSON lines", func() bool { _, err := os.Stat(file); return err == nil })
	lines := strings.TrimSpace(string(proctest.Value(os.ReadFile(file))(t)))
	request := func(d *target) string {
		return string(proctest.Value(json.Marshal(map[string]string{"type": "proc_spawn", "cmd": "sh -c '" + d.command() + "'"}))(t)) + "\n"
	}
	send := func(t *testing.T, bytes string) string {
		return answerTo(proctest.Value(net.Dial("tcp", lines))(t), bytes)
	}
	c := proctest.Value(net.Dial("tcp", lines))(t)
	_, err := io.WriteString(c, request(d))
	proctest.Must(t, err)
	proctest.Eventually(t, "the mark of the owner's own line", func() bool { _, err := os.Stat(d.markPath()); return err == nil })
	c.Close()
	d.run(t, []attempt{
		{"A page posts lines of JSON.", "programs as the owner", func(t *testing.T, d *target) string {
			send(t, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"+request(d))
			return d.ran(t)
		}},
		{"A page's server has sent a ticket of TLS in which there is a line of JSON.", "programs as the owner", func(t *testing.T,
			d *target) string {
			hello := helloWith(t, []byte("\n"+request(d)))
			if !bytes.Contains(hello, []byte("\n{")) {
				t.Fatal("the first message of TLS does not show the ticket")
			}
			send(t, string(hello))
			return d.ran(t)
		}},
		{"A page's server of WebRTC has given a name in which there is a line of JSON.", "programs as the owner", func(t *testing.T,
			d *target) string {
			send(t, "\x00\x03\x00\x60\x21\x12\xa4\x42------------\x00\x06\x00\x40\n"+request(d))
			return d.ran(t)
		}},
	})
}

// recorder is a connection that keeps what is written, and has no answer.
type recorder struct {
	net.Conn
	written bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error)      { return r.written.Write(b) }
func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) Close() error                     { return nil }

// tickets is the cache of a browser, with the ticket of an attacker in it.
type tickets struct {
	state  *tls.ClientSessionState
	ticket []byte
}

func (c *tickets) Put(_ string, s *tls.ClientSessionState) { c.state = s }
func (c *tickets) Get(string) (*tls.ClientSessionState, bool) {
	if c.state == nil {
		return nil, false
	}
	_, state, err := c.state.ResumptionState()
	if err != nil {
		return nil, false
	}
	s, err := tls.NewResumptionState(c.ticket, state)
	return s, err == nil
}

// helloWith is the first message of a client of TLS that shows a ticket which its server has
// chosen.
func helloWith(t *testing.T, ticket []byte) []byte {
	t.Helper()
	key := proctest.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"evil.example"}, NotAfter: time.Now().Add(time.Hour)}
	der := proctest.Value(x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key))(t)
	client := &tls.Config{ServerName: "evil.example", InsecureSkipVerify: true, ClientSessionCache: &tickets{ticket: ticket}}
	served := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	theirs := proctest.Value(tls.Listen("tcp", "127.0.0.1:0", served))(t)
	defer theirs.Close()
	go func() {
		c, err := theirs.Accept()
		if err == nil {
			_, _ = c.Write([]byte("x")) // the ticket comes before it
			c.Close()
		}
	}()
	c := proctest.Value(tls.Dial("tcp", theirs.Addr().String(), client))(t)
	_, err := io.ReadFull(c, make([]byte, 1))
	proctest.Must(t, err)
	c.Close()
	r := &recorder{}
	_ = tls.Client(r, client).Handshake() // nobody answers
	return r.written.Bytes()
}
