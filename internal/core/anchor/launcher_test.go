//go:build linux

package anchor

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestALauncherLeavesNoAnchorThatNobodyCanAskYet: the next launcher asks the anchor for
// the listening sockets.
func TestALauncherLeavesNoAnchorThatNobodyCanAskYet(t *testing.T) {
	dir := t.TempDir()
	run := proctest.Value(rundir.Open(dir))(t)
	defer run.Close()
	// An anchor that has begun, and does not listen yet.
	program, started := filepath.Join(dir, "anchor"), filepath.Join(dir, "started")
	proctest.Must(t, os.WriteFile(program, []byte("#!/bin/sh\necho $$ >"+started+"\nexec sleep 1000\n"), 0o700))
	pid := 0
	defer func() { unix.Kill(pid, unix.SIGKILL) }()
	left := make(chan error, 1)
	var log bytes.Buffer
	go func() {
		left <- RunLauncher(LauncherConfig{StateDir: dir, Self: program, Environ: os.Environ(), Log: &log})
	}()
	proctest.Eventually(t, "the anchor has begun", func() bool {
		text, _ := os.ReadFile(started)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	listen := proctest.Value(run.Listen(rundir.AnchorSocket, unix.SOCK_SEQPACKET))(t)
	asked := make(chan string, 1)
	go rundir.Accept(listen, nil, func(fd int) {
		defer unix.Close(fd)
		buf := make([]byte, 100)
		if n, _, err := unixsock.Receive(fd, buf, nil, 0); err == nil {
			asked <- string(buf[:n])
			unixsock.Send(fd, []byte("ok\x001\x000\x000"), nil, 0)
		}
	})
	proctest.Must(t, unix.Kill(os.Getpid(), Leave))
	select {
	case err := <-left:
		t.Fatalf("the launcher has left before the anchor answers: %v", err)
	case what := <-asked:
		if what != "roles" {
			t.Errorf("the launcher asks for %q", what)
		}
	}
	if err := <-left; err != nil || log.Len() > 0 {
		t.Errorf("the launcher leaves with %v and says %s", err, log.String())
	}
}
