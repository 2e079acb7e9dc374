//go:build linux

package domain

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const (
	token   = "the-token-of-the-daemon"
	name    = "tend.localhost"
	secret  = "what the victim's program serves"
	port    = "31180"
	patient = time.Minute
	// asNobody makes this program another user's client.
	asNobody = "call-as-nobody"
	nobody   = 65534
)

var bin string

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == asNobody {
		fmt.Print(call(os.Args[2], os.Args[3]))
		return
	}
	os.Exit(testbin.Main(func(dir string) int {
		bin = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

// tenant is a sandbox as the answer of its creation describes it.
type tenant struct {
	ID      string `json:"sandboxID"`
	Domain  string `json:"domain"`
	Token   string `json:"envdAccessToken"`
	Traffic string `json:"trafficAccessToken"`
}

// world is a daemon, a victim whose port is not public, and a sandbox of the attacker's.
type world struct {
	*testdaemon.Daemon
	addr   string // of TLS
	roots  *x509.CertPool
	victim tenant
	own    tenant
	client *tend.Client
	key    string
}

// open starts a daemon that answers at addresses, or where it does by itself.
func open(t *testing.T, at ...string) *world {
	proctest.Root(t)
	dir := proctest.Value(os.MkdirTemp("", "tend-attack-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "token")
	proctest.Must(t, os.WriteFile(file, []byte(token), 0o600))
	p := proctest.FreePort(t)
	w := &world{addr: fmt.Sprintf("127.0.0.1:%d", p), key: string(protocol.E2BKey(token)), roots: x509.NewCertPool()}
	flags := []string{"--tls", "own", "--domain", fmt.Sprintf("%s:%d", name, p), "--token-file", file}
	for _, address := range at {
		// The operator's rule is none for the daemon's own port.
		flags = append(flags, "--tls-listen", fmt.Sprintf("%s:%d", address, p), "--sandbox-reach", fmt.Sprintf("127.0.0.1:%d", p))
	}
	w.Daemon = testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Dir: dir, Flags: flags})
	w.roots.AppendCertsFromPEM(proctest.Value(os.ReadFile(filepath.Join(w.StateDir(), "tls", name, "ca.pem")))(t))
	w.client = proctest.Value(w.Dial(t.Context(), tend.Options{Token: token}))(t)
	t.Cleanup(func() { w.client.Close() })
	w.victim, w.own = w.create(t, false), w.create(t, true)
	proctest.Start(t, w.inside(t, w.victim), process.Spec{Shell: "mkdir /tmp/w; cd /tmp/w; echo \"" + secret + "\" > index.html; exec python3 -m http.server " + port})
	proctest.Eventually(t, "the victim serves", func() bool { return strings.Contains(w.asked(t, w.victim), secret) })
	return w
}

func (w *world) create(t *testing.T, public bool) (made tenant) {
	t.Helper()
	code, text := w.Ask(t, "POST", "/v2/sandboxes", fmt.Sprintf(`{"templateID":"base","timeout":600,"network":{"allowPublicTraffic":%t}}`, public),
		"X-API-Key", w.key, "Content-Type", "application/json")
	if code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	proctest.Must(t, json.Unmarshal([]byte(text), &made))
	return made
}

// inside has the processes of a sandbox.
func (w *world) inside(t *testing.T, of tenant) *tend.Client {
	t.Helper()
	sandbox := proctest.Value(w.client.Sandbox(t.Context(), of.ID))(t)
	return proctest.Value(sandbox.Client(t.Context()))(t)
}

// host is the name of a port of a sandbox.
func host(port string, of tenant) string { return port + "-" + of.ID + "." + name }

// asked is what one who may gets from the victim's program.
func (w *world) asked(t *testing.T, of tenant) string {
	return w.say(t, host(port, of), "GET / HTTP/1.1\r\nHost: "+host(port, of)+"\r\nE2b-Traffic-Access-Token: "+of.Traffic+"\r\n\r\n")
}

// say sends bytes on a connection that was opened for a name (SNI), and returns the answer, with its header.
func (w *world) say(t *testing.T, sni, request string) string {
	t.Helper()
	raw := proctest.Value(net.Dial("tcp", w.addr))(t)
	defer raw.Close()
	proctest.Must(t, raw.SetDeadline(time.Now().Add(patient)))
	// Clients refuse a certificate for a wrong name; an attacker does not.
	conn := tls.Client(raw, &tls.Config{ServerName: sni, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	proctest.Must(t, conn.Handshake())
	_, err := io.WriteString(conn, request)
	proctest.Must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // a part is an answer, too
	return fmt.Sprintf("%s %v %s", res.Status, res.Header, body)
}

// get is a request with lines of header.
func get(target, host string, lines ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

// attempt is one of an attacker: its answer must begin with one of the statuses.
type attempt struct {
	does, sni, request string
	statuses           string
}

func (w *world) attempts() []attempt {
	victim, own, api := host(port, w.victim), host(port, w.own), "api."+name
	mine := host("49983", w.own)
	traffic, key := "E2b-Traffic-Access-Token: "+w.own.Traffic, "X-API-Key: "+w.key
	bearer := "Authorization: Bearer " + token
	byHeader := []string{"E2b-Sandbox-Id: " + w.victim.ID, "E2b-Sandbox-Port: " + port}
	return []attempt{
		{"asks for the victim on a connection for its own sandbox", own, get("/", victim, "E2b-Traffic-Access-Token: "+w.victim.Traffic), "421"},
		{"asks for the victim without its token", victim, get("/", victim), "403"},
		{"asks for the victim with the token of its own ports", victim, get("/", victim, traffic), "403"},
		{"calls the victim's envd with its own token", host("49983", w.victim), get("/files?path=/etc/passwd&username=root", host("49983", w.victim), "X-Access-Token: "+w.own.Token), "401"},
		{"names the victim in an absolute target", own, get("https://"+victim+"/", own), "421"},
		{"names itself in an absolute target, and the API in Host", own, get("https://"+own+"/v2/sandboxes", api, key), "502"},
		{"names the API in an absolute target on its own connection", own, get("https://"+api+"/v2/sandboxes", own, key), "421"},
		{"names the victim in headers on the name of its own", own, get("/", own, byHeader...), "502"},
		{"names the victim in headers at sandbox.D", "sandbox." + name, get("/", "sandbox."+name, byHeader...), "403"},
		{"names the victim in headers at the API", api, get("/", api, byHeader...), "403"},
		{"calls the API on a connection for its own sandbox", own, get("/v2/sandboxes", api, key), "421"},
		{"calls its own sandbox on a connection for the API", api, get("/v2/sandboxes", own, key), "421"},
		{"calls the API by the name of its port", own, get("/v2/sandboxes", own, key), "502"},
		{"calls the API by the name of envd", mine, get("/v2/sandboxes", mine, key), "404"},
		{"calls the API at sandbox.D with the headers of envd", "sandbox." + name,
			get("/v2/sandboxes", "sandbox."+name, key, "E2b-Sandbox-Id: "+w.own.ID, "E2b-Sandbox-Port: 49983"), "404"},
		{"calls the API at sandbox.D without headers", "sandbox." + name, get("/v2/sandboxes", "sandbox."+name, key), "404"},
		{"asks for the metrics by the name of envd", mine, get("/-/metrics", mine, bearer), "404"},
		{"asks for the keys by the name of envd", mine, get("/-/clients", mine, bearer), "404"},
		{"asks for the keys without the token", api, get("/-/clients", api), "401"},
		{"opens the page at the API", api, get("/ui/", api), "404"},
		{"opens the page's session at the API", api, get("/ui/session", api), "404"},
		{"opens the root at the API", api, get("/", api), "404"},
		{"opens the page at the API in upper case", api, get("/ui/", strings.ToUpper(api)), "404"},
		{"opens the page at the API with the dot of the root", api, get("/ui/", api+"."), "404"},
		{"opens the page at the API by a doubled slash", api, get("//ui/", api), "404 301 307"},
		{"opens the page at the API by a dot", api, get("/x/../ui/", api), "404 301 307"},
		{"opens the page by the name of its port", own, get("/ui/", own), "502"},
		{"opens the page by the name of envd", mine, get("/ui/", mine), "404"},
		{"opens the page at sandbox.D", "sandbox." + name, get("/ui/", "sandbox."+name), "404"},
		{"opens the page at another name below", "foo." + name, get("/ui/", "foo."+name), "421"},
		{"asks with two dots at the end", api, get("/v2/sandboxes", api+"..", key), "421"},
		{"asks for the victim in upper case", victim, get("/", strings.ToUpper(victim)), "403"},
		{"asks for the victim with the dot of the root", victim, get("/", victim+"."), "403"},
		{"asks for the victim with the dot, on its own connection", own, get("/", victim+"."), "421"},
		{"writes the name in punycode", own, get("/", "xn--"+own), "421"},
		{"writes a dot of another script", own, get("/", strings.Replace(victim, ".", "\u3002", 1)), "400 421"},
		{"writes a letter that is the same in lower case", api, get("/ui/", "api.tend.localho\u017ft"), "400 421 404"},
		{"puts another name before a port", own, get("/", victim+":443"), "421"},
		{"puts a user before the name", own, get("/", own+"@"+victim), "400 421"},
		{"puts two Hosts", own, "GET / HTTP/1.1\r\nHost: " + own + "\r\nHost: " + victim + "\r\n\r\n", "400"},
		{"puts no Host", own, "GET / HTTP/1.0\r\n\r\n", "421"},
		{"asks without a name in the handshake", "", get("/v2/sandboxes", api, key), "421"},
		{"asks for the address", "", get("/v2/sandboxes", w.addr, key), "421"},
		{"asks two levels below", "a." + own, get("/v2/sandboxes", "a."+own, key), "502"},
		{"asks for another domain that ends the same", "evil" + name, get("/v2/sandboxes", "evil"+name, key), "421"},
		{"says in forwarded headers that it asked for the victim", own,
			get("/", own, "X-Forwarded-Host: "+victim, "Forwarded: host="+victim, "X-Original-Host: "+victim), "502"},
		{"says in forwarded headers that it asked for the API", mine,
			get("/v2/sandboxes", mine, key, "X-Forwarded-Host: "+api, "Forwarded: host="+api), "404"},
		{"uses the daemon as a proxy", own, "CONNECT " + victim + ":443 HTTP/1.1\r\nHost: " + victim + "\r\n\r\n", "421 405"},
		{"calls the machine's envd at the domain", name, get("/files?path=/etc/passwd", name), "401"},
		{"calls the machine's envd at the API", api, get("/files?path=/etc/passwd", api, "X-Access-Token: "+w.own.Token), "401 404 502"},
	}
}

func TestNoNameReachesWhatIsAnothers(t *testing.T) {
	t.Parallel()
	w := open(t)
	roles := w.Roles()
	for _, a := range w.attempts() {
		t.Run(a.does, func(t *testing.T) {
			answer := w.say(t, a.sni, a.request)
			status, _, _ := strings.Cut(answer, " ")
			if !slices.Contains(strings.Fields(a.statuses), status) || strings.Contains(answer, secret) {
				t.Errorf("the answer is %.400q, want the status %s", answer, a.statuses)
			}
			for role, pid := range w.Roles() {
				if roles[role] != pid {
					t.Errorf("the %s was pid %d, and is %d", role, roles[role], pid)
				}
			}
		})
	}
	if got := w.asked(t, w.victim); !strings.Contains(got, secret) {
		t.Errorf("in the end, one who may gets %q", got)
	}
}

// A client may send requests for other names on a connection of HTTP/2, because the certificate is for them, too.
func TestAConnectionIsForOneName(t *testing.T) {
	t.Parallel()
	w := open(t)
	var dials int
	client := &http.Client{Timeout: patient, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: w.roots, ServerName: host("49983", w.own)},
		DialContext: func(_ context.Context, network, _ string) (net.Conn, error) {
			dials++
			return net.Dial(network, w.addr)
		},
	}}
	defer client.CloseIdleConnections()
	ask := func(authority, path string, header ...string) (status int, text string) {
		req := proctest.Value(http.NewRequestWithContext(t.Context(), "GET", "https://"+host("49983", w.own)+path, nil))(t)
		req.Host = authority
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res := proctest.Value(client.Do(req))(t)
		defer res.Body.Close()
		if res.ProtoMajor != 2 {
			t.Errorf("it is %s", res.Proto)
		}
		return res.StatusCode, string(proctest.Value(io.ReadAll(res.Body))(t))
	}
	for range 2 {
		if code, text := ask(host("49983", w.own), "/health"); code != http.StatusNoContent {
			t.Fatalf("its own envd: %d %s", code, text)
		}
		for _, authority := range []string{host(port, w.victim), host(port, w.own), "api." + name, name, "example.com"} {
			code, text := ask(authority, "/v2/sandboxes", "X-API-Key", w.key, "E2b-Traffic-Access-Token", w.victim.Traffic)
			if code != http.StatusMisdirectedRequest || strings.Contains(text, secret) {
				t.Errorf(":authority %s: %d %s", authority, code, text)
			}
		}
	}
	if dials != 1 {
		t.Errorf("%d connections were opened", dials)
	}
}

// Whatever a caller says of a proxy, links are of the name that it came by.
func TestForwardedHeadersMakeNoLink(t *testing.T) {
	t.Parallel()
	w := open(t)
	api := "api." + w.own.Domain
	answer := w.say(t, "api."+name, get("/templates/any/files/"+strings.Repeat("a", 64), api, "X-API-Key: "+w.key,
		"X-Forwarded-Host: evil.example", "X-Forwarded-Proto: http", "Forwarded: host=evil.example;proto=http"))
	if !strings.Contains(answer, `"url":"https://`+api+"/-/e2b/uploads/") {
		t.Errorf("the answer is %q", answer)
	}
}

// fromInside is what a program of the attacker's own sandbox tries: TLS to each address that might be the machine's, and each name by
// the way that leads to its own envd. It prints what opens, and what answers.
const fromInside = `
import http.client, socket, ssl, sys
port, key, names, addresses = int(sys.argv[1]), sys.argv[2], sys.argv[3].split(), sys.argv[4].split()
context = ssl._create_unverified_context()
for address in addresses:
    for name in names:
        try:
            with socket.create_connection((address, port), 3) as s, context.wrap_socket(s, server_hostname=name) as c:
                c.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nX-Api-Key: {key}\r\nConnection: close\r\n\r\n".encode())
                print("opened", address, name, c.recv(4096))
        except OSError:
            pass
for name in names:
    for path in ["/", "/v2/sandboxes", "/-/clients", "/-/metrics", "/ui/", "/files?path=/etc/passwd"]:
        c = http.client.HTTPConnection("127.0.0.1", 49983, timeout=30)
        c.request("GET", path, headers={"Host": name, "X-Api-Key": key, "Authorization": "Bearer " + key, **dict(l.split(": ") for l in sys.argv[5:])})
        r = c.getresponse()
        print("answered", r.status, name, path, r.read()[:400])
`

// From inside of a sandbox no name leads out of it, also if the daemon answers at all addresses of the machine.
func TestFromInsideNoNameLeadsOut(t *testing.T) {
	t.Parallel()
	w := open(t, "0.0.0.0")
	_, p, err := net.SplitHostPort(w.own.Domain)
	proctest.Must(t, err)
	names := []string{host(port, w.victim), host("49983", w.victim), "api." + name, "sandbox." + name, name, host(port, w.victim) + ":" + p}
	addresses := []string{"127.0.0.1", "192.0.0.1"}
	for _, a := range proctest.Value(net.InterfaceAddrs())(t) {
		addresses = append(addresses, a.(*net.IPNet).IP.String())
	}
	run := proctest.Start(t, w.inside(t, w.own), process.Spec{Argv: slices.Concat([]string{"/usr/bin/python3", "-c", fromInside, p, w.key, strings.Join(names, " "),
		strings.Join(addresses, " ")}, []string{"E2b-Sandbox-Id: " + w.victim.ID, "E2b-Sandbox-Port: " + port, "X-Forwarded-Host: " + host(port, w.victim)})})
	proctest.Wait(t, run, process.Until{EOF: true})
	lines := strings.Split(strings.TrimSpace(proctest.Output(t, run, process.Stdout)), "\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, "answered 404 ") && !(strings.HasPrefix(line, "answered 401 ") && strings.Contains(line, " /files?")) {
			t.Error(line)
		}
	}
	if want := len(names) * 6; len(lines) != want {
		t.Errorf("%d lines, want %d: %s", len(lines), want, proctest.Output(t, run, process.Stderr))
	}
}

// call returns the status of a request for a name at an address.
func call(addr, host string) string {
	conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, get("/v2/sandboxes", host)); err != nil {
		return err.Error()
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	return res.Status
}

// Without a token, the kernel says whose a connection is: TLS hides nothing of that. A page of a sandbox stays a stranger.
func TestWithoutATokenTheUserDecides(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	p := proctest.FreePort(t)
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Flags: []string{"--tls", "own", "--domain", fmt.Sprintf("%s:%d", name, p)}})
	w := &world{Daemon: d, addr: fmt.Sprintf("127.0.0.1:%d", p)}
	for _, host := range []string{"api." + name, name} {
		if got := call(w.addr, host); got != "200 OK" {
			t.Errorf("its own user at %s: %s", host, got)
		}
		other := exec.Command("/proc/self/exe", asNobody, w.addr, host)
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if got := string(proctest.Value(other.Output())(t)); got != "403 Forbidden" {
			t.Errorf("another user at %s: %s", host, got)
		}
		for _, lines := range [][]string{
			{"Origin: https://3000-abc." + name}, {"Origin: https://" + name + ".evil.example"}, {"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"},
		} {
			if got := w.say(t, host, get("/v2/sandboxes", host, lines...)); !strings.HasPrefix(got, "403 ") {
				t.Errorf("a page with %q at %s: %.200s", lines, host, got)
			}
		}
	}
	for _, addr := range []string{w.addr, fmt.Sprintf("[::1]:%d", p)} {
		if got := call(addr, "api."+name); got != "200 OK" {
			t.Errorf("at %s: %s", addr, got)
		}
	}
}

// A client that does not trust the authority often shows an error that names no way out; the daemon's log does.
func TestTheLogSaysWhatARefusingClientNeeds(t *testing.T) {
	t.Parallel()
	w := open(t)
	for range 3 {
		if c, err := tls.Dial("tcp", w.addr, &tls.Config{ServerName: "api." + name, RootCAs: x509.NewCertPool()}); err == nil {
			c.Close()
			t.Fatal("a client without authorities accepts the certificate")
		}
	}
	proctest.Eventually(t, "the log names the variables", func() bool {
		return strings.Contains(w.Log(), "SSL_CERT_FILE") && strings.Contains(w.Log(), "NODE_EXTRA_CA_CERTS")
	})
	if n := strings.Count(w.Log(), "client refused the certificate"); n != 1 {
		t.Errorf("it says so %d times", n)
	}
}
