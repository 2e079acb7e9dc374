//go:build linux

package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A process that runs as another user may open its streams by their names.
func TestAProcessOfAnotherUserOpensItsStreamsByName(t *testing.T) {
	proctest.Root(t)
	m := testkeeper.Open(t, testkeeper.Start(t))
	p := proctest.Start(t, m, process.Spec{User: "nobody", Stdin: process.StdinPipe, Dir: "/",
		Shell: "cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr; echo more >>/proc/self/fd/1"})
	proctest.WriteLast(t, p, "in\n")
	if out, errs := proctest.Output(t, p, process.Stdout), proctest.Output(t, p, process.Stderr); out != "in\nout\nmore\n" || errs != "err\n" {
		t.Errorf("it wrote %q and %q", out, errs)
	}
	p = proctest.Start(t, m, process.Spec{User: "nobody", Dir: "/", PTY: &process.Size{Cols: 80, Rows: 24},
		Shell: "echo out >/dev/stdout; echo err >/dev/stderr; echo tty >/dev/tty; echo name >$(tty)"})
	if out := proctest.Output(t, p, process.PTY); out != "out\r\nerr\r\ntty\r\nname\r\n" {
		t.Errorf("on the terminal: %q", out)
	}
}

// Two daemons whose state directories have the same path, in different mount
// namespaces, leave each other's processes alone.
func TestDaemonsWithOnePathInTwoMountNamespacesLeaveEachOtherAlone(t *testing.T) {
	proctest.Root(t)
	path := testkeeper.Start(t)
	m := testkeeper.Open(t, path)
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "1000"}})
	for _, what := range []string{"an empty directory", "a copy"} {
		t.Run(what, func(t *testing.T) {
			other := shortDir(t)
			if what == "a copy" {
				b, err := os.ReadFile(filepath.Join(path, "identity"))
				if err == nil {
					err = os.WriteFile(filepath.Join(other, "identity"), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("unshare", "-m", "sh", "-c", `mount --bind "$1" "$2" && exec "$0" launcher --state-dir "$2"`, keeperBinary, other, path)
			testkeeper.Run(t, other, cmd, cmd.Start)
			n := testkeeper.Open(t, other)
			q := proctest.Start(t, n, process.Spec{Argv: []string{"sleep", "1000"}})
			for _, one := range []process.Process{p, q} {
				if in, err := one.Info(t.Context()); err != nil || in.Exit != nil || unix.Kill(in.PID, 0) != nil {
					t.Errorf("%+v, %v; want that it runs", in, err)
				}
			}
			if res, err := q.Kill(t.Context()); err != nil {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	if in, err := p.Info(t.Context()); err != nil || in.Exit != nil || unix.Kill(in.PID, 0) != nil {
		t.Errorf("%+v, %v; want that it still runs", in, err)
	}
	if _, err := os.Stat(filepath.Join(path, rundir.SpoolDir, string(p.ID()))); err != nil {
		t.Error(err)
	}
}
