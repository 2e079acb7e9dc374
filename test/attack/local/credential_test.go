//go:build linux

package local

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

const serverToken = "s3cret-of-the-server"

// sandbox is a sandbox, and what opens it.
type sandbox struct {
	ID, Dir              string
	Token, Ticket        string
	TrafficToken         string
	secret, secretInside string // the content of a file that is in it alone, and its path
}

// newBox makes a sandbox with a file.
func (d *target) newSandbox(t *testing.T, name string) sandbox {
	t.Helper()
	s := proctest.Value(d.client.CreateSandbox(t.Context(), tend.SandboxSpec{Name: name, Isolation: tend.IsolationNone}))(t)
	b := sandbox{ID: proctest.Value(s.Info(t.Context()))(t).ID}
	code, text := d.call(t, "POST", "/tend.v1.SandboxService/Access", fmt.Sprintf(`{"sandbox":%q}`, b.ID),
		"Content-Type: application/json", "Authorization: Bearer "+d.token)
	if err := json.Unmarshal([]byte(text), &b); err != nil || code != 200 || b.Token == "" || b.Ticket == "" {
		t.Fatalf("access: %d %s, %v", code, text, err)
	}
	// Without isolation a path is the machine's, so the file is readable for root of both: what
	// counts is who lets the request in.
	b.secret, b.secretInside = "the content of "+name, filepath.Join(d.marks, name)
	proctest.Must(t, os.WriteFile(b.secretInside, []byte(b.secret), 0o600))
	return b
}

func TestAWeakCredential(t *testing.T) {
	d := attack(t, serverToken)
	a, b := d.newSandbox(t, "a"), d.newSandbox(t, "b")
	var came atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came.Add(1)
		fmt.Fprintf(w, "the program got %q", r.Header)
	}))
	t.Cleanup(inside.Close)
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	name := func(b sandbox) string { return "Host: " + port + "-" + b.ID + ".localhost:" + d.port }
	tokenOfA := "X-Access-Token: " + a.Token
	key := proctest.Value(newKey(t, d))(t)

	// read asks for a file by envd's path, and returns what was won.
	read := func(t *testing.T, query string, header ...string) string {
		code, text := d.call(t, "GET", "/files?"+query, "", header...)
		if code < 300 {
			return fmt.Sprintf("%d %s", code, text)
		}
		return ""
	}
	pathOf := func(b sandbox) string { return "path=" + url.QueryEscape(b.secretInside) }
	signed := func(b sandbox, op string, expires *int64) string {
		q := pathOf(b) + "&signature=" + url.QueryEscape(envdfs.Sign(b.secretInside, op, "", b.Token, expires))
		if expires != nil {
			q += fmt.Sprintf("&signature_expiration=%d", *expires)
		}
		return q
	}
	if got := read(t, pathOf(a), tokenOfA, "E2b-Sandbox-Id: "+a.ID); !strings.Contains(got, a.secret) {
		t.Fatal("the token of a sandbox does not open it")
	}
	if got := read(t, signed(a, "read", nil)); !strings.Contains(got, a.secret) {
		t.Fatal("a signed URL does not open its file")
	}
	link := d.link(t, a, port)
	if _, text := d.call(t, "GET", link.path, "", "X-Langsmith-Sandbox-Service-Token: "+link.token); !strings.Contains(text,
		"the program got") {
		t.Fatal("a link to a port does not lead there: " + text)
	}
	// all asks each path with a credential in each header that any face reads.
	all := func(credential string, paths map[string]string) func(*testing.T, *target) string {
		return func(t *testing.T, d *target) string {
			for path, body := range paths {
				method := map[bool]string{true: "POST", false: "GET"}[body != ""]
				for _, header := range []string{"Authorization: Bearer ", "Authorization: ", "X-Access-Token: ", "X-Api-Key: ",
					"E2b-Traffic-Access-Token: ", "X-Langsmith-Sandbox-Service-Token: ", "Tend-Page: ", "Tend-Code: "} {
					code, text := d.call(t, method, path, body, "Content-Type: application/json", header+credential)
					if code < 300 {
						return fmt.Sprintf("%s with %s: %d %s", path, header, code, text)
					}
				}
			}
			return ""
		}
	}
	machine := map[string]string{
		"/tend.v1.ProcessService/List": "{}", "/tend.v1.SandboxService/List": "{}", "/tend.v1.AdminService/OpenPage": "{}",
		"/tend.v1.KeyService/List":                        "{}",
		"/tend.v1.FileService/Content?path=/etc/hostname": "", "/-/metrics": "", "/envs": "", "/metrics": "", "/process.Process/List": "{}",
		"/filesystem.Filesystem/Stat": `{"path":"/"}`,
		"/files?path=/etc/hostname":   "", "/ui/session?": "x", "/sandboxes": "", "/v2/sandboxes": "", "/templates": "",
		"/v2/sandboxes/boxes": "", "/api/v2/sandboxes/boxes": "",
		"/langsmith/" + a.ID + "/execute": `{"command":"id"}`, "/langsmith/" + a.ID + "/download?path=/etc/hostname": "",
		"/mcp": `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "/init": `{"envVars":{}}`,
	}
	without := func(keep ...string) map[string]string {
		out := map[string]string{}
		for path, body := range machine {
			out[path] = body
		}
		for _, path := range keep {
			delete(out, path)
		}
		return out
	}
	// byToken are envd's: without a name they are for the sandbox whose token is shown.
	byToken := []string{"/envs", "/metrics", "/process.Process/List", "/filesystem.Filesystem/Stat", "/files?path=/etc/hostname", "/init"}
	const machines, theirs = "the machine", "another sandbox"
	d.run(t, []attempt{
		{"The token of a sandbox is shown at each path of the machine, in each header.", machines, all(a.Token, without(byToken...))},
		{"The token of a sandbox is shown without a name where envd is, which is for that sandbox then.", machines, func(t *testing.T, d *target) string {
			for _, path := range []string{"/envs", "/process.Process/List", "/filesystem.Filesystem/Stat", "/files?" + pathOf(a)} {
				method := map[bool]string{true: "POST", false: "GET"}[machine[path] != ""]
				code, text := d.call(t, method, path, machine[path], "Content-Type: application/json", tokenOfA)
				known, named := d.call(t, method, path, machine[path], "Content-Type: application/json", tokenOfA, "E2b-Sandbox-Id: "+a.ID)
				if code != known || text != named {
					return fmt.Sprintf("%s: %d %s, and by name %d %s", path, code, text, known, named)
				}
			}
			return ""
		}},
		{"The token of the ports of a sandbox is shown at each path, in each header.", machines, all(a.TrafficToken, machine)},
		{"The ticket of a port is shown at each path, in each header.", machines, all(a.Ticket, machine)},
		{"A key of the gateway is shown at each path, in each header.", machines, all(key, machine)},
		{"The key that E2B's clients have, which is for sandboxes, is shown at the paths of the machine.", machines,
			all(string(protocol.E2BKey(serverToken)), without("/sandboxes", "/v2/sandboxes", "/templates"))},
		{"The token of the server with a letter less, more, or other is shown at each path.", machines, func(t *testing.T, d *target) string {
			for _, near := range []string{serverToken[1:], serverToken[:len(serverToken)-1], serverToken + "x", strings.ToUpper(serverToken),
				serverToken + serverToken, "*", "null"} {
				if won := all(near, map[string]string{"/tend.v1.ProcessService/List": "{}", "/envs": "", "/sandboxes": "",
					"/v2/sandboxes/boxes": ""})(t, d); won != "" {
					return won
				}
			}
			return ""
		}},
		{"The token of a sandbox is shown with the name of one that is made up, and of another.", machines, func(t *testing.T,
			d *target) string {
			for _, id := range []string{"debug_sandbox_id", b.ID, strings.ToUpper(b.ID), b.ID + " ", a.ID + "," + b.ID, a.ID + "x", "a", "b",
				"../" + b.ID} {
				if won := read(t, pathOf(b), tokenOfA, "E2b-Sandbox-Id: "+id); won != "" {
					return id + ": " + won
				}
			}
			return ""
		}},
		{"A request names one sandbox by its host and another by a header.", theirs, func(t *testing.T, d *target) string {
			for _, host := range []string{"49983-" + b.ID + ".localhost", "49983-" + b.ID + ".LOCALHOST.", port + "-" + b.ID + ".localhost"} {
				if won := read(t, pathOf(b), tokenOfA, "Host: "+host+":"+d.port, "E2b-Sandbox-Id: "+a.ID, "E2b-Sandbox-Port: 49983"); won != "" {
					return host + ": " + won
				}
			}
			return ""
		}},
		{"A request names two sandboxes by the same header.", theirs, func(t *testing.T, d *target) string {
			_, text := d.call(t, "GET", "/files?"+pathOf(b), "", tokenOfA, "E2b-Sandbox-Id: "+b.ID, "E2b-Sandbox-Id: "+a.ID)
			_, mcp := d.call(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type: application/json",
				"Accept: application/json, text/event-stream",
				"Authorization: Bearer "+a.Token, "Tend-Sandbox: a", "Tend-Sandbox: b")
			if strings.Contains(text, b.secret) || strings.Contains(mcp, "inputSchema") {
				return text + mcp
			}
			return ""
		}},
		{"The request line names one sandbox and Host another.", theirs, func(t *testing.T, d *target) string {
			for _, pair := range [][2]sandbox{{a, b}, {b, a}} {
				answer := d.ask(t, asks("GET", "http://49983-"+pair[0].ID+".localhost/files?"+pathOf(b), "",
					"Host: 49983-"+pair[1].ID+".localhost:"+d.port, "X-Access-Token: "+a.Token))
				if pair[0].ID != a.ID && admitted(answer) != "" { // the request line counts
					return answer
				}
			}
			return ""
		}},
		{"The token of a sandbox opens its port, and that of its port the sandbox.", "more than each is for", func(t *testing.T,
			d *target) string {
			if code, text := d.call(t, "GET", "/", "", name(a), "E2b-Traffic-Access-Token: "+a.Token, tokenOfA); code < 300 {
				return text
			}
			return read(t, pathOf(a), "X-Access-Token: "+a.TrafficToken, "E2b-Sandbox-Id: "+a.ID)
		}},
		{"The token of the ports of one sandbox opens those of another.", theirs, func(t *testing.T, d *target) string {
			for _, to := range [][]string{{name(b)}, {"E2b-Sandbox-Id: " + b.ID, "E2b-Sandbox-Port: " + port}, {name(b), "E2b-Sandbox-Id: " +
				a.ID, "E2b-Sandbox-Port: " + port}} {
				if code, text := d.call(t, "GET", "/", "", append(to, "E2b-Traffic-Access-Token: "+a.TrafficToken)...); code < 300 {
					return text
				}
			}
			return ""
		}},
		{"A ticket is used at the name of another sandbox, as a cookie, in a frame, by an image, and twice.", "the ports of a sandbox",
			func(t *testing.T, d *target) string {
				person := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
				frame := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}
				image := []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}
				enter := func(b sandbox, ticket string, headers []string) int {
					code, _ := d.call(t, "GET", "/.tend/open?ticket="+ticket, "", append(headers[:len(headers):len(headers)], name(b))...)
					return code
				}
				for what, code := range map[string]int{"another sandbox": enter(b, a.Ticket, person), "a frame": enter(a, a.Ticket, frame),
					"an image": enter(a, a.Ticket, image)} {
					if code != http.StatusForbidden {
						return fmt.Sprintf("%s: %d", what, code)
					}
				}
				if code, text := d.call(t, "GET", "/", "", append(person, name(a), "Cookie: tend-visit="+a.Ticket)...); code < 300 {
					return text
				}
				if code := enter(a, a.Ticket, person); code != http.StatusSeeOther {
					t.Fatalf("the ticket itself lets nobody in: %d", code)
				}
				if code := enter(a, a.Ticket, person); code != http.StatusForbidden {
					return fmt.Sprintf("twice: %d", code)
				}
				return ""
			}},
		{"A signed URL is used for another file, another sandbox, another user, and to write.", "what was not signed", func(t *testing.T,
			d *target) string {
			good := signed(a, "read", nil)
			signature := good[strings.Index(good, "&signature"):]
			for what, try := range map[string]string{
				"another file": pathOf(b) + signature, "two paths": pathOf(b) + "&" + good, "a path above": "path=" +
					url.QueryEscape(a.secretInside+"/../b") + signature,
				"a path with a double slash": "path=/" + url.QueryEscape(a.secretInside) + signature, "another user": good + "&username=root",
				"an expiry": good + "&signature_expiration=99999999999",
				"no expiry": good + "&signature_expiration=", "another letter": strings.Replace(good, "v1_", "v1_A", 1),
				"no version": strings.Replace(good, "v1_", "", 1),
			} {
				if won := read(t, try); won != "" {
					return what + ": " + won
				}
			}
			if won := read(t, good, "E2b-Sandbox-Id: "+b.ID); won != "" {
				return "another sandbox: " + won
			}
			past, future := time.Now().Add(-time.Minute).Unix(), time.Now().Add(time.Hour).Unix()
			for what, try := range map[string]string{
				"after its time": signed(a, "read", &past), "with a later time": strings.Replace(signed(a, "read", &past), fmt.Sprint(past),
					fmt.Sprint(future), 1),
				"with a second time": signed(a, "read", &past) + fmt.Sprintf("&signature_expiration=%d", future),
				"without its time":   strings.Split(signed(a, "read", &past), "&signature_expiration")[0],
			} {
				if won := read(t, try); won != "" {
					return what + ": " + won
				}
			}
			code, text := d.call(t, "POST", "/files?"+good,
				"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nwritten\r\n--x--\r\n",
				"Content-Type: multipart/form-data; boundary=x")
			if now := string(proctest.Value(os.ReadFile(a.secretInside))(t)); code < 300 || now != a.secret {
				return "written: " + text
			}
			return ""
		}},
		{"A URL that is signed with the token of a sandbox is shown for the machine.", machines, func(t *testing.T, d *target) string {
			return read(t, "path=/etc/hostname&signature="+url.QueryEscape(envdfs.Sign("/etc/hostname", "read", "", "", nil))) +
				read(t, "path=/etc/hostname&signature="+url.QueryEscape(envdfs.Sign("/etc/hostname", "read", "", "tsb_", nil)))
		}},
		{"A link to one port is used for another port, another sandbox, and other paths.", theirs, func(t *testing.T, d *target) string {
			before := came.Load()
			token := "X-Langsmith-Sandbox-Service-Token: " + link.token
			for _, path := range []string{
				"/langsmith/" + b.ID + "/service/" + port + "/", "/langsmith/" + a.ID + "/service/" + d.port + "/", "/langsmith/" + a.ID +
					"/service/0" + port + "/../../../" + b.ID + "/service/" + port + "/",
				"/langsmith/" + a.ID + "/service/%2e%2e/" + port + "/", "/langsmith/" + b.ID + "/service/" + port + "/~" + link.token + "/",
				"/langsmith/" + a.ID + "/link/" + link.token,
				"/langsmith/" + a.ID + "/execute/ws", "/langsmith/" + a.ID + "/tunnel", "/langsmith/" + a.ID + "/download?path=/etc/hostname",
			} {
				code, text := d.call(t, "GET", path, "", token, "X-Api-Key: "+link.token)
				if code < 300 || came.Load() != before {
					return fmt.Sprintf("%s: %d %s", path, code, text)
				}
			}
			return ""
		}},
		{"The page of another port acts with the cookie that a link has left in the browser.",
			"what the program in the sandbox does for its owner", func(t *testing.T, d *target) string {
				before := came.Load()
				cookie := "Cookie: langsmith-sandbox-service-token=" + link.token
				for _, ask := range [][]string{
					{"POST", link.path, "Origin: http://127.0.0.1:41249", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"},
					{"GET", link.path, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"},
					{"GET", link.path + "~a.b/", "Origin: http://127.0.0.1:41249", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: websocket"},
				} {
					code, text := d.call(t, ask[0], ask[1], "", append(ask[2:], cookie)...)
					if code < 300 || came.Load() != before {
						return fmt.Sprintf("%q: %d %s", ask, code, text)
					}
				}
				return ""
			}},
		{"A program in a sandbox waits for the credentials that come along when its port is opened.",
			"the login of the browser, the token of the server", func(t *testing.T, d *target) string {
				for _, way := range [][]string{
					{link.path, "X-Langsmith-Sandbox-Service-Token: " + link.token},
					{"/", name(a), "E2b-Traffic-Access-Token: " + a.TrafficToken},
					{"/", "E2b-Sandbox-Id: " + a.ID, "E2b-Sandbox-Port: " + port, "E2b-Traffic-Access-Token: " + a.TrafficToken},
				} {
					code, text := d.call(t, "GET", way[0], "", append(way[1:],
						"Cookie: own=1; tend-session-"+d.port+"-0123abcd=s3cret; __Host-tend-session-443-0123abcd=s3cret; tend-visit=s3cret",
						"Authorization: Bearer "+serverToken)...)
					if code != 200 || strings.Contains(text, "s3cret") || !strings.Contains(text, "own=1") {
						return fmt.Sprintf("%q: %d %s", way, code, text)
					}
				}
				return ""
			}},
		{"A link for an upload is used for other content, after its time, and to leave its directory.", "files of the daemon",
			func(t *testing.T, d *target) string {
				hash := strings.Repeat("ab", 32)
				future := fmt.Sprint(time.Now().Add(time.Hour).Unix())
				for _, token := range []string{
					hash + "." + future + ".", hash + "." + future + "." + strings.Repeat("0", 64), "..%2f..%2f" + hash + "." + future + "." +
						strings.Repeat("0", 64),
					hash + "." + future + "." + a.Token, hash + ".9223372036854775808." + strings.Repeat("0", 64), "." + future + ".",
				} {
					if code, text := d.call(t, "PUT", "/-/e2b/uploads/"+token, "content"); code < 300 {
						return token + ": " + text
					}
				}
				return ""
			}},
		{"A key of the gateway asks about another key, and reports in its name.", "the counts and the health of others", func(t *testing.T,
			d *target) string {
			second := proctest.Value(newKey(t, d))(t)
			proctest.Must(t, report(t, d, second, "ready"))
			proctest.Must(t, report(t, d, key, "broken"))
			_, text := d.call(t, "GET", "/api/sandbox/status?key="+second, "", "Authorization: Bearer "+second, "X-Api-Key: "+key)
			if !strings.Contains(text, "ready") {
				return "the status of the other key is now: " + text
			}
			return ""
		}},
	})
}

// newKey makes a key of the gateway, for one model.
func newKey(t *testing.T, d *target) (string, error) {
	d.mark++
	_, secret, err := d.client.CreateKey(t.Context(), fmt.Sprintf("key-%d", d.mark), tend.KeyRules{Models: []string{"one"}})
	return secret, err
}

// report tells the status of a machine with a key.
func report(t *testing.T, d *target, key, status string) error {
	code, text := d.call(t, "POST", "/api/sandbox/heal", fmt.Sprintf(`{"status":%q}`, status), "Content-Type: application/json",
		"Authorization: Bearer "+key)
	if code >= 300 {
		return fmt.Errorf("the report is %d %s", code, text)
	}
	return nil
}

// boxLink leads to a port of a sandbox.
type sandboxLink struct{ path, token string }

func (d *target) link(t *testing.T, b sandbox, port string) sandboxLink {
	t.Helper()
	code, text := d.call(t, "POST", "/v2/sandboxes/boxes/"+b.ID+"/service-url", `{"port":`+port+`}`, "Content-Type: application/json",
		"X-Api-Key: "+d.token)
	var made struct {
		ServiceURL string `json:"service_url"`
		Token      string `json:"token"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.Token == "" {
		t.Fatalf("a link: %d %s, %v", code, text, err)
	}
	return sandboxLink{strings.TrimPrefix(made.ServiceURL, d.URL), made.Token}
}
