package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// damages are what may lie in place of a file.
var damages = map[string]func(path string) error{
	"a FIFO":                        func(path string) error { return unix.Mkfifo(path, 0o600) },
	"a link":                        func(path string) error { return os.Symlink("/etc/passwd", path) },
	"a link to nothing that blocks": func(path string) error { return os.Symlink("/dev/tty", path) },
	"a directory":                   func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) },
	"a socket":                      func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	"nothing":                       func(path string) error { return nil },
	"an empty file":                 func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"garbage": func(path string) error {
		return os.WriteFile(path, []byte("garbage, garbage, garbage, garbage, garbage, garbage"), 0o600)
	},
	"a hole of 1 TiB": func(path string) error {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		return os.Truncate(path, 1<<40)
	},
	"a file that cannot be opened": func(path string) error { return os.WriteFile(path, []byte("secret"), 0) },
	"a file of somebody else": func(path string) error {
		if err := os.WriteFile(path, []byte("theirs"), 0o644); err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			return os.Chown(path, 12345, 12345)
		}
		return nil
	},
}

// over makes the directory of a process that is over, with output on stdout.
func over(t *testing.T, spec process.Spec) (dir string, asked process.Spec, end [4]int64) {
	t.Helper()
	dir, at := t.TempDir(), time.Unix(1700000000, 0)
	b := AppendSpec(nil, at, &spec)
	b = AppendStarted(b, at, Started{PID: 42, BootID: "boot"})
	b = appendRecord(b, 99, at, func(b []byte) []byte { return append(b, "of a newer version"...) })
	b = AppendExited(b, at.Add(1), &process.Exit{Code: 7, Cause: process.CauseTimeout, MaxRSS: 5})
	end[process.Stdout] = 100_000
	b = AppendEOF(b, at, process.Stdout, end[process.Stdout])
	b = AppendTreeGone(b, at)
	b = AppendPinned(b, at, true)
	b = AppendPinned(b, at, false)
	b = AppendInput(b, at, Input{Accepted: 9, EOF: true})
	var rec [IndexSize]byte
	IndexRecord{Kind: IndexData, Stream: process.Stdout, Len: uint32(end[process.Stdout]), Wall: 1}.Put(&rec)
	for name, data := range map[string][]byte{JournalName: b, IndexName: rec[:], FileName(process.Stdout): bytes.Repeat([]byte("x"), int(end[process.Stdout]))} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir, spec, end
}

// Whatever lies in place of a file, all that looks at the directory comes back,
// and no process that can be removed is stuck.
func TestNothingInPlaceOfAFileHoldsAnybodyUp(t *testing.T) {
	for _, name := range []string{JournalName, IndexName, FileName(process.Stdout)} {
		for what, lay := range damages {
			t.Run(what+" for "+name, func(t *testing.T) {
				dir, _, end := over(t, process.Spec{ID: "p", Name: "web", Shell: "true"})
				path := filepath.Join(dir, name)
				proctest.Must(t, os.Remove(path))
				proctest.Must(t, lay(path))
				src, j, err := Finished(dir)
				switch {
				case name == JournalName:
					if !errors.Is(err, process.ErrDamaged) && !errors.Is(err, process.ErrNotFound) {
						t.Errorf("it is read as %+v, %v", j, err)
					}
				case err != nil:
					t.Fatal(err)
				default:
					if j.Spec.Name != "web" || j.Exit == nil || j.Exit.Code != 7 {
						t.Errorf("its facts are %+v", j)
					}
					whole := name == IndexName // all bytes are there, only their order is not known
					if got := readAll(t, dir, src); whole && got != end[process.Stdout] || got > end[process.Stdout] {
						t.Errorf("%d bytes and gaps come, of %d", got, end[process.Stdout])
					}
					if !whole && j.Damaged == "" {
						t.Error("it is not said to be damaged")
					}
				}
				if _, err := Recover(dir); err != nil && name != JournalName {
					t.Errorf("repair: %v", err)
				}
				if b, err := os.ReadFile("/etc/passwd"); err != nil || len(b) == 0 {
					t.Fatal("the target of the link was touched")
				}
				if err := RemoveDir(dir); err != nil {
					t.Errorf("removal: %v", err)
				}
			})
		}
	}
}

// readAll reads to the end and returns how far stdout came.
func readAll(t *testing.T, dir string, src Source) (end int64) {
	t.Helper()
	r := proctest.Value(NewReader(dir, "p", outputs, src, process.ReadOptions{Drain: -1}))(t)
	defer r.Close()
	for {
		ev, ok, err := r.Next()
		if err == io.EOF {
			return end
		}
		if errors.Is(err, process.ErrDamaged) || errors.Is(err, syscall.EISDIR) {
			return end
		}
		if err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
		switch ev.Kind {
		case process.EventOutput:
			end = ev.Offset + int64(len(ev.Data))
		case process.EventGap:
			end = ev.Gap.To
		}
	}
}

// An index that is mostly hole is read where it has something.
func TestAHoleInTheIndexIsSkipped(t *testing.T) {
	dir, _, end := over(t, process.Spec{ID: "p", Shell: "true"})
	f := proctest.Value(os.OpenFile(filepath.Join(dir, IndexName), os.O_WRONLY, 0))(t)
	var rec [IndexSize]byte
	IndexRecord{Kind: IndexTrim, Stream: process.Stdout, Offset: 8192}.Put(&rec)
	proctest.Value(f.WriteAt(rec[:], 1<<40))(t)
	f.Close()
	src, _, err := Finished(dir)
	if err != nil || src.Progress().Base[process.Stdout] != 8192 || src.Progress().IndexEnd != 1<<40+IndexSize {
		t.Fatalf("%+v, %v", src, err)
	}
	if got := readAll(t, dir, src); got != end[process.Stdout] {
		t.Errorf("%d of %d", got, end[process.Stdout])
	}
}
