package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds waits for things that must happen; it is no measurement.
const patience = 2 * time.Minute

// bin is the tend under test, and shared the daemon of all tests that leave
// the roles alone.
var (
	bin    string
	shared *daemon
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tend-e2b-raw-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if bin, err = findBinary(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if shared, err = serve(filepath.Join(dir, "shared")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared daemon:", err)
		return 1
	}
	return status
}

// findBinary returns TEND_BIN, or builds tend with its role binary beside it.
func findBinary(dir string) (string, error) {
	if path := os.Getenv("TEND_BIN"); path != "" {
		return filepath.Abs(path)
	}
	for _, name := range []string{"tend-keeper", "tend"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "../../../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return filepath.Join(dir, "tend"), nil
}

// daemon is a running `tend serve`.
type daemon struct {
	url  string
	dir  string
	cmd  *exec.Cmd
	log  *os.File
	done chan error // gets the result of Wait
}

// own starts a daemon for one test, and checks at the test's end that it ends
// by SIGTERM with status 0 and leaves no process behind. through is a command
// that starts the command in its arguments.
func own(t *testing.T, through ...string) *daemon {
	t.Helper()
	d, err := serve(t.TempDir(), through...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(d.log.Name())
			t.Logf("the daemon's log:\n%s", text)
		}
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func serve(dir string, through ...string) (*daemon, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, log: log, done: make(chan error, 1)}
	port := filepath.Join(dir, "url")
	args := append(through, bin, "serve", "--listen", "127.0.0.1:0", "--socket", "none",
		"--state-dir", filepath.Join(dir, "state"), "--port-file", port, "--default-workdir", dir)
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Env = append(os.Environ(), d.mark())
	d.cmd.Stderr = log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { d.done <- d.cmd.Wait() }()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if url, err := os.ReadFile(port); err == nil {
			d.url = strings.TrimSpace(string(url))
			return d, nil
		}
		select {
		case err := <-d.done:
			text, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("tend serve ended before it served: %v\n%s", err, text)
		default:
		}
	}
	return nil, errors.Join(errors.New("tend serve does not serve"), d.cmd.Process.Kill())
}

// mark is in the environment of all roles of this daemon.
func (d *daemon) mark() string { return "TEND_E2B_RAW=" + d.dir }

// stop ends the daemon as a person does.
func (d *daemon) stop() error {
	defer d.log.Close()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("the daemon had ended before the test did: %w", err)
	}
	select {
	case err := <-d.done:
		if err != nil {
			return fmt.Errorf("the daemon ended by SIGTERM with %w", err)
		}
	case <-time.After(patience):
		return errors.Join(errors.New("the daemon does not end by SIGTERM"), d.cmd.Process.Kill())
	}
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = d.left(); len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the daemon left processes behind: %s", strings.Join(left, ", "))
}

// left lists what still runs of the daemon: its roles, and processes in its
// directory, where the default working directory is.
func (d *daemon) left() []string {
	var left []string
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range pids {
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if bytes.Contains(env, []byte(d.mark()+"\x00")) || cwd == d.dir {
			cmdline, _ := os.ReadFile(p + "/cmdline")
			left = append(left, filepath.Base(p)+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return left
}

// roles asks `tend status` for the pids of the roles.
func (d *daemon) roles(t *testing.T) map[string]int {
	t.Helper()
	var facts struct {
		Roles map[string]struct {
			PID int `json:"pid"`
		} `json:"roles"`
	}
	out := d.status(t)
	if err := json.Unmarshal(out, &facts); err != nil {
		t.Fatalf("tend status --json: %v in %s", err, out)
	}
	pids := make(map[string]int)
	for name, role := range facts.Roles {
		pids[name] = role.PID
	}
	return pids
}

func (d *daemon) status(t *testing.T) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out.Reset()
		errs.Reset()
		cmd := exec.CommandContext(t.Context(), bin, "status", "--json", "--url", d.url)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err = cmd.Run(); err == nil {
			return out.Bytes()
		}
	}
	t.Fatalf("tend status --json: %v\n%s", err, errs.String())
	return nil
}

// kill9 ends a role with SIGKILL and waits until another has its place.
func (d *daemon) kill9(t *testing.T, role string) {
	t.Helper()
	before := d.roles(t)[role]
	if before == 0 {
		t.Fatalf("tend status tells no pid of the %s", role)
	}
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new "+role, func() bool {
		now := d.roles(t)[role]
		return now != 0 && now != before
	})
}

// get asks the daemon for a path.
func (d *daemon) get(t *testing.T, path string, header ...string) (int, string) {
	t.Helper()
	return d.do(t, http.MethodGet, path, nil, header...)
}

// do makes one request. Header has names and values in turn.
func (d *daemon) do(t *testing.T, method, path string, body io.Reader, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited %v in vain for: %s", patience, what)
}

// alive tells whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// file reads what a workload wrote, once it is there.
func file(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	eventually(t, path, func() bool {
		text, _ = os.ReadFile(path)
		return len(text) > 0
	})
	return strings.TrimSpace(string(text))
}
