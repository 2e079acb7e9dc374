//go:build linux

package limits

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/internal/torture"
	"github.com/tend-run/tend/process"
)

// writeArgument makes the test binary the workload instead: it reads a line,
// then writes so many bytes of counters.
const writeArgument = "limits-write"

var (
	bin  string
	self string
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == writeArgument {
		write(os.Args[2])
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tend-limits-")
	if err == nil {
		defer os.RemoveAll(dir)
		self, err = os.Executable()
	}
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = filepath.Join(dir, "tend")
	return m.Run()
}

// build makes tend and its small binary beside it. An overlay hides a payload
// that an earlier `make build` left in the tree.
func build(dir string) error {
	payload, err := filepath.Abs("../../internal/payload/tend-keeper")
	if err != nil {
		return err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {payload: ""}})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return err
	}
	for _, name := range []string{"tend-keeper", "tend"} {
		cmd := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(dir, name), "../../cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// daemon is a running `tend serve`.
type daemon struct {
	*torture.Daemon
	t *testing.T
	c *tend.Client
}

// serve starts a daemon. Before its program the lines of shell run, in the
// process that becomes the launcher.
func serve(t *testing.T, shell ...string) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "tend-limits-state-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := bin
	if len(shell) > 0 {
		program = filepath.Join(dir, "tend")
		script := fmt.Sprintf("#!/bin/sh\nset -eu\nstate=%s\n%s\nexec %s \"$@\"\n", filepath.Join(dir, "state"), strings.Join(shell, "\n"), bin)
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	inner, err := torture.Serve(program, dir, os.Environ()...)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Daemon: inner, t: t}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", d.Log())
		}
	})
	if d.c, err = d.Dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.c.Close() })
	return d
}

// addr is host:port of the daemon.
func (d *daemon) addr() string { return strings.TrimPrefix(d.URL, "http://") }

// eventually waits for what must happen, however loaded the machine is.
func (d *daemon) eventually(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not in time: %s", what)
		}
	}
}

// sameRoles returns a check that no role has died since.
func (d *daemon) sameRoles() func() {
	before := d.Roles()
	return func() {
		d.t.Helper()
		for role, pid := range d.Roles() {
			if before[role] != pid {
				d.t.Errorf("the %s was pid %d and is %d: it died", role, before[role], pid)
			}
		}
	}
}

// memory of a role in bytes, by its name in /proc/PID/status: VmRSS, VmHWM.
func (d *daemon) memory(role, field string) int64 {
	d.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Roles()[role]))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				d.t.Fatal(err)
			}
			return n << 10
		}
	}
	d.t.Fatalf("no %s of the %s", field, role)
	return 0
}

// write is the workload.
func write(size string) {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		os.Exit(99)
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(97)
	}
	buf := make([]byte, 64<<10)
	for at := int64(0); at < n; at += int64(len(buf)) {
		fillCounters(buf, at)
		if _, err := os.Stdout.Write(buf[:min(int64(len(buf)), n-at)]); err != nil {
			os.Exit(98)
		}
	}
	os.Exit(0)
}

// fillCounters makes the output at offset at, a multiple of 8: each 8 bytes
// tell their own place.
func fillCounters(b []byte, at int64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(at+int64(i)))
	}
}

// writer starts the workload; a line on its stdin sets it off.
func (d *daemon) writer(size int64, r process.Retention) process.Process {
	d.t.Helper()
	p, err := d.c.Start(d.t.Context(), process.Spec{Argv: []string{self, writeArgument, strconv.FormatInt(size, 10)}, Stdin: process.StdinPipe, Retention: r})
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *daemon) setOff(p process.Process) {
	d.t.Helper()
	if _, err := p.Write(d.t.Context(), process.Input{Data: []byte("go\n")}); err != nil {
		d.t.Fatal(err)
	}
}

// wholeFrom reads the output of a workload from an offset to its end at size
// and checks each byte.
func wholeFrom(ctx context.Context, p process.Process, from, size int64) error {
	opts := process.ReadOptions{Streams: []process.Stream{process.Stdout}, Drain: -1}
	opts.From[process.Stdout] = from
	r, err := p.Read(ctx, opts)
	if err != nil {
		return err
	}
	at := from
	want := make([]byte, 1<<20+16)
	for ev, err := range process.Follow(ctx, r) {
		if err != nil {
			return fmt.Errorf("at %d: %w", at, err)
		}
		switch ev.Kind {
		case process.EventGap:
			return fmt.Errorf("a gap of %v", ev.Gap)
		case process.EventExited:
			if ev.Exit.Code != 0 || ev.Exit.Signal != 0 {
				return fmt.Errorf("the process ended with %v", ev.Exit)
			}
		case process.EventOutput:
			if ev.Offset != at {
				return fmt.Errorf("output at %d, want %d", ev.Offset, at)
			}
			lead := at & 7
			w := want[:(lead+int64(len(ev.Data))+7)&^7]
			fillCounters(w, at-lead)
			if string(w[lead:lead+int64(len(ev.Data))]) != string(ev.Data) {
				return fmt.Errorf("other bytes than were written, at %d", at)
			}
			at += int64(len(ev.Data))
		}
	}
	if at != size {
		return fmt.Errorf("the output ends at %d, want %d: %w", at, size, io.ErrUnexpectedEOF)
	}
	return nil
}
