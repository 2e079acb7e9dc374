package distant_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/protocol/distant/distanttest"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for things that must happen; it is no measurement.
const patience = 2 * time.Minute

var key = secure.Key{1, 2, 3}

// native is a server of the encrypted transport that can be restarted, as a
// new server role would be.
type native struct {
	t       *testing.T
	manager process.Manager
	dir     string
	setup   time.Duration // 0: the default
	addr    atomic.Value  // string
	stop    func()
}

func serveNative(t *testing.T) *native {
	t.Helper()
	n := &native{t: t, manager: testkeeper.New(t), dir: filepath.Join(t.TempDir(), "sessions")}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func newFace(t *testing.T, m process.Manager) *distant.Face {
	t.Helper()
	f := proctest.Value(distant.New(distant.Config{Sandbox: host.NewMachine(m), Dir: t.TempDir(), Environ: os.Environ(), Version: "v1.2.3"}))(t)
	return f
}

func (n *native) start() {
	n.t.Helper()
	server := proctest.Value(distant.NewNative(distant.NativeConfig{Face: newFace(n.t, n.manager), Dir: n.dir, Key: key, Setup: n.setup}))(n.t)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(n.t)
	n.addr.Store(l.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	n.stop = func() {
		cancel()
		if err := <-served; err != nil {
			n.t.Error(err)
		}
		if err := server.Close(); err != nil {
			n.t.Error(err)
		}
	}
}

func (n *native) restart() {
	n.t.Helper()
	n.stop()
	n.start()
}

func (n *native) dial() (net.Conn, error) { return net.Dial("tcp", n.addr.Load().(string)) }

func (n *native) connect() *distanttest.Client { return connectBy(n.t, n.dial) }

func connectBy(t *testing.T, dial func() (net.Conn, error)) *distanttest.Client {
	t.Helper()
	c := proctest.Value(distanttest.Connect(dial, key))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// one returns the next message, which has to be alone in its frame.
func one(t *testing.T, c *distanttest.Client) distanttest.Message {
	t.Helper()
	m := proctest.Value(c.Receive())(t)
	if len(m) != 1 {
		t.Fatalf("%d messages at once", len(m))
	}
	return m[0]
}

// ended collects the output of a process to its end.
type ended struct {
	stdout, stderr []byte
	code           int
}

func untilDone(t *testing.T, c *distanttest.Client, id uint32) ended {
	t.Helper()
	var e ended
	for {
		switch m := one(t, c); m.Type {
		case "proc_stdout":
			e.stdout = append(e.stdout, m.Data...)
		case "proc_stderr":
			e.stderr = append(e.stderr, m.Data...)
		case "proc_done":
			if m.ID == id {
				e.code = m.Code
				return e
			}
		case "error":
			t.Fatalf("%s: %s", m.Kind, m.Description)
		}
	}
}

func spawned(t *testing.T, c *distanttest.Client, cmd string) uint32 {
	t.Helper()
	origin := c.Spawn(cmd)
	for {
		m := one(t, c)
		if m.Origin != origin {
			continue
		}
		if m.Type != "proc_spawned" {
			t.Fatalf("%s was answered %s: %s", cmd, m.Type, m.Description)
		}
		return m.ID
	}
}

func TestNativeSpawn(t *testing.T) {
	c := serveNative(t).connect()
	id := spawned(t, c, `sh -c 'printf out; printf err >&2; exit 7'`)
	if got := untilDone(t, c, id); string(got.stdout) != "out" || string(got.stderr) != "err" || got.code != 7 {
		t.Errorf("%+v", got)
	}
	id = spawned(t, c, `sh -c 'kill -9 $$'`)
	if got := untilDone(t, c, id); got.code != 137 {
		t.Errorf("code %d, want 137", got.code)
	}
}

func TestNativeBadFrames(t *testing.T) {
	c := serveNative(t).connect()
	for _, tc := range []struct{ name, frame, origin, kind string }{
		{"what is no MessagePack is answered once", "\xc1", "", "invalid_data"},
		{"half a message is answered once", "\x82\xa2id\xa11\xa7payload", "", "invalid_data"},
		{"an unknown type is answered to its request", "\x82\xa2id\xa15\xa7payload\x81\xa4type\xa4nope", "5", "unsupported"},
		{"an unknown field is answered to its request", "\x82\xa2id\xa16\xa7payload\x82\xa4type\xa7version\xa1x\x01", "6", "invalid_input"},
		{"an unknown field of the envelope, too", "\x83\xa2id\xa17\xa1x\x01\xa7payload\x81\xa4type\xa7version", "7", "invalid_data"},
		{"a map of 4 thousand million entries is no message", "\xdf\xff\xff\xff\xff", "", "invalid_data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.Raw([]byte(tc.frame))
			if m := one(t, c); m.Type != "error" || m.Kind != tc.kind || m.Origin != tc.origin {
				t.Errorf("%+v", m)
			}
		})
	}
	if got := untilDone(t, c, spawned(t, c, "true")); got.code != 0 {
		t.Error("the connection is of no use any more")
	}
}

// counters is a command that writes n numbers of 8 bytes each.
func counters(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counters")
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.BigEndian.AppendUint64(b, uint64(i))
	}
	proctest.Must(t, os.WriteFile(path, b, 0o600))
	return path
}

func checkCounters(t *testing.T, got []byte, n int) {
	t.Helper()
	if len(got) != 8*n {
		t.Errorf("%d bytes came, want %d", len(got), 8*n)
	}
	for i := 0; i+8 <= len(got); i += 8 {
		if v := binary.BigEndian.Uint64(got[i:]); v != uint64(i/8) {
			t.Fatalf("at byte %d stands the number %d, want %d", i, v, i/8)
		}
	}
}

func TestNativeCuts(t *testing.T) {
	const numbers = 14 << 20 // 112 MiB
	n := serveNative(t)
	proxy := distanttest.NewProxy(n.addr.Load().(string), 4<<20, 10<<20, 1)
	defer proxy.Close()
	c := connectBy(t, proxy.Dial)
	defer c.Close()
	id := spawned(t, c, "cat "+counters(t, numbers))
	checkCounters(t, untilDone(t, c, id).stdout, numbers)
	if proxy.Cuts() < 10 {
		t.Errorf("only %d cuts", proxy.Cuts())
	}
}

func TestNativeCutsWithinTheSynchronization(t *testing.T) {
	const numbers = 1 << 18
	n := serveNative(t)
	// Some connections die while they are resumed: a set-up has some 700
	// bytes. Others let one or two frames pass, which have 128 KiB.
	proxy := distanttest.NewProxy(n.addr.Load().(string), 300, 300<<10, 2)
	defer proxy.Close()
	c := connectUntil(t, proxy.Dial)
	defer c.Close()
	id := spawned(t, c, "cat "+counters(t, numbers))
	checkCounters(t, untilDone(t, c, id).stdout, numbers)
	if proxy.Cuts() < 10 {
		t.Errorf("only %d cuts", proxy.Cuts())
	}
}

// connectUntil connects through a proxy that may cut the first attempts.
func connectUntil(t *testing.T, dial func() (net.Conn, error)) *distanttest.Client {
	t.Helper()
	for range 100 {
		if c, err := distanttest.Connect(dial, key); err == nil {
			return c
		}
	}
	t.Fatal("not connected in 100 attempts")
	return nil
}

func TestNativeInputOverCuts(t *testing.T) {
	n := serveNative(t)
	proxy := distanttest.NewProxy(n.addr.Load().(string), 3000, 20_000, 3)
	defer proxy.Close()
	c := connectUntil(t, proxy.Dial)
	defer c.Close()
	id := spawned(t, c, "cat")
	var want bytes.Buffer
	sent := make(chan struct{})
	for i := range 2000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	go func() {
		defer close(sent)
		for line := range bytes.Lines(want.Bytes()) {
			c.Stdin(id, line)
		}
	}()
	var got []byte
	oks := 0
	for len(got) < want.Len() || oks < 2000 {
		switch m := one(t, c); m.Type {
		case "proc_stdout":
			got = append(got, m.Data...)
		case "ok":
			oks++
		case "error", "proc_done":
			t.Fatalf("%+v", m)
		}
	}
	<-sent
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("the input did not come once, and in order")
	}
	if proxy.Cuts() < 5 {
		t.Errorf("only %d cuts", proxy.Cuts())
	}
}

func TestNativeRestarts(t *testing.T) {
	const numbers = 4 << 20
	n := serveNative(t)
	c := n.connect()
	cat := spawned(t, c, "cat")
	id := spawned(t, c, "cat "+counters(t, numbers))
	var got []byte
	restarts := 0
	echoed := 0
	for done := false; !done; {
		m := one(t, c)
		switch {
		case m.Type == "proc_stdout" && m.ID == id:
			got = append(got, m.Data...)
			if len(got) > (restarts+1)*(4<<20) && restarts < 5 {
				restarts++
				n.restart()
				c.Stdin(cat, []byte("x"))
			}
		case m.Type == "proc_stdout":
			echoed += len(m.Data)
		case m.Type == "proc_done":
			done = true
		case m.Type == "error":
			t.Fatalf("%+v", m)
		}
	}
	checkCounters(t, got, numbers)
	for echoed < restarts {
		echoed += len(one(t, c).Data)
	}
	c.About("proc_kill", cat)
	if got := untilDone(t, c, cat); got.code != 137 || echoed != restarts {
		t.Errorf("%d restarts, %d bytes came back, then %+v", restarts, echoed, got)
	}
	if restarts < 5 {
		t.Errorf("only %d restarts", restarts)
	}
}

func TestNativeBatch(t *testing.T) {
	c := serveNative(t).connect()
	c.Envelope(func(w wire.Writer) {
		w.Array(2)
		for _, typ := range []string{"version", "system_info"} {
			w.Object(1)
			w.Key("type").Str(typ)
		}
	})
	m, err := c.Receive()
	if err != nil || len(m) != 2 || m[0].Type != "version" || m[1].Type != "system_info" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestSecretsOnDisk(t *testing.T) {
	n := serveNative(t)
	n.connect()
	proctest.Value(distant.LoadKey(n.dir))(t)
	err := filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	path := filepath.Join(n.dir, "key")
	proctest.Must(t, os.Chmod(path, 0o644))
	if _, err := distant.LoadKey(n.dir); err == nil {
		t.Error("a key that others may read was taken")
	}
}
