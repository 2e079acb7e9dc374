//go:build linux

package crashtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const modelKey = "sk-crashtest-51c8e2d9"

// model starts a model server that says what a script says, and returns its URL.
func model(t *testing.T, turns ...any) string {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	proctest.Must(t, os.WriteFile(script, proctest.Value(json.Marshal(map[string]any{"mode": "match", "turns": turns}))(t), 0o600))
	cmd := exec.Command(fakellm, "-script", script, "-key", modelKey)
	out := proctest.Value(cmd.StdoutPipe())(t)
	proctest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return strings.TrimSpace(proctest.Value(bufio.NewReader(out).ReadString('\n'))(t))
}

// Whatever dies while a command of a model runs: its changes are taken over once and whole, or
// not at all, and nothing of it lives on.
func TestACommandOfAModelOutlivesDeaths(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sleep  string
		roles  []string
		status tend.HealStatus
		after  string // commits, and the part
		boxed  bool   // in a sandbox
	}{
		"the worker":                {"1000", nil, tend.HealBroken, "2 bad\n", false},
		"the server":                {"3", []string{testdaemon.Server}, tend.HealReady, "3 good\n", false},
		"the keeper":                {"3", []string{testdaemon.Keeper}, tend.HealReady, "3 good\n", false},
		"the server and the keeper": {"3", []string{testdaemon.Server, testdaemon.Keeper}, tend.HealReady, "3 good\n", false},

		"the worker, of one in a sandbox":                {"1000", nil, tend.HealBroken, "2 bad\n", true},
		"the server and the keeper, of one in a sandbox": {"3", []string{testdaemon.Server, testdaemon.Keeper}, tend.HealReady, "3 good\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := func(name string, input any) any { return map[string]any{"tool": name, "input": input} }
			type m = map[string]any
			url := model(t,
				m{"name": "command", "expect": []string{"attempt 1 of 1"}, "reply": []any{tool("exec", m{"command": "rm -f new.txt; git show HEAD:other.txt > other.txt; git checkout -q HEAD staged.txt; echo good > part.txt; echo x > made; echo running; sleep " + c.sleep})}},
				m{"name": "restart", "expect": []string{"running", "[exit 0]", "new.txt was left as it is", "other.txt was left as it is", "staged.txt was left as it is"}, "reply": []any{tool("exec", m{"command": "rm made"}), tool("restart", m{})}},
				m{"name": "finish", "repeat": true, "reply": []any{tool("finish", m{"summary": "The part is good again."})}},
			)
			d := serve(t)
			cl := d.Connect(t)
			at, dir, keys, shown := place(nil), "", "", ", show: ["+filepath.Dir(proctest.Value(os.Executable())(t))+"]"
			if c.boxed {
				if at, dir = elsewhere["a sandbox"](t, cl); at == nil {
					return
				}
				keys, shown = at.keys(), ""
			}
			p := newProject(t, "true\n")
			if c.boxed {
				p = newProjectAt(t, at, dir, "true\n")
			}
			p.write(".tend/playbooks/part.yaml", "disabled: true\n")
			p.git("commit", "-q", "-m", "no playbook", ".tend")
			p.git("reset", "-q", "--soft", "HEAD~1")
			p.git("commit", "-q", "--amend", "-m", "base", ".tend")
			p.spoil()
			text := fmt.Sprintf("services:\n  web: {command: [sh, server.sh], cwd: %[1]s, %[5]senv: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}, restart: {delay: 50ms, max_delay: 200ms, max: 100}}\nhealer: {root: %[1]s, hold: 500ms, attempts: 1%[6]s, llm: {provider: anthropic, model: scripted, base_url: '%[4]s'}}\n", p.dir, serveRole, p.addr, url, keys, shown)
			proctest.Must(t, cl.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": modelKey}}))
			proctest.Must(t, cl.StartServices(t.Context()))
			command := func() (found int) {
				all, err := cl.List(t.Context(), process.Filter{Live: true, Labels: map[string]string{"tend.heal.command": "1"}})
				if err == nil && len(all) > 0 {
					found = all[0].PID
				}
				return found
			}
			proctest.Eventually(t, "the command runs", func() bool { return command() > 0 })
			time.Sleep(500 * time.Millisecond) // in which it may have come to its sleep; no moment matters
			if len(c.roles) == 0 {
				proctest.Must(t, syscall.Kill(worker(t, cl), syscall.SIGKILL))
			}
			for _, role := range c.roles {
				_ = syscall.Kill(d.Roles()[role], syscall.SIGKILL)
			}
			if !d.Settle(t.Context()) {
				t.Fatalf("not all roles came back: %v", d.Roles())
			}
			cl = d.Connect(t)
			e := repaired(t, cl)
			if s, ok := at.(inside); ok {
				p.at = inside{proctest.Value(cl.Sandbox(t.Context(), proctest.Value(s.sandbox.ID(t.Context()))(t)))(t)}
			}
			p.untouched()
			got := strings.TrimSpace(p.git("rev-list", "--count", "HEAD")) + " " + p.read("part.txt")
			if e.Status != c.status || e.Dirty || got != c.after || p.read("made") == "x\n" {
				t.Errorf("it is %+v, with %q and %q\n%s", e.Episode, got, p.read("made"), e.Transcript)
			}
			proctest.Eventually(t, "no command is left", func() bool { return command() == 0 })
		})
	}
}
