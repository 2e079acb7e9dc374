//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/tend-run/tend/internal/support/proctest"
)

// tendOn runs a command line of tend for a state directory.
func tendOn(t *testing.T, state string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "tend"), append([]string{"--state-dir", state}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tend %q: %v", args, err)
	}
	return string(out)
}

func TestRunCanBeLeftByTheKeyWithoutATerminalOfItsOwn(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	for _, flag := range []string{"--detach=false", "-i", "-t"} {
		t.Run(flag, func(t *testing.T) {
			name := "x" + strings.Trim(flag, "-=")
			x := openTerminal(t, state, "run", flag, "--name", name, "--", "sh", "-c", "echo ready; exec sleep 1000")
			x.waitFor(t, "ready")
			x.typeKeys(t, "\x1d")
			x.waitFor(t, "tend: detached")
			x.wantStatus(t, 0)
			if ps := tendOn(t, state, "ps", "--filter", "name="+name); !strings.Contains(ps, "running") {
				t.Errorf("the process does not go on: %q", ps)
			}
		})
	}
}

// TestClosingTheTerminalLeavesTheProcessRunning: by the signal of the kernel and
// by the end of what can be read.
func TestClosingTheTerminalLeavesTheProcessRunning(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	for name, args := range map[string][]string{
		"a terminal": {"run", "-t", "--name", "t", "--", "sh", "-c", "echo ready; while read x; do :; done; sleep 1000"},
		"a pipe":     {"run", "-i", "--name", "i", "--", "sh", "-c", "echo ready; while read x; do :; done; exit 3"},
		"no input":   {"run", "--name", "n", "--", "sh", "-c", "echo ready; exec sleep 1000"},
		"attach":     {"attach", "held"},
	} {
		t.Run(name, func(t *testing.T) {
			watched := args[len(args)-1]
			if name == "attach" {
				tendOn(t, state, "run", "-d", "-t", "--name", "held", "--", "sh", "-c", "echo ready; while read x; do :; done; exit 3")
			} else {
				watched = args[slices.Index(args, "--name")+1]
			}
			x := openTerminal(t, state, args...)
			x.waitFor(t, "ready")
			x.close()
			x.wantStatus(t, 129)
			if ps := tendOn(t, state, "ps", "--filter", "name="+watched); !strings.Contains(ps, "running") {
				t.Errorf("the process does not go on: %q", ps)
			}
		})
	}
}

// Under nohup(1) no signal says that the terminal was closed, and it may be gone before the
// command has looked at it.
func TestATerminalThatIsClosedEarlyIsNotWaitedFor(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	tendOn(t, state, "run", "-d", "-t", "--name", "held", "--", "sleep", "1000")
	server := roles(state, "")["server"]
	proctest.Must(t, syscall.Kill(server, syscall.SIGSTOP))
	defer syscall.Kill(server, syscall.SIGCONT)
	signal.Ignore(syscall.SIGHUP) // for what is started
	defer signal.Reset(syscall.SIGHUP)
	x := openTerminal(t, state, "attach", "held")
	proctest.Eventually(t, "it asks the server", func() bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", x.cmd.Process.Pid))
		return slices.ContainsFunc(fds, func(fd string) bool { to, _ := os.Readlink(fd); return strings.HasPrefix(to, "socket:") })
	})
	x.close()
	proctest.Must(t, syscall.Kill(server, syscall.SIGCONT))
	x.wantStatus(t, 129)
}

// TestATerminalIsGivenBackAsItWas whatever a full-screen program has left on it.
func TestATerminalIsGivenBackAsItWas(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	const on = `printf '\033[?1049h\033[?25l\033[?2004h\033[?1003h\033[?1006h\033[?1h\033[2;5r\033[>1u\033[31mfull\033'; printf '[1mready'`
	undone := []string{"\x1b[?1049l", "\x1b[?25h", "\x1b[?2004l", "\x1b[?1003l", "\x1b[?1006l", "\x1b[?1l", "\x1b7\x1b[r\x1b8", "\x1b[<u", "\x1b[0m"}
	for name, end := range map[string]func(*terminal){
		"killed": func(x *terminal) { tendOn(t, state, "kill", "killed") },
		"left":   func(x *terminal) { x.typeKeys(t, "\x1d") },
	} {
		t.Run(name, func(t *testing.T) {
			x := openTerminal(t, state, "run", "-t", "--name", name, "--", "sh", "-c", on+"; exec sleep 1000")
			x.waitFor(t, "ready")
			end(x)
			x.status(t)
			_, after, _ := strings.Cut(x.text(), "ready")
			for _, seq := range undone {
				if !strings.Contains(after, seq) {
					t.Errorf("%q is missing in %q", seq, after)
				}
			}
		})
	}
	t.Run("nothing was switched on", func(t *testing.T) {
		x := openTerminal(t, state, "run", "-t", "--", "echo", "plain")
		if got := x.status(t); got != 0 || x.text() != "plain\r\n" {
			t.Errorf("it ended with %d and %q", got, x.text())
		}
	})
	t.Run("the program has put all back", func(t *testing.T) {
		x := openTerminal(t, state, "run", "-t", "--", "printf", `\033[?1049hfull\033[?1049lplain`)
		if got := x.status(t); got != 0 || strings.Count(x.text(), "\x1b[?1049l") != 1 {
			t.Errorf("it ended with %d and %q: the cursor is moved by a second end of the alternate screen", got, x.text())
		}
	})
}

// TestTopActsOnWhatIsChosen: tend top on a terminal shows services and processes; keys choose one, show
// its output, restart, stop and kill it. tend up --tui shows the services of its file, and ends what it
// has started.
func TestTopActsOnWhatIsChosen(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	defer endDaemon(t, state)
	file := filepath.Join(dir, "tend.yaml")
	proctest.Must(t, os.WriteFile(file, []byte(`services: {web: {command: "echo the word; exec sleep 1000"}}`), 0o600))
	tendOn(t, state, "run", "-d", "--name", "alone", "--", "sleep", "1000")
	tendOn(t, state, "up", "-d", "--wait", "-f", file)
	wide := pty.Winsize{Cols: 120, Rows: 12}
	x := openWindow(t, state, wide, "top")
	x.waitFor(t, "\x1b[7mweb ") // chosen at first
	x.waitFor(t, "alone ")
	x.typeKeys(t, "\r")
	x.waitFor(t, "the word")
	x.typeKeys(t, "qs")
	x.waitFor(t, "stopped web")
	x.waitFor(t, "idle ")
	x.typeKeys(t, "s")
	x.waitFor(t, "started web")
	x.typeKeys(t, "\x1b[B")
	x.waitFor(t, "\x1b[7malone ")
	x.typeKeys(t, "r")
	x.waitFor(t, "restarted alone")
	x.waitFor(t, "\x1b[7mweb ")                // the new process is another one
	x.typeKeys(t, "jj\x1b[5~\x1b[1;5H\x1bOPx") // page up, ctrl and home, F1: none of its keys
	x.waitFor(t, "killed alone")
	x.typeKeys(t, "q")
	x.wantStatus(t, 0)
	if got := new(dashboard).action("x", &dashboardRow{service: true}).doing; got != "stopping" {
		t.Errorf("x on a service that is stopped does its %s", got)
	}

	tendOn(t, state, "down")
	x = openWindow(t, state, wide, "up", "--tui", "-f", file)
	x.waitFor(t, "\x1b[7mweb ")
	x.waitFor(t, "ready ")
	x.typeKeys(t, "q")
	x.wantStatus(t, 0)
	if got := tendOn(t, state, "services"); !strings.Contains(got, "idle") || strings.Contains(x.text(), "alone ") {
		t.Errorf("after tend up --tui there are %s, and it showed %q", got, x.text())
	}
	x = openWindow(t, state, wide, "up", "-d", "--tui", "-f", file)
	x.waitFor(t, "ready ")
	x.typeKeys(t, "q")
	x.wantStatus(t, 0)
	if got := tendOn(t, state, "services"); !strings.Contains(got, "ready") {
		t.Errorf("after tend up -d --tui there are %s", got)
	}
}

// TestRunInTheBackgroundOfAShellIsNotStopped: it leaves the terminal alone.
func TestRunInTheBackgroundOfAShellIsNotStopped(t *testing.T) {
	state := t.TempDir()
	defer endDaemon(t, state)
	typed, shown := session(t, "bash", binaries+string(os.PathListSeparator)+os.Getenv("PATH"), "TEND_STATE_DIR="+state)
	typed("tend run -- sh -c 'sleep 0.2; echo ov\"\"er' &\n")
	typed("echo typed me''anwhile\n")
	waitShown(t, shown, "typed meanwhile")
	waitShown(t, shown, "over")
	typed("wait; echo status $?.\n")
	waitShown(t, shown, "status 0.")
	if strings.Contains(shown(), "Stopped") {
		t.Errorf("it was stopped: %q", shown())
	}
}

// TestAnAddressWhereSomethingElseAnswersSaysSo, whatever it answers.
func TestAnAddressWhereSomethingElseAnswersSaysSo(t *testing.T) {
	page := func(status int, kind, body string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			w.Write([]byte(body))
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	banner := func(text string) string {
		l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Write([]byte(text))
				c.SetReadDeadline(time.Now().Add(time.Second))
				c.Read(make([]byte, 1024))
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return "http://" + l.Addr().String()
	}
	for name, url := range map[string]string{
		"a web page":                   page(200, "text/html", "<h1>hello</h1>"),
		"a web server without it":      page(404, "text/html", "<h1>not found</h1>"),
		"a web server that forbids":    page(403, "text/html", "<h1>no</h1>"),
		"a web server that wants you":  page(401, "text/html", "<h1>who?</h1>"),
		"a web server that takes GET":  page(405, "text/plain", "method not allowed"),
		"a web server that has failed": page(500, "text/html", "<h1>sorry</h1>"),
		"an API":                       page(404, "application/json", `{"message":"no such route"}`),
		"an API that says yes":         page(200, "application/json", `{"ok":true}`),
		"ssh":                          banner("SSH-2.0-OpenSSH_9.2\r\n"),
		"mail":                         banner("220 mail.example.org ESMTP\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			inv := &invocation{out: &out, errs: &errs, getenv: func(string) string { return "" }}
			if status := execute(t.Context(), inv, []string{"--url", url, "ps"}); status != 1 || !strings.Contains(errs.String(), "is no tend") {
				t.Errorf("it ended with %d and told %q", status, errs.String())
			}
		})
	}
}
