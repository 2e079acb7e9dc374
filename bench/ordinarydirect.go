//go:build linux

package main

// What the ordinary client is compared with: the same work done by os/exec, in
// this process.

import (
	"context"
	"io"
	"os"
	"os/exec"

	"github.com/creack/pty"
)

func directRun(ctx context.Context, onData func([]byte), name string, args ...string) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, errp := must(cmd.StdoutPipe()), must(cmd.StderrPipe())
	check(cmd.Start())
	done := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, errp); close(done) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := out.Read(buf)
		if n > 0 && onData != nil {
			onData(buf[:n])
		}
		if err != nil {
			break
		}
	}
	<-done
	check(cmd.Wait())
}

func directPTY(ctx context.Context, name string, args ...string) (*os.File, *exec.Cmd) {
	cmd := exec.CommandContext(ctx, name, args...)
	m := must(pty.Start(cmd))
	m.Fd() // from here on it blocks, which is faster than the poller
	return m, cmd
}
