//go:build unix

package tend_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

func TestResults(t *testing.T) {
	c := connected(t)
	for name, tc := range map[string]struct {
		cmd  tend.Cmd
		want tend.Result
	}{
		"success":      {tend.Shell("echo out; echo err >&2"), tend.Result{Success: true, Stdout: "out\n", Stderr: "err\n"}},
		"a code":       {tend.Shell("exit 3"), tend.Result{ExitCode: 3}},
		"a signal":     {tend.Shell("kill -TERM $$"), tend.Result{ExitCode: 143, Killed: true}},
		"a timeout":    {tend.Cmd{Spec: process.Spec{Argv: []string{"sleep", "1000"}, Timeout: 20 * time.Millisecond}}, tend.Result{ExitCode: 124, TimedOut: true, Killed: true}},
		"much output":  {tend.Cmd{Spec: process.Spec{Shell: "printf 0123456789; printf abc >&2"}, MaxOutput: 4}, tend.Result{Success: true, Stdout: "6789", StdoutDropped: 6, Stderr: "abc"}},
		"no stdin":     {tend.Shell("cat; echo end"), tend.Result{Success: true, Stdout: "end\n"}},
		"stdin":        {tend.Cmd{Spec: process.Spec{Shell: "cat; echo end"}, Stdin: strings.NewReader("in ")}, tend.Result{Success: true, Stdout: "in end\n"}},
		"stdin unread": {tend.Cmd{Spec: process.Spec{Shell: "exec <&-; echo end"}, Stdin: io.LimitReader(zeros{}, 20<<20)}, tend.Result{Success: true, Stdout: "end\n"}},
		"environment":  {tend.Cmd{Spec: process.Spec{Shell: "echo $A$B", Env: map[string]string{"A": "1", "B": "2"}}}, tend.Result{Success: true, Stdout: "12\n"}},
		"nothing kept": {tend.Cmd{Spec: process.Spec{Shell: "echo out"}, MaxOutput: -1}, tend.Result{Success: true, StdoutDropped: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := spawn(t, c, tc.cmd)
			got := proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t)
			if got.ExecutionTime <= 0 {
				t.Errorf("execution time %v", got.ExecutionTime)
			}
			got.ExecutionTime, got.Exit = 0, process.Exit{}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestWritersOfASpawnHaveSeenEverythingWhenWaitReturns(t *testing.T) {
	var out, errs strings.Builder
	cmd, want := numbered(10_000)
	cmd.Stdout, cmd.Stderr = &out, &errs
	p := spawn(t, connected(t), cmd)
	for range 2 {
		proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t)
		if out.String() != string(want) || errs.Len() != 0 {
			t.Fatalf("%d and %d bytes; want %d and 0", out.Len(), errs.Len(), len(want))
		}
	}
	var again []byte
	for ev, err := range p.Events(t.Context(), process.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, ev.Data...)
	}
	if string(again) != string(want) {
		t.Fatalf("%d bytes by events; want %d", len(again), len(want))
	}
}

// A descendant that holds the output open is waited for as long as was asked, and
// nothing is written after that.
func TestWaitDrainsForAsLongAsItIsTold(t *testing.T) {
	for drain, want := range map[time.Duration]string{0: "now\n", -1: "now\nlate\n"} {
		var out strings.Builder
		cmd := tend.Shell("echo now; (while ! test -e go; do sleep 0.01; done; echo late) & exit 0")
		cmd.Dir, cmd.Stdout = t.TempDir(), &out
		p := spawn(t, connected(t), cmd)
		proctest.Value(p.Raw().Wait(t.Context(), process.Until{}))(t)
		if drain < 0 {
			proctest.Must(t, os.WriteFile(filepath.Join(cmd.Dir, "go"), nil, 0o600))
		}
		res, err := p.Wait(t.Context(), tend.WaitOptions{Drain: drain})
		if err != nil || out.String() != want || res.Stdout != want {
			t.Errorf("drain %v: %q was written, and the result is %q, %v", drain, out.String(), res.Stdout, err)
		}
		if _, err := p.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Wait returns what failed on the way to or from a Cmd, with the whole result.
func TestWaitReturnsTheErrorOfAReaderOrWriter(t *testing.T) {
	broken := errors.New("broken")
	c := connected(t)
	for name, change := range map[string]func(*tend.Cmd){
		"stdin":  func(cmd *tend.Cmd) { cmd.Stdin = io.MultiReader(strings.NewReader("in"), iotest.ErrReader(broken)) },
		"stdout": func(cmd *tend.Cmd) { cmd.Stdout = failing{broken} },
		"stderr": func(cmd *tend.Cmd) { cmd.Stderr = failing{broken} },
	} {
		cmd := tend.Shell("cat; echo out; echo err >&2")
		change(&cmd)
		p := spawn(t, c, cmd)
		res, err := p.Wait(t.Context(), tend.WaitOptions{})
		if !errors.Is(err, broken) || !res.Success || !strings.HasSuffix(res.Stdout, "out\n") || res.Stderr != "err\n" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// An error about a field of a Cmd names that field.
func TestErrorsNameTheFieldsOfACmd(t *testing.T) {
	c := connected(t)
	for field, change := range map[string]func(*tend.Cmd){
		"Argv":                       func(cmd *tend.Cmd) { cmd.Argv = nil },
		"Argv[1]":                    func(cmd *tend.Cmd) { cmd.Argv[1] = "\x00" },
		"Dir":                        func(cmd *tend.Cmd) { cmd.Dir = "here" },
		"Env[A.b]":                   func(cmd *tend.Cmd) { cmd.Env = map[string]string{"A.b": "\x00"} },
		"Env":                        func(cmd *tend.Cmd) { cmd.Env = map[string]string{"=": ""} },
		"Argv and Env":               func(cmd *tend.Cmd) { cmd.Argv[1] = strings.Repeat("x", process.MaxSpecBytes) },
		"ID":                         func(cmd *tend.Cmd) { cmd.ID = "/" },
		"Name":                       func(cmd *tend.Cmd) { cmd.Name = "a\nb" },
		"Tag":                        func(cmd *tend.Cmd) { cmd.Tag = "\xff" },
		"Timeout":                    func(cmd *tend.Cmd) { cmd.Timeout = -1 },
		"KillWithoutReaders":         func(cmd *tend.Cmd) { cmd.KillWithoutReaders = -1 },
		"Retention.TTL":              func(cmd *tend.Cmd) { cmd.Retention.TTL = -1 },
		"Limits.OOMScoreAdj":         func(cmd *tend.Cmd) { cmd.Limits.OOMScoreAdj = 1001 },
		"Limits.CPUWeight":           func(cmd *tend.Cmd) { cmd.Limits.CPUWeight = -1 },
		"Limits.Rlimits[0].Resource": func(cmd *tend.Cmd) { cmd.Limits.Rlimits = []process.Rlimit{{Resource: 99}} },
		"Labels":                     func(cmd *tend.Cmd) { cmd.Labels = map[string]string{"": ""} },
		"Spec":                       func(cmd *tend.Cmd) { cmd.Inherit = 77 },
		"Stdin":                      func(cmd *tend.Cmd) { cmd.Stdin, cmd.StdinPipe = strings.NewReader(""), true },
	} {
		cmd := tend.Command("true", "x")
		change(&cmd)
		_, err := c.Spawn(t.Context(), cmd)
		want := "Cmd." + strings.ReplaceAll(field, " and ", " and Cmd.")
		if wrong, ok := errors.AsType[*process.InvalidError](err); !ok || wrong.Field != want {
			t.Errorf("%v; want an error that names %s", err, want)
		}
		value := reflect.ValueOf(cmd)
		for name := range strings.SplitSeq(regexp.MustCompile(`\[.*\]| and .*`).ReplaceAllString(field, ""), ".") {
			if value = reflect.Indirect(value); value.Kind() == reflect.Slice {
				value = value.Index(0)
			}
			if value = value.FieldByName(name); !value.IsValid() {
				t.Fatalf("a Cmd has no field %s", field)
			}
		}
	}
}

func TestAHandleTellsWhatRuns(t *testing.T) {
	c := connected(t)
	p := spawn(t, c, piped(tend.Shell("echo so far; read x")))
	if _, exited, err := p.ExitCode(t.Context()); exited || err != nil {
		t.Fatalf("exited %v, %v", exited, err)
	}
	line := make([]byte, 7)
	proctest.Value(io.ReadFull(p.Stdout(), line))(t)
	text, err := p.Output(t.Context())
	if err != nil || text.Stdout != "so far\n" || p.Stdout().Offset() != 7 {
		t.Fatalf("%+v at %d, %v", text, p.Stdout().Offset(), err)
	}
	q := proctest.Value(c.Attach(t.Context(), string(p.ID())))(t)
	defer q.Close()
	if q.PID() != p.PID() || q.PID() == 0 || q.Command() != "echo so far; read x" || q.Started().IsZero() {
		t.Fatalf("attached to pid %d, %q", q.PID(), q.Command())
	}
	proctest.Must(t, q.Stdin().CloseContext(t.Context()))
	if code, exited, err := waitCode(t, q); code != 1 || !exited || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if _, err := q.Stdin().Write([]byte("x")); !errors.Is(err, process.ErrStdinClosed) {
		t.Fatalf("write after close: %v", err)
	}
}

func waitCode(t *testing.T, p *tend.Process) (int, bool, error) {
	t.Helper()
	proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t)
	return p.ExitCode(t.Context())
}

func TestKillSaysWhetherItKilled(t *testing.T) {
	p := spawn(t, connected(t), tend.Command("sleep", "1000"))
	if killed, err := p.Kill(t.Context()); !killed || err != nil {
		t.Fatalf("killed %v, %v", killed, err)
	}
	res, err := p.Wait(t.Context(), tend.WaitOptions{})
	if err != nil || !res.Killed || res.ExitCode != 137 {
		t.Fatalf("%+v, %v", res, err)
	}
	if killed, err := p.Kill(t.Context()); killed || err != nil {
		t.Fatalf("killed again: %v, %v", killed, err)
	}
}

func TestAContextKillsOnlyWhenAsked(t *testing.T) {
	c := connected(t)
	p, q := spawn(t, c, tend.Command("sleep", "1000")), spawn(t, c, piped(tend.Command("cat")))
	ctx, cancel := context.WithCancel(t.Context())
	p.KillWhenDone(ctx)
	if stop := q.KillWhenDone(ctx); !stop() {
		t.Fatal("too late")
	}
	cancel()
	if res, err := p.Wait(t.Context(), tend.WaitOptions{}); err != nil || !res.Killed {
		t.Fatalf("%+v, %v", res, err)
	}
	proctest.Must(t, q.Stdin().Close())
	if res, err := q.Wait(t.Context(), tend.WaitOptions{}); err != nil || !res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestClosingAReaderEndsAReadThatWaits(t *testing.T) {
	c := connected(t)
	id := spawn(t, c, tend.Command("sleep", "1000")).ID()
	for i := range 20 { // before, while and after the stream is opened
		p := proctest.Value(c.Attach(t.Context(), string(id)))(t)
		ended := make(chan error, 1)
		go func() {
			_, err := p.Stdout().Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(time.Duration(i) * 100 * time.Microsecond) // any moment will do
		p.Close()
		if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("the read ended with %v", err)
		}
	}
}

func TestAManagerKillsAndReleasesByPID(t *testing.T) {
	m := connected(t).Processes()
	m.Env = map[string]string{"A": "base", "B": "base"}
	p := proctest.Value(m.Spawn(t.Context(), tend.Cmd{Spec: process.Spec{Shell: "echo $A $B; exec sleep 1000", Dir: "/", Env: map[string]string{"B": "own"}}}))(t)
	defer p.Close()
	if err := m.Release(t.Context(), p.PID()); !errors.Is(err, process.ErrRunning) {
		t.Fatalf("release of a running process: %v", err)
	}
	line := make([]byte, 9)
	if _, err := io.ReadFull(p.Stdout(), line); err != nil || string(line) != "base own\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if killed, err := m.Kill(t.Context(), p.PID()); !killed || err != nil {
		t.Fatalf("killed %v, %v", killed, err)
	}
	if _, err := m.Get(t.Context(), p.PID()); !errors.Is(err, process.ErrNotFound) {
		t.Fatalf("get after the release: %v", err)
	}
	if infos, err := m.List(t.Context()); len(infos) != 0 || err != nil {
		t.Fatalf("%d listed, %v", len(infos), err)
	}
	if killed, err := m.Kill(t.Context(), p.PID()); killed || err != nil {
		t.Fatalf("killed again: %v, %v", killed, err)
	}
}

func TestDialSaysWhatIsWrong(t *testing.T) {
	if _, err := tend.Dial(t.Context(), "unix:///no/such/socket", tend.Options{}); !errors.Is(err, process.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := tend.Dial(t.Context(), "localhost", tend.Options{}); err == nil || !strings.Contains(err.Error(), "http://HOST:PORT") {
		t.Error(err)
	}
}
