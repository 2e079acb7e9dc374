//go:build linux

// Package native proves over a real daemon that distant's sessions lose
// nothing: its server is killed and upgraded in the middle of streams, and the
// connections are cut on top.
package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

var tend string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		tend = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

// daemon is a running `tend serve --distant`.
type daemon struct {
	*testdaemon.Daemon
	t    *testing.T
	addr string // of distant
	key  secure.Key
}

func serve(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{t: t, Daemon: testdaemon.Serve(t, testdaemon.Config{Command: []string{tend}, Flags: []string{"--distant", "127.0.0.1:0"}})}
	var uri []byte
	proctest.Eventually(t, "the daemon serves distant", func() (ok bool) {
		var err error
		uri, err = os.ReadFile(filepath.Join(d.StateDir(), "distant", "uri"))
		return err == nil
	})
	u := proctest.Value(url.Parse(strings.TrimSpace(string(uri))))(t)
	text, _ := u.User.Password()
	d.key = proctest.Value(secure.ParseKey(text))(t)
	d.addr = u.Host
	return d
}

// run runs a command line of tend.
func (d *daemon) run(args ...string) {
	d.t.Helper()
	if out, err := exec.Command(tend, append([]string{"--url", d.URL}, args...)...).CombinedOutput(); err != nil {
		d.t.Errorf("tend %v: %v\n%s", args, err, out)
	}
}

func (d *daemon) connect(dial func() (net.Conn, error)) *distanttest.Client {
	d.t.Helper()
	c := proctest.Value(distanttest.Connect(dial, d.key))(d.t)
	d.t.Cleanup(func() { c.Close() })
	return c
}

// one returns the next message.
func one(t *testing.T, c *distanttest.Client) distanttest.Message {
	t.Helper()
	m := proctest.Value(c.Receive())(t)
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
	proctest.Must(t, os.WriteFile(path, b, 0o600))
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
	// Slowly enough for servers to be killed in the middle.
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
					proctest.Must(t, d.Replace(t.Context(), testdaemon.Server))
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
