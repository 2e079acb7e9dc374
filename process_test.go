package tend_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tend-run/tend"
	"github.com/tend-run/tend/process"
)

func TestResults(t *testing.T) {
	c := connected(t)
	for name, tc := range map[string]struct {
		cmd  tend.Cmd
		want tend.Result
	}{
		"success":      {tend.Cmd{Line: "echo out; echo err >&2"}, tend.Result{Success: true, Stdout: "out\n", Stderr: "err\n"}},
		"a code":       {tend.Cmd{Line: "exit 3"}, tend.Result{ExitCode: 3}},
		"a signal":     {tend.Cmd{Line: "kill -TERM $$"}, tend.Result{ExitCode: 143, Killed: true}},
		"a timeout":    {tend.Cmd{Args: []string{"sleep", "1000"}, Timeout: 20 * time.Millisecond}, tend.Result{ExitCode: 124, TimedOut: true, Killed: true}},
		"much output":  {tend.Cmd{Line: "printf 0123456789; printf abc >&2", MaxOutput: 4}, tend.Result{Success: true, Stdout: "6789", StdoutDropped: 6, Stderr: "abc"}},
		"no stdin":     {tend.Cmd{Line: "cat; echo end", NoStdin: true}, tend.Result{Success: true, Stdout: "end\n"}},
		"environment":  {tend.Cmd{Line: "echo $A$B", Env: map[string]string{"B": "2"}, Spec: process.Spec{Env: map[string]string{"A": "1", "B": "9"}}}, tend.Result{Success: true, Stdout: "12\n"}},
		"nothing kept": {tend.Cmd{Line: "echo out", MaxOutput: -1}, tend.Result{Success: true, StdoutDropped: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := spawn(t, c, tc.cmd)
			got, err := p.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
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

func TestCallbacksOfASpawnHaveSeenEverythingWhenWaitReturns(t *testing.T) {
	var mu sync.Mutex
	var out, errs strings.Builder
	into := func(b *strings.Builder) func([]byte) {
		return func(p []byte) { mu.Lock(); defer mu.Unlock(); b.Write(p) }
	}
	cmd, want := numbered(10_000)
	cmd.OnStdout, cmd.OnStderr = into(&out), into(&errs)
	p := spawn(t, connected(t), cmd)
	var again strings.Builder
	if _, err := p.Wait(t.Context(), tend.WaitOptions{OnStdout: into(&again)}); err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) || again.String() != string(want) || errs.Len() != 0 {
		t.Fatalf("%d, %d and %d bytes; want %d, %d and 0", out.Len(), again.Len(), errs.Len(), len(want), len(want))
	}
}

func TestAHandleTellsWhatRuns(t *testing.T) {
	c := connected(t)
	p := spawn(t, c, tend.Cmd{Line: "echo so far; read x"})
	if _, exited, err := p.ExitCode(t.Context()); exited || err != nil {
		t.Fatalf("exited %v, %v", exited, err)
	}
	line := make([]byte, 7)
	if _, err := io.ReadFull(p.Stdout(), line); err != nil {
		t.Fatal(err)
	}
	text, err := p.Output(t.Context())
	if err != nil || text.Stdout != "so far\n" || p.Stdout().Offset() != 7 {
		t.Fatalf("%+v at %d, %v", text, p.Stdout().Offset(), err)
	}
	q, err := c.Attach(t.Context(), string(p.ID()))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if q.PID() != p.PID() || q.PID() == 0 || q.Command() != "echo so far; read x" || q.Started().IsZero() {
		t.Fatalf("attached to pid %d, %q", q.PID(), q.Command())
	}
	if err := q.CloseStdin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, exited, err := waitCode(t, q); code != 1 || !exited || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if _, err := q.Stdin().Write([]byte("x")); !errors.Is(err, process.ErrStdinClosed) {
		t.Fatalf("write after close: %v", err)
	}
}

func waitCode(t *testing.T, p *tend.Process) (int, bool, error) {
	t.Helper()
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p.ExitCode(t.Context())
}

func TestKillSaysWhetherItKilled(t *testing.T) {
	p := spawn(t, connected(t), tend.Cmd{Args: []string{"sleep", "1000"}})
	if killed, err := p.Kill(t.Context()); !killed || err != nil {
		t.Fatalf("killed %v, %v", killed, err)
	}
	res, err := p.Wait(t.Context())
	if err != nil || !res.Killed || res.ExitCode != 137 {
		t.Fatalf("%+v, %v", res, err)
	}
	if killed, err := p.Kill(t.Context()); killed || err != nil {
		t.Fatalf("killed again: %v, %v", killed, err)
	}
}

func TestAContextKillsOnlyWhenAsked(t *testing.T) {
	c := connected(t)
	p, q := spawn(t, c, tend.Cmd{Args: []string{"sleep", "1000"}}), spawn(t, c, tend.Cmd{Args: []string{"cat"}})
	ctx, cancel := context.WithCancel(t.Context())
	p.KillWhenDone(ctx)
	if stop := q.KillWhenDone(ctx); !stop() {
		t.Fatal("too late")
	}
	cancel()
	if res, err := p.Wait(t.Context()); err != nil || !res.Killed {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := q.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	if res, err := q.Wait(t.Context()); err != nil || !res.Success {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestClosingAReaderEndsAReadThatWaits(t *testing.T) {
	p := spawn(t, connected(t), tend.Cmd{Args: []string{"sleep", "1000"}})
	ended := make(chan error, 1)
	go func() {
		_, err := p.Stdout().Read(make([]byte, 1))
		ended <- err
	}()
	p.Close()
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("the read ended with %v", err)
	}
}

func TestAManagerKillsAndReleasesByPID(t *testing.T) {
	m := connected(t).Processes()
	m.Env = map[string]string{"A": "base", "B": "base"}
	p, err := m.Spawn(t.Context(), tend.Cmd{Line: "echo $A $B; exec sleep 1000", Dir: "/", Env: map[string]string{"B": "own"}})
	if err != nil {
		t.Fatal(err)
	}
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
