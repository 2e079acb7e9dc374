//go:build linux

package limits

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// readElsewhere are the files of a state directory that a sandbox reads by a second path of it, and why they may be read: there
// is no secret in them.
var readElsewhere = map[string]string{
	"identity":           "the name of groups and marks, which nobody believes of a program inside",
	"page-sessions.json": "hashes of random IDs, and signatures by the secret",
	"roles.json":         "pids",
	"url":                "the daemon's addresses",
	"run/anchor.lock":    "empty",
	"run/keeper.lock":    "empty",
	"run/server.lock":    "empty",
	"run/lock":           "empty",
	"run/orphans":        "pids and statuses",
	"run/roles":          "pids",
	"run/server.argv":    "flags: the paths of files with secrets",
}

// secretsElsewhere are in files of the state directory of [TestNoFileOfAStateDirectoryIsReadElsewhere].
var secretsElsewhere = []string{"token-of-the-daemon", "variable-of-init", "key-of-the-model", "key-of-the-report", "variable-of-a-service",
	"variable-of-a-process"}

// TestNoFileOfAStateDirectoryIsReadElsewhere: whatever file a daemon keeps, root inside of a sandbox cannot read it by a second path
// of the state directory. All parts that keep something are in use.
func TestNoFileOfAStateDirectoryIsReadElsewhere(t *testing.T) {
	proctest.Root(t)
	seen, other := twice(t)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" { // a model, and a receiver of messages; a collector takes all
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(refuses.Close)
	token, providers := filepath.Join(other, "token"), filepath.Join(other, "providers")
	proctest.Must(t, os.WriteFile(token, []byte("token-of-the-daemon\n"), 0o600))
	proctest.Must(t, os.WriteFile(providers, []byte("providers:\n  openai: {base_url: "+refuses.URL+", key: key-of-a-provider}\n"), 0o600))
	proctest.Must(t, os.Mkdir(testdaemon.StateDir(other), 0o700))
	proctest.Must(t, os.WriteFile(testdaemon.StateDir(other)+"/daemon.log", []byte("x"), 0o600)) // of a daemon that started by itself
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Dir: other,
		Flags: []string{"--token-file", token, "--providers", providers, "--distant", "127.0.0.1:0"},
		Env:   append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+refuses.URL, "OTEL_METRICS_EXPORTER=none")})
	c := proctest.Value(d.Dial(t.Context(), tend.Options{Token: "token-of-the-daemon"}))(t)
	t.Cleanup(func() { c.Close() })
	thief := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull,
		Shares: []tend.SandboxShare{{Source: seen, Target: "/mnt/shared", ReadOnly: true}}}))(t)
	ways := map[string]string{"a share": "/mnt/shared"} // the machine's own paths show nothing of it
	project := t.TempDir()
	useAll(t, d, c, refuses.URL, project, "first")

	state := testdaemon.StateDir(seen)
	read := func(when string) {
		t.Helper()
		var files []string
		proctest.Must(t, filepath.WalkDir(state, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				files = append(files, path[len(state)+1:])
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it is of this moment
			}
			return err
		}))
		for _, name := range []string{"builds/", "daemon.log", "distant/uri", "e2b/blobs/", "e2b/builds/", "envd/settings.json",
			"gateway/keys.json",
			"healing/chats/", "healing/declared.json", "healing/episodes/", "healing/report.json", "langsmith/", "secret", "services/web.json",
			"telemetry/sent"} {
			if !slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, name) }) {
				t.Errorf("%s: there is no file %s: %q", when, name, files)
			}
		}
		allClosed(t, state)
		var shown bytes.Buffer
		proctest.Value(thief.Processes().Run(t.Context(), tend.Cmd{Spec: process.Spec{Argv: []string{"sh", "-c", "ls -A " + seen + " " + other + " 2>/dev/null; true"}},
			Stdout: &shown}))(t)
		if shown.Len() > 0 {
			t.Errorf("%s: a program inside sees %q", when, shown.String())
		}
		for way, dir := range ways {
			var out bytes.Buffer
			line := `cd ` + dir + ` && while read -r f; do head -c 1 -- "$f" && echo " $f"; done 2>/dev/null; true`
			proctest.Value(thief.Processes().Run(t.Context(), tend.Cmd{Spec: process.Spec{Argv: []string{"sh", "-c", line}},
				Stdin: strings.NewReader("open\nstate/" + strings.Join(files, "\nstate/") + "\n"), Stdout: &out}))(t)
			got := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got[0] != "x open" {
				t.Fatalf("%s: the program inside reads nothing by %s: %q", when, way, got)
			}
			for _, line := range got[1:] {
				_, name, _ := strings.Cut(line, " state/")
				if readElsewhere[name] == "" {
					t.Errorf("%s: a program inside reads %s by %s", when, name, way)
				}
			}
		}
	}
	read("at first")
	before := d.Roles()[testdaemon.Server]
	proctest.Must(t, syscall.Kill(before, syscall.SIGKILL))
	proctest.Eventually(t, "there is another server", func() bool { return d.Roles()[testdaemon.Server] != before && d.Settle(t.Context()) })
	c = proctest.Value(d.Dial(t.Context(), tend.Options{Token: "token-of-the-daemon"}))(t)
	t.Cleanup(func() { c.Close() })
	thief = proctest.Value(c.Sandbox(t.Context(), proctest.Value(thief.ID(t.Context()))(t)))(t)
	useAll(t, d, c, refuses.URL, project, "second")
	read("after another server")
	dial(t, d, thief, state, ways)
	for name := range readElsewhere { // and what is read is as the table says
		text, err := os.ReadFile(filepath.Join(state, name))
		for _, secret := range secretsElsewhere {
			if err != nil || bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s: %v, %q", name, err, text)
			}
		}
	}
}

// dial has a program inside connect to each socket of a state directory, by all ways.
func dial(t *testing.T, d *testdaemon.Daemon, thief *tend.Sandbox, state string, ways map[string]string) {
	t.Helper()
	var sockets []string
	proctest.Must(t, filepath.WalkDir(state, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSocket != 0 {
			sockets = append(sockets, path[len(state)+1:])
		}
		return err
	}))
	if len(sockets) < 3 || !slices.Contains(sockets, "run/keeper.sock") {
		t.Errorf("sockets: %q", sockets)
	}
	const script = `use Socket; for $name (@ARGV) { for $kind (1, 5) { socket($s, AF_UNIX, $kind, 0); connect($s, sockaddr_un($name)) or next;
		$open{$name} = $s; undef $s } } $| = 1; print "connected\n"; for $name (sort keys %open) { vec($r = "", fileno $open{$name}, 1) = 1;
		print $name, select($r, undef, undef, 60) && !sysread($open{$name}, $b, 1) ? " is closed\n" : " is served\n" }`
	for way, dir := range ways {
		cmd, want := tend.Cmd{Spec: process.Spec{Argv: []string{"perl", "-e", script}}}, ""
		for _, name := range sockets {
			cmd.Argv = append(cmd.Argv, dir+"/state/"+name)
			if way == "a share" {
				want += dir + "/state/" + name + " is closed\n"
			}
		}
		r, w := io.Pipe()
		cmd.Stdout = w
		p := proctest.Value(thief.Processes().Spawn(t.Context(), cmd))(t)
		out := bufio.NewReader(r)
		if line, err := out.ReadString('\n'); line != "connected\n" {
			t.Fatalf("by %s: %q, %v", way, line, err)
		}
		// The launcher looks at the next one on its socket when the keeper before is gone.
		if !d.Settle(t.Context()) {
			t.Fatalf("not all roles are there: %v", d.Roles())
		}
		proctest.Must(t, syscall.Kill(d.Roles()[testdaemon.Keeper], syscall.SIGKILL))
		go func() {
			_, err := p.Wait(t.Context(), tend.WaitOptions{})
			w.CloseWithError(err)
		}()
		if got, err := io.ReadAll(out); string(got) != want || err != nil {
			t.Errorf("by %s a program inside connects: %v, %q; want %q", way, err, got, want)
		}
	}
}

// useAll has each part of a daemon keep something.
func useAll(t *testing.T, d *testdaemon.Daemon, c *tend.Client, url, project, name string) {
	t.Helper()
	admitted := []string{"Authorization", "Bearer token-of-the-daemon", "X-Access-Token", "token-of-the-daemon",
		"X-Api-Key", "token-of-the-daemon", "Content-Type", "application/json"}
	ask := func(want int, method, path, body string) (v map[string]any) {
		t.Helper()
		status, text := d.Ask(t, method, path, body, admitted...)
		if status != want {
			t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
		_ = json.Unmarshal([]byte(text), &v) // some answers are empty
		return v
	}
	text := fmt.Sprintf(`services:
  web: {command: [sleep, inf], cwd: %[1]s, env: {A: variable-of-a-service}}
healer: {root: %[1]s, report: {url: '%[2]s/report', key_env: REPORT}, llm: {provider: anthropic, model: none, base_url: '%[2]s'}}
`, project, url)
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: project, Text: []byte(text), Env: map[string]string{
		"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": "key-of-the-model", "REPORT": "key-of-the-report"}}))
	proctest.Must(t, c.StartServices(t.Context()))
	proctest.Eventually(t, "a repair begins", func() bool {
		_, err := c.Heal(t.Context(), "web", false)
		return err == nil
	})
	proctest.Eventually(t, "a chat begins", func() bool {
		status, _ := d.Ask(t, "POST", "/tend.v1.ChatService/Send", `{"text":"hello","id":"`+name+`"}`, admitted...)
		return status == http.StatusOK
	})
	ask(204, "POST", "/init", `{"accessToken":"token-of-the-daemon","envVars":{"A":"variable-of-init"}}`)
	page := proctest.Value(c.OpenPage(t.Context()))(t)
	if status, text := d.Ask(t, "POST", "/ui/session", "", "Tend-Code", page.Code, "Content-Type", "application/json"); status >= 300 {
		t.Fatalf("a login to the page: %d %s", status, text)
	}
	_, secret, err := c.CreateKey(t.Context(), name, tend.KeyRules{})
	proctest.Must(t, err)
	if status, _ := d.Ask(t, "GET", "/api/gateway/openai/v1/models", "", "Authorization", "Bearer "+secret); status != http.StatusTeapot {
		t.Fatalf("the gateway: %d", status)
	}
	building, end := context.WithCancel(t.Context())
	var builds sync.WaitGroup
	t.Cleanup(func() { end(); builds.Wait() })
	running := make(chan struct{}, 16)
	builds.Go(func() {
		defer close(running)
		_, _ = c.BuildTemplate(building, tend.TemplateSpec{Name: "of-tend-" + name, Steps: []tend.TemplateStep{
			{Kind: "COPY", Args: []string{".", "/"}, Files: func(w io.Writer) error {
				files := tar.NewWriter(w)
				return errors.Join(files.WriteHeader(&tar.Header{Name: "file", Mode: 0o644}), files.Close())
			}},
			{Kind: "RUN", Args: []string{"sleep inf"}},
		}}, func(tend.BuildLog) { running <- struct{}{} }) // it ends with the server at the latest
	})
	<-running
	made := ask(202, "POST", "/v3/templates", `{"name":"`+name+`"}`)
	link := ask(201, "GET", fmt.Sprintf("/templates/%v/files/%064x", made["templateID"], time.Now().UnixNano()), "")
	req := proctest.Value(http.NewRequestWithContext(t.Context(), "PUT", link["url"].(string), strings.NewReader("tar")))(t)
	res := proctest.Value(http.DefaultClient.Do(req))(t)
	res.Body.Close()
	sandbox := ask(201, "POST", "/v2/sandboxes/boxes", `{"name":"`+name+`"}`)
	ask(200, "POST", fmt.Sprintf("/v2/sandboxes/boxes/%v/service-url", sandbox["name"]), `{"port":80}`)
	cmd := tend.Shell("echo out")
	cmd.Env, cmd.OnExitURL = map[string]string{"A": "variable-of-a-process"}, url+"/exit"
	proctest.Value(proctest.Value(c.Spawn(t.Context(), cmd))(t).Wait(t.Context(), tend.WaitOptions{}))(t)
}

// twice makes a directory that sandboxes see, and a second path of it that they do not. There is a file "open" in it.
func twice(t *testing.T) (seen, other string) {
	t.Helper()
	seen = proctest.Value(os.MkdirTemp("/opt", "tend-elsewhere-"))(t)
	t.Cleanup(func() { os.RemoveAll(seen) })
	other = proctest.Value(os.MkdirTemp("/var/lib", "tend-elsewhere-"))(t)
	t.Cleanup(func() { os.Remove(other) })
	proctest.Must(t, os.Chmod(seen, 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(seen, "open"), []byte("x"), 0o600))
	proctest.Must(t, syscall.Mount(seen, other, "", syscall.MS_BIND, ""))
	t.Cleanup(func() { proctest.Must(t, syscall.Unmount(other, syscall.MNT_DETACH)) })
	return seen, other
}
