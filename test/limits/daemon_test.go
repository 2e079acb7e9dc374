//go:build linux

package limits

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
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
	os.Exit(testbin.Main(func(dir string) int {
		bin = testbin.Released.Tend(dir)
		var err error
		if self, err = os.Executable(); err != nil {
			panic(err)
		}
		return m.Run()
	}, testbin.Released))
}

// daemon is a running `tend serve`.
type daemon struct {
	*testdaemon.Daemon
	t *testing.T
	c *tend.Client
}

// serve starts a daemon. Before its program the lines of shell run, in the
// process that becomes the launcher.
func serve(t *testing.T, shell ...string) *daemon {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-limits-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := bin
	if len(shell) > 0 {
		program = filepath.Join(dir, "tend")
		script := fmt.Sprintf("#!/bin/sh\nset -eu\nstate=%s\n%s\nexec %s \"$@\"\n", testdaemon.StateDir(dir), strings.Join(shell, "\n"), bin)
		proctest.Must(t, os.WriteFile(program, []byte(script), 0o700))
	}
	d := &daemon{Daemon: testdaemon.Serve(t, testdaemon.Config{Command: []string{program}, Dir: dir}), t: t}
	d.c = d.Connect(t)
	return d
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
	b := proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Roles()[role])))(d.t)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			n := proctest.Value(strconv.ParseInt(strings.Fields(v)[0], 10, 64))(d.t)
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
// are their own offset.
func fillCounters(b []byte, at int64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(at+int64(i)))
	}
}

// writer starts the workload; a line on its stdin sets it off.
func (d *daemon) writer(size int64, r process.Retention) process.Process {
	d.t.Helper()
	p := proctest.Value(d.c.Start(d.t.Context(), process.Spec{Argv: []string{self, writeArgument, strconv.FormatInt(size, 10)}, Stdin: process.StdinPipe, Retention: r}))(d.t)
	return p
}

func (d *daemon) setOff(p process.Process) {
	d.t.Helper()
	proctest.Value(p.Write(d.t.Context(), process.Input{Data: []byte("go\n")}))(d.t)
}

// wholeFrom reads the output of a workload from an offset to its end at size
// and checks each byte.
func wholeFrom(ctx context.Context, p process.Process, from, size int64) error {
	opts := process.ReadOptions{Streams: []process.Stream{process.Stdout}, Drain: -1}
	opts.From[process.Stdout] = from
	at := from
	want := make([]byte, 1<<20+16)
	for ev, err := range process.Events(ctx, p, opts) {
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
