//go:build linux

package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// sharedMemory lists the files in memory that a role has, by the path at which
// another process opens them.
func sharedMemory(t *testing.T, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries := proctest.Value(os.ReadDir(dir))(t)
	found := map[string]string{}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(to, "/memfd:") {
			found[filepath.Join(dir, e.Name())] = strings.TrimSuffix(strings.TrimPrefix(to, "/memfd:"), " (deleted)")
		}
	}
	return found
}

func boardOf(t *testing.T, d *daemon) string {
	t.Helper()
	for path, name := range sharedMemory(t, d.Roles()[testdaemon.Keeper]) {
		if name == "tend-board" {
			return path
		}
	}
	t.Fatal("the keeper has no board")
	return ""
}

// ordinary is what runs while somebody damages the board.
type ordinary struct {
	finished, writer, reader, terminal, tree process.Process
	gate                                     string // a file; the tree's descendant continues when it is there
}

func startOrdinary(ctx context.Context, t *testing.T, c *tend.Client) *ordinary {
	t.Helper()
	start := func(s process.Spec) process.Process {
		p := proctest.Start(t, c, s)
		return p
	}
	gate := filepath.Join(t.TempDir(), "gate")
	o := &ordinary{
		finished: start(process.Spec{Shell: "echo done; exit 3"}),
		writer:   start(process.Spec{Argv: []string{self, workArgument, "write", strconv.Itoa(4 << 20), "200ms", "7"}}),
		reader:   start(process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe}),
		terminal: start(process.Spec{Shell: "stty -echo; echo ready; read x; echo got $x; exit 4", PTY: &process.Size{Cols: 80, Rows: 24}}),
		tree:     start(process.Spec{Shell: "(setsid sh -c 'until [ -e " + gate + " ]; do sleep 0.05; done; echo late') & exit 5"}),
		gate:     gate,
	}
	proctest.Value(o.finished.Wait(ctx, process.Until{EOF: true}))(t)
	proctest.Value(o.tree.Wait(ctx, process.Until{}))(t)
	proctest.Value(o.terminal.Wait(ctx, process.Until{Match: "ready"}))(t)
	proctest.Value(o.reader.Write(ctx, process.Input{Data: []byte("before\n")}))(t)
	proctest.Value(o.reader.Wait(ctx, process.Until{Match: "before"}))(t)
	return o
}

// check ends everything, and checks output and exit of each process.
func (o *ordinary) check(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := o.reader.Write(ctx, process.Input{Data: []byte("after\n"), EOF: true}); err != nil {
		t.Error(err)
	}
	if _, err := o.terminal.Write(ctx, process.Input{Data: []byte("it\n")}); err != nil {
		t.Error(err)
	}
	proctest.Must(t, os.WriteFile(o.gate, nil, 0o600))
	if n, e := outputOf(ctx, t, o.writer); n != 4<<20 || e == nil || e.Code != 7 || e.Cause != process.CauseExited {
		t.Errorf("the writer: %d bytes, %+v; want %d and code 7", n, e, 4<<20)
	}
	for _, c := range []struct {
		name string
		p    process.Process
		s    process.Stream
		out  string
		code int
	}{
		{"finished", o.finished, process.Stdout, "done\n", 3},
		{"reader", o.reader, process.Stdout, "before\nafter\n", 0},
		{"terminal", o.terminal, process.PTY, "ready\r\ngot it\r\n", 4},
		{"tree", o.tree, process.Stdout, "late\n", 5},
	} {
		if _, err := c.p.Wait(ctx, process.Until{EOF: true}); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := allOf(ctx, t, c.p, c.s); got != c.out {
			t.Errorf("%s: wrote %q; want %q", c.name, got, c.out)
		}
		if e := exitOf(ctx, t, c.p); e == nil || e.Code != c.code || e.Cause != process.CauseExited {
			t.Errorf("%s: %+v; want code %d", c.name, e, c.code)
		}
	}
}

// allOf is all that is kept of a stream.
func allOf(ctx context.Context, t *testing.T, p process.Process, s process.Stream) string {
	t.Helper()
	var b bytes.Buffer
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{s}, NoFollow: true}) {
		if err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		b.Write(ev.Data)
	}
	return b.String()
}

// No process can truncate or extend the memory that the roles share, or change its
// constant parts, by whatever path it opens it. A truncated board would end all
// roles by SIGBUS.
func TestNobodyCutsWhatTheRolesShare(t *testing.T) {
	t.Parallel()
	ctx, d, c := begin(t, 3*time.Minute)
	o := startOrdinary(ctx, t, c)
	before, tried := d.Roles(), 0
	for _, pid := range before {
		for path, name := range sharedMemory(t, pid) {
			tried++
			if err := os.Truncate(path, 0); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ETXTBSY) {
				t.Errorf("%s was cut: %v", name, err)
			}
			if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
				t.Errorf("%s was opened to be written anew", name)
				f.Close()
			}
		}
	}
	if tried < 3 {
		t.Errorf("%d files in memory were found", tried)
	}
	o.check(ctx, t)
	if after := d.Roles(); after[testdaemon.Keeper] != before[testdaemon.Keeper] || after[testdaemon.Server] != before[testdaemon.Server] {
		t.Errorf("roles were %v and are %v", before, after)
	}
}

// awaitAnother waits until the keeper has noticed what was done to its board, and another
// one is there.
func awaitAnother(t *testing.T, d *daemon, keeper int) {
	t.Helper()
	proctest.Eventually(t, "another keeper makes the board anew", func() bool {
		now := d.Roles()[testdaemon.Keeper]
		return now != 0 && now != keeper
	})
}

// A board whose content was overwritten is made again. Processes live on, and their
// output and exits are right.
func TestADamagedBoardIsMadeAnew(t *testing.T) {
	t.Parallel()
	noise := func(n int) []byte {
		b := make([]byte, n)
		rnd := rand.NewChaCha8([32]byte{1})
		rnd.Read(b)
		return b
	}
	const header, slot = 4096, 256
	for _, c := range []struct {
		name string
		at   int64
		with []byte
	}{
		{"the first bytes", 0, []byte("hello, world\n")},
		{"all of it, by zeros", 0, make([]byte, header+64*slot)},
		{"all of it, by noise", 0, noise(header + 64*slot)},
		{"the header, by noise", 0, noise(header)},
		{"the slots, by noise", header, noise(64 * slot)},
		{"the slots, by zeros", header, make([]byte, 64*slot)},
		{"the slots, by ones", header, bytes.Repeat([]byte{0xff}, 64*slot)},
		{"the slots, by text", header, bytes.Repeat([]byte("an uploaded file\n"), 64*slot/17)},
		{"half a slot", header + slot + 8, noise(120)},
	} {
		for _, idle := range []bool{false, true} {
			name := c.name
			if idle {
				name += ", while no keeper looks"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, d, client := begin(t, 3*time.Minute)
				o := startOrdinary(ctx, t, client)
				f := proctest.Value(os.OpenFile(boardOf(t, d), os.O_WRONLY, 0))(t)
				defer f.Close()
				keeper := d.Roles()[testdaemon.Keeper]
				if idle { // the keeper is killed before it can notice anything
					proctest.Must(t, syscall.Kill(keeper, syscall.SIGSTOP))
				}
				proctest.Value(f.WriteAt(c.with, c.at))(t)
				if idle {
					proctest.Must(t, syscall.Kill(keeper, syscall.SIGKILL))
				}
				awaitAnother(t, d, keeper)
				// Started again, with the new board.
				p := proctest.Start(t, client, process.Spec{Shell: "echo new; exit 9"})
				if _, err := p.Wait(ctx, process.Until{EOF: true}); err != nil {
					t.Error(err)
				}
				if e := exitOf(ctx, t, p); e == nil || e.Code != 9 {
					t.Errorf("a new process: %+v", e)
				}
				o.check(ctx, t)
				if n := strings.Count(d.Log(), "is damaged ("); n > 3 {
					t.Errorf("the board was made anew %d times", n)
				}
			})
		}
	}
}

// Somebody has mapped the board, and the keeper that could have seen that is gone.
// What is written through the mapping while no process does anything is found.
func TestABoardThatWasMappedIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"by this keeper", "by the next one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, d, client := begin(t, 3*time.Minute)
			p := proctest.Start(t, client, process.Spec{Argv: []string{"cat"}, Stdin: process.StdinPipe})
			f := proctest.Value(os.OpenFile(boardOf(t, d), os.O_RDWR, 0))(t)
			mem, err := syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
			proctest.Must(t, err)
			defer func() { proctest.Must(t, syscall.Munmap(mem)) }()
			proctest.Must(t, f.Close())
			if name == "by the next one" {
				proctest.Must(t, d.Replace(ctx, testdaemon.Keeper))
				if !d.Settle(ctx) {
					t.Fatal("the next keeper is not there")
				}
			}
			proctest.Value(client.Status(ctx))(t) // the next keeper is there
			keeper := d.Roles()[testdaemon.Keeper]
			copy(mem, "hello, world\n")
			awaitAnother(t, d, keeper)
			proctest.Value(p.Write(ctx, process.Input{Data: []byte("after\n"), EOF: true}))(t)
			proctest.Value(p.Wait(ctx, process.Until{EOF: true}))(t)
			if got := allOf(ctx, t, p, process.Stdout); got != "after\n" {
				t.Errorf("it wrote %q", got)
			}
		})
	}
}
