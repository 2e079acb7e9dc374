//go:build linux

package local

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// nobody is the other user. The daemon is root's.
const nobody = 65534

// patience bounds waits for what must happen.
const patience = time.Minute

var bin string

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == actArgument {
		os.Exit(act(os.Args[2], os.Args[3:]))
	}
	os.Exit(testbin.Main(func(dir string) int {
		bin = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

// target is a daemon under attack.
type target struct {
	*testdaemon.Daemon
	client *tend.Client
	token  string
	port   string
	roles  map[string]int // before
	marks  string         // a directory in which programs of the attackers leave marks
	mark   int
}

// attack starts a daemon with a token, or without one if it is "".
func attack(t *testing.T, token string, flags ...string) *target {
	t.Helper()
	proctest.Root(t)
	dir := proctest.Value(os.MkdirTemp("", "tend-attack-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	proctest.Must(t, os.Chmod(dir, 0o755)) // what is in it is to be safe by itself
	marks := filepath.Join(dir, "marks")
	proctest.Must(t, os.Mkdir(marks, 0o700))
	proctest.Must(t, os.Chmod(marks, 0o777))
	if token != "" {
		file := filepath.Join(dir, "token")
		proctest.Must(t, os.WriteFile(file, []byte(token), 0o600))
		flags = append(flags, "--token-file", file)
	}
	return watched(t, testdaemon.Config{Command: []string{bin}, Dir: dir, Flags: flags}, token, marks)
}

// watched starts a daemon.
func watched(t *testing.T, cfg testdaemon.Config, token, marks string) *target {
	t.Helper()
	d := &target{Daemon: testdaemon.Serve(t, cfg), token: token, marks: marks}
	d.client = proctest.Value(d.Dial(t.Context(), tend.Options{Token: token}))(t)
	t.Cleanup(func() { d.client.Close() })
	_, d.port, _ = net.SplitHostPort(d.Addr())
	d.roles = d.Roles()
	return d
}

// attempt is one of an attacker.
type attempt struct {
	does string // a sentence
	wins string // what would have been won
	// try returns what was won; "": nothing.
	try func(t *testing.T, d *target) string
}

func (d *target) run(t *testing.T, all []attempt) {
	t.Helper()
	for _, a := range all {
		t.Run(a.does, func(t *testing.T) {
			if won := a.try(t, d); won != "" {
				t.Errorf("it wins this: %s (%.2000s)", a.wins, won)
			}
			d.works(t)
		})
	}
}

// works fails if a role has died, or if no program runs any more.
func (d *target) works(t *testing.T) {
	t.Helper()
	for role, pid := range d.Roles() {
		if d.roles[role] != pid {
			t.Errorf("the %s was pid %d, and is %d", role, d.roles[role], pid)
		}
	}
	p := proctest.Value(d.client.Start(t.Context(), process.Spec{Argv: []string{"/bin/true"}}))(t)
	proctest.WantExit(t, p, 0)
	proctest.Remove(t, p)
}

// command is a shell line that leaves a new mark.
func (d *target) command() string {
	d.mark++
	return "echo x > " + d.markPath()
}

func (d *target) markPath() string { return filepath.Join(d.marks, fmt.Sprint(d.mark)) }

// ran says that the last mark is there, after whatever may have run had its time: a process of
// the owner that was started later has ended.
func (d *target) ran(t *testing.T) string {
	t.Helper()
	d.works(t)
	if _, err := os.Stat(d.markPath()); err == nil {
		return "a program ran"
	}
	return ""
}

// ask sends bytes as they are to the daemon, and returns what comes until its end.
func (d *target) ask(t *testing.T, request string) string {
	t.Helper()
	return answerTo(proctest.Value(net.Dial("tcp", d.Addr()))(t), request)
}

// answerTo sends bytes on a connection, and returns what comes until its end.
func answerTo(c net.Conn, request string) string {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, request) // the daemon may have hung up before all was sent
	b, _ := io.ReadAll(c)
	return string(b)
}

// asks makes a request of HTTP/1.1 with these lines of its header.
func asks(method, path, body string, header ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n\r\n%s", method, path, len(body),
		strings.Join(header, "\r\n"), body)
}

// status of an answer; "": there is none.
func status(answer string) string {
	rest, ok := strings.CutPrefix(answer, "HTTP/1.1 ")
	if !ok || len(rest) < 3 {
		return ""
	}
	return rest[:3]
}

// admitted is what was won if an answer is one of success.
func admitted(answer string) string {
	if s := status(answer); strings.HasPrefix(s, "2") || s == "101" {
		return answer
	}
	return ""
}

// call makes a request as a program does, and returns status and body.
func (d *target) call(t *testing.T, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req := proctest.Value(http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body)))(t)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res := proctest.Value(tr.RoundTrip(req))(t)
	defer res.Body.Close()
	text := proctest.Value(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(text)
}

// actArgument makes the test binary act as somebody else: the act and its arguments follow.
const actArgument = "attack-as-another"

// other is the test binary as another user, in an act of its own.
func other(ctx context.Context, uid uint32, name string, args ...string) *exec.Cmd {
	return as(ctx, uid, "/proc/self/exe", append([]string{actArgument, name}, args...)...)
}

// as is a program as another user, with next to no environment.
func as(ctx context.Context, uid uint32, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// said is what an act of nobody's prints.
func said(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	cmd := other(t.Context(), nobody, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
