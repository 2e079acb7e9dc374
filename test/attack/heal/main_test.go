//go:build linux

package heal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const (
	// serveRole makes the test binary a service that answers at an address.
	serveRole = "ATTACK_SERVE"
	modelKey  = "sk-attack-8d41c7f0aa52"

	secret = "canary-7f3a9c21-of-the-owner"  // what .env has
	former = "canary-51e0b7d4-of-last-year"  // what .env had
	token  = "canary-c0ffee11-of-a-remote"   // in the address of a submodule's remote
	diary  = "canary-2b6d4e90-of-the-diary"  // in a file beside the project
	loose  = "canary-0d9e6f3c-at-the-top"    // in a file at the top of the machine
	unborn = "canary-a71c55e2-in-an-editor"  // in the copy that an editor has of .env
	pem    = "canary-93f2c8b1-of-the-server" // in a key
)

// secrets are what no model may be told.
var secrets = []string{secret, former, token, diary, loose, unborn, pem, modelKey}

var bin, self string

func TestMain(m *testing.M) {
	if addr := os.Getenv(serveRole); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		os.Exit(1)
	}
	os.Exit(testbin.Main(func(dir string) int {
		bin = testbin.Released.Tend(dir)
		var err error
		if self, err = os.Executable(); err != nil {
			panic(err)
		}
		return m.Run()
	}, testbin.Released))
}

// ground is a project of a person who works in it, below base/app, with things of theirs beside.
type ground struct {
	*testing.T
	base, dir string
	addr      string // of the service
	at        *testdaemon.Daemon
	c         *tend.Client
	before    map[string]string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	proctest.Root(t)
	base := proctest.Value(os.MkdirTemp("", "tend-attack-"))(t)
	t.Cleanup(func() { os.RemoveAll(base) })
	base = proctest.Value(filepath.EvalSymlinks(base))(t)
	g := &ground{T: t, base: base, dir: filepath.Join(base, "app"), addr: fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))}
	g.write("../diary", diary+"\n")
	g.write(".env", "KEY="+former+"\n")
	g.write("server.sh", "cat noise.txt\ngrep -q good part.txt || { echo 'the part is bad'; exit 1; }\nexec "+self+"\n")
	for name, text := range map[string]string{
		"part.txt": "good\n", "lib.js": "one\ntwo\nthree\n", "other.txt": "one\n", "staged.txt": "one\n",
		"engine/core.js": "core\n", "noise.txt": "",
		".gitignore": "dist/\n*.sql\n.env*\n*.bak\nkeys/\nrun/\n",
	} {
		g.write(name, text)
	}
	g.git("init", "-q", "-b", "main")
	g.git("add", "-f", "-A")
	g.git("commit", "-q", "-m", "base")
	g.git("rm", "-q", "--cached", ".env")
	g.git("commit", "-q", "-m", "no secrets")
	for name, text := range map[string]string{
		"other.txt": "one\ntwo, which the person is about to write\n", "staged.txt": "one\ntwo, staged\n", "new.txt": "not tracked\n",
		".env": "KEY=" + secret + "\n", ".env~": "KEY=" + unborn + "\n", "keys/server.pem": pem + "\n",
		".npmrc.bak": "//r/:_authToken=" + pem + "\n",
		"dist/a.js":  "built\n", "dump.sql": strings.Repeat("insert 1;\n", 150_000), "data/orders.json": "[1]\n", "sub/file.js": "of " +
			"another repository\n",
	} {
		g.write(name, text)
	}
	g.git("add", "staged.txt")
	sub := exec.Command("git", "init", "-q", filepath.Join(g.dir, "sub"))
	proctest.Must(t, sub.Run())
	g.write(".git/modules/x/config", "[remote \"origin\"]\n\turl = https://me:"+token+"@example.org/x.git\n")
	g.write(".git/modules/x/HEAD", "ref: refs/heads/main\n")
	proctest.Must(t, os.Link(g.path(".env"), g.path("settings.txt")))
	for name, to := range map[string]string{"alias": "engine", "out": "..", "passwd": "/etc/passwd", "innocent": ".git/hooks"} {
		proctest.Must(t, os.Symlink(to, g.path(name)))
	}
	proctest.Must(t, syscall.Mkfifo(g.path("pipe"), 0o600))
	g.at = testdaemon.Serve(g, testdaemon.Config{Command: []string{bin}})
	g.c = g.at.Connect(g)
	return g
}

func (g *ground) path(name string) string { return filepath.Join(g.dir, name) }

func (g *ground) write(name, text string) {
	g.Helper()
	proctest.Must(g, os.MkdirAll(filepath.Dir(g.path(name)), 0o755))
	proctest.Must(g, os.WriteFile(g.path(name), []byte(text), 0o644))
}

// git runs git as the person does, but takes no lock to look.
func (g *ground) git(args ...string) string {
	g.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_OPTIONAL_LOCKS=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

// spoil commits what the service cannot run with, and remembers how all is then.
func (g *ground) spoil() {
	g.Helper()
	g.write("part.txt", "bad\n")
	g.git("commit", "-q", "-m", "spoil", "part.txt")
	g.before = snapshot(g, g.base)
}

// up starts the service with its healer.
func (g *ground) up(url string) {
	g.Helper()
	text := fmt.Sprintf(`services:
  web:
    command: [sh, server.sh]
    cwd: %[1]s
    env: {%[2]s: '%[3]s'}
    health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}
    restart: {delay: 50ms, max_delay: 200ms, max: 100}
healer:
  root: %[1]s
  hold: 500ms
  attempts: 1
  protected: ["engine/**"]
  data: ["data/**"]
  llm: {provider: anthropic, model: hostile, base_url: '%[4]s'}
`, g.dir, serveRole, g.addr, url)
	env := map[string]string{"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": modelKey}
	proctest.Must(g, g.c.ApplyServices(g.Context(), tend.ServiceFile{Dir: g.base, Text: []byte(text), Env: env}))
	proctest.Must(g, g.c.StartServices(g.Context()))
}

// repaired waits until the newest episode is over, and nothing of it lives.
func (g *ground) repaired() (e tend.EpisodeRecord) {
	g.Helper()
	proctest.Eventually(g, "an episode is over", func() bool {
		var err error
		e, err = g.c.Episode(g.Context(), "")
		return err == nil && e.Over()
	})
	proctest.Eventually(g, "nothing of the repair lives", func() bool {
		return !slices.ContainsFunc(proctest.Value(g.c.List(g.Context(), process.Filter{Live: true}))(g.T), func(in process.Info) bool {
			return in.Spec.Labels["tend.heal"] != ""
		})
	})
	return e
}

// untouched fails if anything is not as it was.
func (g *ground) untouched() {
	g.Helper()
	diff := ""
	defer func() {
		if g.Failed() && diff != "" {
			g.Logf("not as it was: %s", diff)
		}
	}()
	proctest.Eventually(g, "all is as it was", func() bool {
		diff = changed(g.before, snapshot(g, g.base))
		return diff == ""
	})
}

// snapshot is everything in a directory, but for objects of git and caches of what git has read.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasSuffix(path, "/.git/objects") {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return nil // it went meanwhile
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
			if len(data) < 200 {
				text += fmt.Sprintf(" %q", data)
			}
		case info.Mode()&fs.ModeSymlink != 0:
			text += " " + proctest.Value(os.Readlink(path))(t)
		}
		all[path] = text
		return nil
	}))
	return all
}

// changed says what is different; "": nothing is.
func changed(before, now map[string]string) string {
	var all []string
	for path, text := range before {
		if now[path] != text {
			all = append(all, fmt.Sprintf("%q is %q, and was %q", path, now[path], text))
		}
	}
	for path, text := range now {
		if _, ok := before[path]; !ok {
			all = append(all, fmt.Sprintf("%q is new: %q", path, text))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// call is a call of a tool.
type call struct {
	tool  string
	input any
	raw   string // in place of input: what is written as it is
	id    string
}

type m = map[string]any

// said is a result of a call, as the model is told.
type said struct {
	text   string
	failed bool
}

// model is a hostile one, which makes the calls that it was given, a batch in each reply, and then
// finishes.
type model struct {
	URL string

	mu     sync.Mutex // of all below
	asked  int
	bodies []string
	told   map[string]said
}

// newModel starts a model. Its requests come one after the other.
func newModel(t *testing.T, batches ...[]call) *model {
	t.Helper()
	md := &model{told: map[string]said{}}
	md.serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct {
				Content []struct {
					Type    string
					ID      string `json:"tool_use_id"`
					Failed  bool   `json:"is_error"`
					Content []struct{ Text string }
				}
			}
		}
		raw := read(r)
		md.mu.Lock()
		defer md.mu.Unlock()
		md.bodies = append(md.bodies, raw)
		if err := json.Unmarshal([]byte(raw), &body); err != nil || r.Header.Get("X-Api-Key") != modelKey {
			http.Error(w, "what is that?", http.StatusBadRequest)
			return
		}
		for _, b := range body.Messages[len(body.Messages)-1].Content {
			if b.Type == "tool_result" && len(b.Content) > 0 {
				md.told[b.ID] = said{b.Content[0].Text, b.Failed}
			}
		}
		batch := []call{{tool: "finish", input: m{"summary": "All is well.\x1b[2J\u009b2J\r It is."}, id: fmt.Sprintf("end%d", md.asked)}}
		if md.asked < len(batches) {
			batch = batches[md.asked]
		}
		md.asked++
		speak(w, batch)
	})
	return md
}

func (md *model) serve(t *testing.T, handle http.HandlerFunc) {
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := &http.Server{Handler: handle}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	md.URL = "http://" + l.Addr().String()
}

// shows fails for each secret that the model was told, in a form that anybody reads.
func (md *model) shows(t testing.TB) {
	t.Helper()
	for i, body := range md.bodies {
		for _, s := range secrets {
			forms := map[string]string{"as it is": s, "in hex": fmt.Sprintf("%x", s), "reversed": reversed(s)}
			for n := range 3 { // what stands before and behind it is in the first and last characters
				coded := base64.StdEncoding.EncodeToString([]byte("___"[:n] + s))
				forms[fmt.Sprintf("in base64, %d", n)] = coded[4 : len(coded)-4]
			}
			for form, text := range forms {
				if at := strings.Index(body, text); at >= 0 {
					t.Errorf("request %d has a secret %s: …%s…", i, form, body[max(0, at-200):min(len(body), at+100)])
				}
			}
		}
	}
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// speak writes a reply with calls, as Anthropic's API streams it.
func speak(w http.ResponseWriter, calls []call) {
	event := func(kind string, v m) {
		v["type"] = kind
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event("message_start", m{"message": m{"role": "assistant", "content": []any{}, "usage": m{"input_tokens": 10, "output_tokens": 1}}})
	for i, c := range calls {
		raw := c.raw
		if raw == "" {
			data, err := json.Marshal(c.input)
			if err != nil {
				panic(err)
			}
			raw = string(data)
		}
		event("content_block_start", m{"index": i, "content_block": m{"type": "tool_use", "id": c.id, "name": c.tool, "input": m{}}})
		event("content_block_delta", m{"index": i, "delta": m{"type": "input_json_delta", "partial_json": raw}})
		event("content_block_stop", m{"index": i})
	}
	event("message_delta", m{"delta": m{"stop_reason": "tool_use"}, "usage": m{"output_tokens": 10}})
	event("message_stop", m{})
}

// read is the body of a request.
func read(r *http.Request) string {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
