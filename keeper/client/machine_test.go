//go:build linux

package client_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

func TestAFullFilesystemHoldsOutputBackAndLosesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can mount a small filesystem
	}
	disk, err := os.MkdirTemp("", "tend-full-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(disk) })
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"); err != nil {
		if errors.Is(err, unix.EPERM) {
			return // root without the capability, in a container
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	state := filepath.Join(disk, "s")
	daemonOn(t, state)
	m := open(t, state)

	small, err := m.Start(t.Context(), process.Spec{Shell: "read x; echo hello $x; echo said >&2; exit 7", Stdin: process.StdinPipe})
	if err != nil {
		t.Fatal(err)
	}
	large, err := m.Start(t.Context(), process.Spec{Shell: "read x; yes | head -c 3000000; exit 5", Stdin: process.StdinPipe})
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	for _, p := range []process.Process{small, large} {
		if _, err := p.Write(t.Context(), process.Input{Data: []byte("you\n")}); err != nil {
			t.Fatal(err)
		}
	}
	res, err := small.Wait(t.Context(), process.Until{})
	if err != nil || res.Exit == nil || res.Exit.Code != 7 {
		t.Fatalf("on a full filesystem the process ended with %+v, %v", res, err)
	}
	_, err = m.Start(t.Context(), process.Spec{Argv: []string{"true"}})
	var failed *process.StartError
	if !errors.As(err, &failed) || failed.Reason != process.StartResources || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a start on a full filesystem says %v", err)
	}
	if err := os.Truncate(filler, 0); err != nil {
		t.Fatal(err)
	}
	if got := whole(t, small, process.Stdout); got != "hello you\n" {
		t.Errorf("stdout is %q after room was made", got)
	}
	if got := whole(t, small, process.Stderr); got != "said\n" {
		t.Errorf("stderr is %q after room was made", got)
	}
	if got := whole(t, large, process.Stdout); got != strings.Repeat("y\n", 1500000) {
		t.Errorf("%d bytes of a stream that was held back, not 3000000, or others", len(got))
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = m.Start(t.Context(), process.Spec{Argv: []string{"true"}}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a start after room was made says %v", err)
		}
	}
}

// fill writes a file until the filesystem has no room for it.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10} {
		for {
			if _, err = f.Write(make([]byte, size)); err != nil {
				break
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// whole reads one stream of a process to its end, however long after the exit.
func whole(t *testing.T, p process.Process, s process.Stream) string {
	t.Helper()
	r, err := p.Read(t.Context(), process.ReadOptions{Streams: []process.Stream{s}, Drain: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	for {
		ev, ok, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return b.String()
		case err != nil:
			t.Fatal(err)
		case !ok:
			<-r.Ready()
			continue
		}
		if ev.Kind == process.EventGap {
			t.Fatalf("a gap of %s: %+v", s, ev.Gap)
		}
		b.Write(ev.Data)
	}
}
