package agent_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
)

// fakeProgram is test/fakellm, built once.
var fakeProgram string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		fakeProgram = testbin.FakeLLM(dir)
		return m.Run()
	}, testbin.Model))
}

// fake is a running test/fakellm.
type fake struct {
	URL string
	log string
	cmd *exec.Cmd
	err bytes.Buffer
}

const fakeKey = "sk-test-0123456789"

type m = map[string]any

// start runs a script: its turns, or the whole of it.
func start(t *testing.T, script m) *fake {
	t.Helper()
	dir := t.TempDir()
	f := &fake{log: filepath.Join(dir, "log")}
	b := proctest.Value(json.Marshal(script))(t)
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "script"), b, 0o600))
	f.cmd = exec.Command(fakeProgram, "-script", filepath.Join(dir, "script"), "-log", f.log, "-key", fakeKey)
	f.cmd.Stderr = &f.err
	out := proctest.Value(f.cmd.StdoutPipe())(t)
	proctest.Must(t, f.cmd.Start())
	line := proctest.Value(bufio.NewReader(out).ReadString('\n'))(t)
	f.URL = strings.TrimSpace(line)
	t.Cleanup(func() { f.end() })
	return f
}

func turns(ts ...m) m { return m{"turns": ts} }

func (f *fake) end() error {
	if f.cmd == nil {
		return nil
	}
	f.cmd.Process.Signal(syscall.SIGTERM)
	err := f.cmd.Wait()
	f.cmd = nil
	return err
}

// done checks that all turns were answered and each request was well formed.
func (f *fake) done(t *testing.T) {
	t.Helper()
	res := proctest.Value(http.Get(f.URL + "/__state"))(t)
	defer res.Body.Close()
	var state struct {
		TurnsLeft int `json:"turns_left"`
		Failures  []string
	}
	proctest.Must(t, json.NewDecoder(res.Body).Decode(&state))
	if state.TurnsLeft != 0 || len(state.Failures) > 0 {
		t.Errorf("%d turns are left; failures: %s", state.TurnsLeft, strings.Join(state.Failures, "\n"))
	}
	if err := f.end(); err != nil {
		t.Errorf("fakellm: %v\n%s", err, f.err.String())
	}
}

// asked is a request as the fake has logged it.
type asked struct {
	Path, Outcome string
	Body          json.RawMessage
}

func (f *fake) asked(t *testing.T) (all []asked) {
	t.Helper()
	b, err := os.ReadFile(f.log)
	if os.IsNotExist(err) {
		return nil
	}
	proctest.Must(t, err)
	for line := range bytes.Lines(b) {
		var a asked
		proctest.Must(t, json.Unmarshal(line, &a))
		all = append(all, a)
	}
	return all
}

// providers are both protocols: the fake speaks them with one script.
var providers = []struct {
	name string
	base string // after the address
	new  func(agent.Config) (agent.Model, error)
}{
	{"anthropic", "", agent.NewAnthropic},
	{"openai", "/v1", agent.NewOpenAI},
}

// both runs a test with each provider. conf may be nil.
func both(t *testing.T, script m, conf func(*agent.Config), test func(*testing.T, *fake, agent.Model)) {
	t.Helper()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, script)
			c := agent.Config{BaseURL: f.URL + p.base, Key: fakeKey, Model: "scripted", Backoff: time.Millisecond}
			if conf != nil {
				conf(&c)
			}
			test(t, f, proctest.Value(p.new(c))(t))
		})
	}
}
