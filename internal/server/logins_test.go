package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/protocol/page/pagetest"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// deaf is a part that looks at nothing but what it can write and read.
type deaf struct{ read chan string } // gets the end of each body

func (deaf) Name() string { return "deaf" }

func (d deaf) Routes() []module.Route {
	return []module.Route{
		{Pattern: "GET /deaf/writes", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; time.Sleep(10 * time.Millisecond) {
				if _, err = w.Write([]byte("more")); err == nil {
					err = http.NewResponseController(w).Flush()
				}
			}
		})},
		{Pattern: "PUT /deaf/reads", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			d.read <- fmt.Sprint(err)
		}), Body: func(string) module.Body { return module.File }},
	}
}

// A login that has ended ends what it has opened, whatever the handler does; another login, and
// who shows the token, continues.
func TestStreamsOfALoginEndWithIt(t *testing.T) {
	read := make(chan string, 2)
	s := serve(t, func(c *Config) { c.Token, c.Parts = "s3cret", []module.Part{deaf{read}} })
	sandbox := proctest.Value(s.cfg.Driver.Create(t.Context(), driver.Spec{Name: "p"}))(t)
	inside := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t) // a sandbox of the machine's own network
	defer inside.Close()
	const events = "/tend.v1.ProcessService/Events"
	for _, protocol := range []string{"h1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			c := s.client(t, protocol, "tcp")
			call := func(method, path string, header http.Header) *http.Response {
				req := proctest.Value(http.NewRequestWithContext(t.Context(), method, s.tcp+path, nil))(t)
				req.Header = header
				return proctest.Value(c.Do(req))(t)
			}
			token := http.Header{"Authorization": {"Bearer s3cret"}}
			asked := call("GET", "/ui/session", nil)
			asked.Body.Close()
			run := strings.Split(asked.Header.Get("WWW-Authenticate"), `"`)[1]
			// login returns what makes the header of a request.
			login := func() func(method, path, about string) http.Header {
				res := call("POST", "/ui/session", token)
				defer res.Body.Close()
				var a pagetest.Login
				proctest.Must(t, json.NewDecoder(res.Body).Decode(&a))
				count := uint64(0)
				return func(method, path, about string) http.Header {
					count++
					cookie := strings.Split(res.Header.Get("Set-Cookie"), ";")[0]
					return http.Header{"Cookie": {cookie}, "Tend-Page": {a.Proof(run, count, method, path, about, nil)}}
				}
			}
			// begins returns what gets the end of an answer, once it has begun.
			begins := func(method, path string, header http.Header, body io.Reader) <-chan string {
				req := proctest.Value(http.NewRequestWithContext(t.Context(), method, s.tcp+path, body))(t)
				req.Header = header.Clone()
				req.Header.Set("Content-Type", "application/connect+json")
				over, begun := make(chan string, 1), make(chan struct{})
				go func() {
					res, err := c.Do(req)
					close(begun)
					var text []byte
					if err == nil {
						defer res.Body.Close()
						text, err = io.ReadAll(res.Body)
					}
					over <- fmt.Sprint(string(text), err)
				}()
				if method != "PUT" {
					<-begun
				}
				return over
			}
			const text, overview = "\x00\x00\x00\x00\x02{}", "/tend.v1.OverviewService/Watch"
			message := func() io.Reader { return strings.NewReader(text) }
			one, two := login(), login()
			pr, pw := io.Pipe()
			defer pw.Close()
			begins("PUT", "/deaf/reads", one("PUT", "/deaf/reads", "2000000"), pr)
			stream := begins("POST", events, one("POST", events, pagetest.Of(text)), message())
			ending := map[string]<-chan string{
				"what only writes":   begins("GET", "/deaf/writes", one("GET", "/deaf/writes", pagetest.Of("")), nil),
				"what waits to read": read,
				"the overview":       begins("POST", overview, one("POST", overview, pagetest.Of(text)), message()),
			}
			if protocol == "h1" {
				ending["a port inside"] = dialInside(t, s, proctest.Value(sandbox.Info(t.Context()))(t).ID, inside, one)
			}
			going := map[string]<-chan string{
				"another login": begins("POST", events, two("POST", events, pagetest.Of(text)), message()),
				"the token":     begins("POST", events, token, message()),
			}
			proctest.Value(io.WriteString(pw, "half"))(t)
			if res := call("DELETE", "/ui/session", one("DELETE", "/ui/session", pagetest.Of(""))); res.StatusCode != http.StatusOK {
				t.Fatalf("the logout is %s", res.Status)
			}
			late := time.After(15 * time.Second)
			select {
			case text := <-stream:
				if !strings.Contains(text, `"unauthenticated"`) || !strings.Contains(text, "log in again") {
					t.Errorf("the stream ends with %s", text)
				}
			case <-late:
				t.Error("the stream goes on")
				late = time.After(0)
			}
			for name, over := range ending {
				select {
				case <-over:
				case <-late:
					t.Errorf("%s goes on", name)
					late = time.After(0)
				}
			}
			for name, over := range going {
				select {
				case text := <-over:
					t.Errorf("%s has ended: %s", name, text)
				default:
				}
			}
		})
	}
}

// dialInside connects to a port of a sandbox with a login, and returns what gets the end.
func dialInside(
	t *testing.T, s *served, sandbox driver.ID, inside net.Listener, login func(method, path, about string) http.Header,
) <-chan string {
	conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.tcp, "http://")))(t)
	t.Cleanup(func() { conn.Close() })
	path := fmt.Sprintf("/tend.v1.SandboxService/Dial?sandbox=%s&port=%d", sandbox, inside.Addr().(*net.TCPAddr).Port)
	shown := login("GET", path, pagetest.Of(""))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: tend-port\r\nCookie: %s\r\nTend-Page: %s\r\n\r\n",
		path, strings.TrimPrefix(s.tcp, "http://"), shown.Get("Cookie"), shown.Get("Tend-Page"))
	br := bufio.NewReader(conn)
	if res := proctest.Value(http.ReadResponse(br, nil))(t); res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the port inside is %s", res.Status)
	}
	far := proctest.Value(inside.Accept())(t)
	t.Cleanup(func() { far.Close() })
	over := make(chan string, 1)
	go func() { // the program inside sees the end, too
		text, err := io.ReadAll(far)
		over <- fmt.Sprint(string(text), err)
	}()
	return over
}

// Who only reads ends nobody's login, and no stranger does.
func TestOnlyAnOwnerEndsReadOnlyLogins(t *testing.T) {
	s := serve(t, func(c *Config) {
		c.Token, c.Session = "s3cret", func(r *http.Request) module.Login {
			return module.Login{Role: map[string]module.Role{"in": module.Owner, "reads": module.Reader}[r.Header.Get("Tend-Page")]}
		}
	})
	for proof, want := range map[string]int{"in": 200, "reads": 403, "": 401} {
		if got, text := do(t, s.client(t, "h1", "tcp"), "DELETE", s.tcp+"/ui/readers", "", map[string]string{"Tend-Page": proof}); got != want {
			t.Errorf("with %q it is %d %s; want %d", proof, got, text, want)
		}
	}
}
