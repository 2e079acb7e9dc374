//go:build linux

package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// terminal is a tend command with a terminal of its own, as a person has it.
type terminal struct {
	cmd  *exec.Cmd
	keys *os.File

	mu   sync.Mutex
	seen bytes.Buffer // guarded by mu
	end  chan struct{}

	close func() // closes the window
}

func openTerminal(t *testing.T, state string, args ...string) *terminal {
	t.Helper()
	return openWindow(t, state, pty.Winsize{Cols: 40, Rows: 10}, args...)
}

func openWindow(t *testing.T, state string, size pty.Winsize, args ...string) *terminal {
	t.Helper()
	x := &terminal{cmd: exec.Command(filepath.Join(binaries, "tend"), args...), end: make(chan struct{})}
	x.cmd.Env = append(os.Environ(), "TEND_STATE_DIR="+state, "TERM=xterm")
	x.keys = proctest.Value(pty.StartWithSize(x.cmd, &size))(t)
	x.start(t)
	t.Cleanup(x.close)
	return x
}

// start keeps what the terminal shows, to its end.
func (x *terminal) start(t *testing.T) {
	t.Helper()
	in := proctest.Value(newCancelReader(x.keys))(t)
	in.tty = false // its other end: nobody stops us
	go x.follow(in)
	x.close = sync.OnceFunc(func() {
		in.cancel()
		<-x.end
		in.release()
		x.keys.Close()
	})
}

func (x *terminal) follow(in io.Reader) {
	defer close(x.end)
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf)
		x.mu.Lock()
		x.seen.Write(buf[:n])
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen.String()
}

func (x *terminal) waitFor(t *testing.T, text string) {
	t.Helper()
	waitShown(t, x.text, text)
}

func (x *terminal) typeKeys(t *testing.T, keys string) {
	t.Helper()
	proctest.Value(io.WriteString(x.keys, keys))(t)
}

// status waits for the end of the command.
func (x *terminal) status(t *testing.T) int {
	t.Helper()
	select {
	case <-x.end:
	case <-time.After(time.Minute):
		x.cmd.Process.Signal(syscall.SIGQUIT) // to see where it is
		t.Fatalf("it does not end; the terminal shows %q", x.text())
	}
	stuck := time.AfterFunc(time.Minute, func() { x.cmd.Process.Kill() })
	defer stuck.Stop()
	if err := x.cmd.Wait(); err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			return exit.ExitCode()
		}
		t.Fatal(err)
	}
	return 0
}

// wantStatus waits for the end of the command, which is to have a status.
func (x *terminal) wantStatus(t *testing.T, want int) {
	t.Helper()
	if got := x.status(t); got != want {
		t.Errorf("it ended with %d; want %d: %q", got, want, x.text())
	}
}

func TestATerminalCanBeLeftAndComeBackTo(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)

	first := openTerminal(t, state, "run", "-t", "--name", "sh", "--", "sh", "-c",
		`stty size; trap 'echo resized' WINCH; while :; do read x && { [ "$x" = quit ] && exit 4; [ "$x" = size ] && echo "size $(stty size)"; echo "said $x"; }; done`)
	first.waitFor(t, "10 40")
	first.typeKeys(t, "hello\r")
	first.waitFor(t, "said hello")
	first.typeKeys(t, "\x1d")
	first.wantStatus(t, 0)
	if !strings.Contains(first.text(), "tend attach") {
		t.Errorf("the way back is not told: %q", first.text())
	}

	// The screen is there again, and the program hears of the size.
	second := openTerminal(t, state, "attach", "sh")
	second.waitFor(t, "said hello")
	second.waitFor(t, "resized")
	// It is asked for the size: dash loses the second of two signals that come at once.
	size := func(want string) {
		proctest.Eventually(t, want, func() bool {
			second.typeKeys(t, "size\r")
			return strings.Contains(second.text(), want)
		})
	}
	size("size 10 40")
	proctest.Must(t, pty.Setsize(second.keys, &pty.Winsize{Cols: 50, Rows: 20}))
	size("size 20 50")
	second.typeKeys(t, "quit\r")
	second.wantStatus(t, 4)
}

func TestControlCGoesToTheProcessOnTheTerminal(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	// The shell starts no program after the word: dash 0.5.12 loses a signal between
	// the vfork and the exec of one, and then waits for it.
	x := openTerminal(t, state, "run", "-t", "--", "sh", "-c", `echo ready; read never`)
	x.waitFor(t, "ready")
	x.typeKeys(t, "\x03")
	x.wantStatus(t, 130)
}

func TestControlCInACookedTerminalIsForwarded(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	x := openTerminal(t, state, "run", "--", "sh", "-c", `trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.02; done`)
	x.waitFor(t, "ready")
	x.typeKeys(t, "\x03")
	if got := x.status(t); got != 5 || !strings.Contains(x.text(), "caught") {
		t.Errorf("the status is %d, the output %q; want 5 from the trap", got, x.text())
	}
}

func TestNudgeChangesTheSizeTwice(t *testing.T) {
	for _, size := range []process.Size{{Cols: 80, Rows: 24}, {Cols: 1, Rows: 1}, {}} {
		p := &sizes{}
		if before, err := nudge(t.Context(), p, size); err != nil || before != (process.Size{Cols: 7, Rows: 5}) {
			t.Fatalf("nudge found the size %v (%v)", before, err)
		}
		if len(p.all) != 2 || p.all[0] == size || p.all[1] != size {
			t.Errorf("nudge to %v sets %v", size, p.all)
		}
	}
}

// sizes records what a terminal is resized to.
type sizes struct {
	process.Process
	all []process.Size
}

func (s *sizes) Resize(_ context.Context, r process.Resize) (before process.Size, err error) {
	before = process.Size{Cols: 7, Rows: 5}
	if len(s.all) > 0 {
		before = s.all[len(s.all)-1]
	}
	s.all = append(s.all, r.To)
	return before, nil
}

// TestASmallerWindowGivesTheSizeBack: to the clients that stay, when it leaves by the
// key and when it is closed.
func TestASmallerWindowGivesTheSizeBack(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	large := openTerminal(t, state, "run", "-t", "--name", "shared", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo $x $(stty size); done")
	large.waitFor(t, "ready")
	large.typeKeys(t, "alone\r")
	large.waitFor(t, "alone 10 40")
	for how, leave := range map[string]func(*terminal){
		"key":    func(x *terminal) { x.typeKeys(t, "\x1d") },
		"closed": func(x *terminal) { x.close() },
	} {
		small := openWindow(t, state, pty.Winsize{Cols: 30, Rows: 8}, "attach", "shared")
		small.waitFor(t, "alone")
		small.typeKeys(t, how+"-small\r")
		large.waitFor(t, how+"-small 8 30")
		leave(small)
		small.status(t)
		large.typeKeys(t, how+"-again\r")
		large.waitFor(t, how+"-again 10 40")
	}
}

// TestAttachToAProcessWithoutATerminalCanBeLeft: by the key, at any moment, and
// by ctrl-c; the line is edited here as ever.
func TestAttachToAProcessWithoutATerminalCanBeLeft(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	for name, line := range map[string]string{"cat": "run -d -i --name cat -- sh -c 'echo ready; exec cat'", "deaf": "run -d --name deaf -- sh -c 'echo ready; exec sleep 1000'"} {
		cmd := exec.Command("sh", "-c", filepath.Join(binaries, "tend")+" "+line)
		cmd.Env = append(os.Environ(), "TEND_STATE_DIR="+state)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", name, err, out)
		}
	}
	for _, tc := range []struct {
		name string
		args []string
		keys string
		want string // shown before the key is typed
	}{
		{"a process that reads", []string{"attach", "cat"}, "\x1d", "ready"},
		{"in the middle of a line", []string{"attach", "cat"}, "half a li\x1d", "ready"},
		{"a process without stdin", []string{"attach", "deaf"}, "\x1d", "ready"},
		{"watching only", []string{"attach", "--no-input", "cat"}, "x\x1d", "ready"},
		{"by ctrl-c", []string{"attach", "deaf"}, "\x03", "ready"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := openTerminal(t, state, tc.args...)
			x.waitFor(t, tc.want)
			x.typeKeys(t, tc.keys)
			x.waitFor(t, "tend: detached")
			x.wantStatus(t, 0)
		})
	}
	// What was typed before the key has reached the process, what was typed for
	// --no-input has not, and lines are edited before they are sent.
	x := openTerminal(t, state, "attach", "cat")
	x.waitFor(t, "ready\r\nhalf a li") // what is typed sooner is shown in between
	x.typeKeys(t, "ne!\x7f\r")
	x.waitFor(t, "\r\nne\r\n")
	x.typeKeys(t, "\x1d")
	if got := x.status(t); got != 0 || !strings.Contains(x.text(), "ready\r\nhalf a li") {
		t.Errorf("it ended with %d: %q", got, x.text())
	}
}
