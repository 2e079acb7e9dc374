// Package native proves over a real daemon that distant's sessions lose
// nothing: its server is killed and upgraded in the middle of streams, and the
// connections are cut on top.
package native

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/face/distant/distanttest"
	"github.com/tend-run/tend/face/distant/secure"
)

const patience = 2 * time.Minute

var tend string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tend-distant-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tend = filepath.Join(dir, "tend")
	return m.Run()
}

// build makes the programs of this tree; a payload that an earlier build left
// in it is hidden.
func build(dir string) error {
	payload, err := filepath.Abs("../../../../internal/payload/tend-keeper")
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{payload: ""}})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	for _, name := range []string{"tend-keeper", "tend"} {
		cmd := exec.Command("go", "build", "-overlay", file, "-o", filepath.Join(dir, name), "../../../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// daemon is a running `tend serve --distant`.
type daemon struct {
	t     *testing.T
	state string
	addr  string
	key   secure.Key
}

func serve(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, state: filepath.Join(dir, "state")}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tend, "--state-dir", d.state, "serve", "--listen", "none", "--distant", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("tend serve ended with %v", err)
		}
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("log of the daemon:\n%s%v", text, err)
		}
	})
	var uri []byte
	d.eventually("the daemon serves", func() bool {
		uri, err = os.ReadFile(filepath.Join(d.state, "distant", "uri"))
		return err == nil
	})
	u, err := url.Parse(strings.TrimSpace(string(uri)))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := u.User.Password()
	if d.key, err = secure.ParseKey(text); err != nil {
		t.Fatal(err)
	}
	d.addr = u.Host
	return d
}

func (d *daemon) eventually(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not in time: %s", what)
		}
	}
}

// run runs a command line of tend.
func (d *daemon) run(args ...string) []byte {
	d.t.Helper()
	out, err := exec.Command(tend, append([]string{"--state-dir", d.state}, args...)...).Output()
	if err != nil {
		d.t.Errorf("tend %v: %v", args, err)
	}
	return out
}

// server is the pid of the server role, or 0.
func (d *daemon) server() int {
	out, err := exec.Command(tend, "--state-dir", d.state, "status", "--json").Output()
	var s struct {
		Roles struct{ Server struct{ PID int } }
	}
	if err != nil || json.Unmarshal(out, &s) != nil {
		return 0
	}
	return s.Roles.Server.PID
}

// kill ends the server with SIGKILL and returns when there is another.
func (d *daemon) kill() {
	d.t.Helper()
	pid := d.server()
	if pid == 0 {
		d.t.Fatal("the pid of the server is not known")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		d.t.Fatal(err)
	}
	d.eventually("another server", func() bool { p := d.server(); return p != 0 && p != pid })
}

func (d *daemon) connect(dial func() (net.Conn, error)) *distanttest.Client {
	d.t.Helper()
	c, err := distanttest.Connect(dial, d.key)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// one returns the next message.
func one(t *testing.T, c *distanttest.Client) distanttest.Message {
	t.Helper()
	m, err := c.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if m[0].Type == "error" {
		t.Fatalf("%s: %s", m[0].Kind, m[0].Description)
	}
	return m[0]
}

func spawn(t *testing.T, c *distanttest.Client, cmd string) uint32 {
	t.Helper()
	c.Spawn(cmd)
	m := one(t, c)
	if m.Type != "proc_spawned" {
		t.Fatalf("%+v", m)
	}
	return m.ID
}

// counters is a file of n numbers of 8 bytes.
func counters(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.BigEndian.AppendUint64(b, uint64(i))
	}
	path := filepath.Join(t.TempDir(), "counters")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// check checks that part of the counters begins at offset.
func check(t *testing.T, offset int, part []byte) {
	t.Helper()
	for i := range part {
		at := offset + i
		if want := byte(uint64(at/8) >> (8 * (7 - at%8))); part[i] != want {
			t.Fatalf("byte %d is %d, want %d", at, part[i], want)
		}
	}
}

// TestNothingIsLost: 128 MiB with more than ten cuts, five killed servers and
// two upgrades in mid-stream, and the input of another process beside it.
func TestNothingIsLost(t *testing.T) {
	const numbers = 16 << 20
	d := serve(t)
	proxy := distanttest.NewProxy(d.addr, 4<<20, 12<<20, 7)
	defer proxy.Close()
	c := d.connect(proxy.Dial)
	defer c.Close()
	cat := spawn(t, c, "cat")
	// At a pace that leaves time for the deaths of servers in the middle.
	id := spawn(t, c, fmt.Sprintf(`sh -c 'f=%s; for i in 0 1 2 3 4 5 6 7; do dd if=$f bs=16M skip=$i count=1 2>/dev/null; sleep 0.1; done; exit 5'`, counters(t, numbers)))
	var echo, typed bytes.Buffer
	size, deaths, code := 0, 0, -1
	for code < 0 {
		m := one(t, c)
		switch {
		case m.Type == "proc_stdout" && m.ID == id:
			check(t, size, m.Data)
			size += len(m.Data)
			if size > (deaths+1)*(15<<20) && deaths < 7 {
				line := fmt.Sprintf("before %d\n", deaths)
				typed.WriteString(line)
				c.Stdin(cat, []byte(line))
				if deaths%3 == 2 {
					d.run("upgrade", "--server")
				} else {
					d.kill()
				}
				deaths++
			}
		case m.Type == "proc_stdout":
			echo.Write(m.Data)
		case m.Type == "proc_done" && m.ID == id:
			code = m.Code
		}
	}
	if size != 8*numbers || code != 5 {
		t.Errorf("%d bytes and code %d, want %d and 5", size, code, 8*numbers)
	}
	for echo.Len() < typed.Len() {
		if m := one(t, c); m.Type == "proc_stdout" {
			echo.Write(m.Data)
		}
	}
	if echo.String() != typed.String() {
		t.Errorf("%q was typed and %q came back", typed.String(), echo.String())
	}
	if cuts := proxy.Cuts(); cuts < 10 || deaths < 7 {
		t.Errorf("only %d cuts and %d deaths", cuts, deaths)
	}
}
