//go:build linux

package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

// binaries is the directory with tend and tend-keeper, and bare a tend that has
// no tend-keeper: the scripts run the real programs and the real roles.
var binaries, bare string

func TestMain(m *testing.M) {
	kernelfault.Main(os.Environ())
	// Tests that end their daemon must not end the one the developer works with.
	for _, name := range []string{"TEND_URL", "TEND_TOKEN", "TEND_STATE_DIR"} {
		os.Unsetenv(name)
	}
	flag.Set("test.parallel", "4") // they mostly wait
	os.Exit(testbin.Main(func(dir string) int {
		binaries, bare = filepath.Dir(testbin.Released.Tend(dir)), testbin.Bare.Tend(dir)
		return m.Run()
	}, testbin.Released, testbin.Bare))
}

func TestScripts(t *testing.T) {
	testscript.Run(t, scriptParams(t, "testdata/script"))
}

// TestSessionsOfDocuments runs what the documents show as sessions, each document with its own daemon.
func TestSessionsOfDocuments(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"README", "docs/tutorial", "docs/troubleshooting"} {
		text := proctest.Value(os.ReadFile("../../" + name + ".md"))(t)
		proctest.Must(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)+".txtar"), []byte(sessionScript(t, string(text))), 0o600))
	}
	testscript.Run(t, scriptParams(t, dir))
}

// TestASessionIsComparedWhole: what a session does not show is not printed, on either stream.
func TestASessionIsComparedWhole(t *testing.T) {
	for what, c := range map[string]struct {
		session string
		fails   bool
	}{
		"as it is shown":      {"$ echo a; echo b >&2\na\n…\n$ true\n", false},
		"a line more":         {"$ echo a; echo b\na\n$ true\n", true},
		"a line less":         {"$ echo a\na\nb\n$ true\n", true},
		"standard error":      {"$ echo a; echo b >&2\na\n$ true\n", true},
		"nothing is expected": {"$ echo a >&2\n$ true\n", true},
		"a line before":       {"$ echo x; echo a\na\n$ true\n", true},
		"it fails":            {"$ xargs /no/such </dev/null || true; false\n$ true\n", true},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			script := sessionScript(t, "<!-- session -->\n```console\n"+c.session+"$ true\n$ true\n```\n")
			proctest.Must(t, os.WriteFile(filepath.Join(dir, "session.txtar"), []byte(script), 0o600))
			r := &recordT{T: t}
			testscript.RunT(r, scriptParams(t, dir))
			if r.failed != c.fails {
				t.Errorf("it failed: %v", r.failed)
			}
		})
	}
}

// recordT notes that a script has failed.
type recordT struct {
	*testing.T
	failed bool
}

func (r *recordT) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() { // FailNow ends it
		defer close(done)
		f(r)
	}()
	<-done
}

func (r *recordT) Parallel()         {}
func (r *recordT) Verbose() bool     { return false }
func (r *recordT) Log(...any)        {}
func (r *recordT) Fatal(args ...any) { r.FailNow() }
func (r *recordT) FailNow() {
	r.failed = true
	runtime.Goexit()
}

func scriptParams(t *testing.T, dir string) testscript.Params {
	return testscript.Params{
		Dir:  dir,
		Cmds: scriptCommands(),
		Setup: func(env *testscript.Env) error {
			state := filepath.Join(env.WorkDir, "state")
			env.Setenv("PATH", binaries+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("TEND_STATE_DIR", state)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TERM", "xterm")
			env.Defer(func() { endDaemon(t, state) })
			return nil
		},
	}
}

// endDaemon ends what a script has started, whether it passed or not.
func endDaemon(t *testing.T, state string) {
	if _, err := os.Stat(state); err != nil {
		return
	}
	cmd := exec.Command(filepath.Join(binaries, "tend"), "--state-dir", state, "shutdown")
	if out, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(out, []byte("no daemon is running")) {
		t.Errorf("shut down %s: %v %s", state, err, out)
	}
	proctest.Eventually(t, "the roles of "+state+" end", func() bool { return len(testdaemon.Holders(state)) == 0 })
}

func alive(pid int) bool {
	stat, ok := procfs.ReadStat(pid)
	return ok && !stat.Dead()
}

// roles asks a daemon for the pids of its roles.
func roles(state, url string) map[string]int {
	args := []string{"--state-dir", state, "status", "--json"}
	if url != "" {
		args = append([]string{"--url", url}, args...)
	}
	out, err := exec.Command(filepath.Join(binaries, "tend"), args...).Output()
	if err != nil {
		return nil
	}
	var s statusFacts
	if json.Unmarshal(out, &s) != nil {
		return nil
	}
	pids := map[string]int{}
	for name, r := range s.Roles {
		pids[name] = r.PID
	}
	return pids
}

var sessionBlock = regexp.MustCompile("(?s)<!-- session -->\\s*```console\n(.*?)```")

// sessionScript turns "$ command" lines and the output below them into a script. All that a
// command prints is compared, standard error too. "…" in a line stands for anything in it.
func sessionScript(t *testing.T, readme string) string {
	t.Helper()
	blocks := sessionBlock.FindAllStringSubmatch(readme, -1)
	if blocks == nil {
		t.Fatal("README.md has no console block after <!-- session -->")
	}
	var session strings.Builder
	for _, block := range blocks {
		session.WriteString(block[1])
	}
	var script, files strings.Builder
	fmt.Fprintf(&script, "mkdir bin\nsymlink bin/tend -> %s/tend\n", binaries)
	var want []string
	expect := func() {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.Join(want, "\n")), "…", ".*")
		if pattern = strings.ReplaceAll(pattern, "\n", `\n`); want != nil {
			pattern += `\n`
		}
		fmt.Fprintf(&script, "stdout '%s'\n", strings.ReplaceAll(`\A`+pattern+`\z`, "'", "''"))
		want = nil
	}
	n := 0
	for line := range strings.Lines(session.String()) {
		line = strings.TrimSuffix(line, "\n")
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			want = append(want, line)
			continue
		}
		if n > 0 {
			expect()
		}
		if command == "make build" {
			continue // the programs under test are built already
		}
		n++
		fmt.Fprintf(&script, "exec sh command%d\n", n)
		fmt.Fprintf(&files, "-- command%d --\nexec 2>&1\n%s\n", n, command) // a terminal shows both
	}
	expect()
	if n < 4 {
		t.Fatalf("the session has %d commands; it should show what tend does", n)
	}
	return script.String() + files.String()
}
