package tend_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// withMachine is a client of a server with the files of the machine.
func withMachine(t testing.TB, around func(http.Handler) http.Handler) *tend.Client {
	t.Helper()
	m := testkeeper.New(t)
	return dial(t, serveFace(t, native.Config{Manager: m, Machine: host.NewMachine(m)}, nil, around).URL, tend.Options{})
}

func TestFilesOfTheMachine(t *testing.T) {
	t.Parallel()
	f := withMachine(t, nil).Files()
	path := filepath.Join(t.TempDir(), "dir", "file")
	exists := func(path string, want bool) {
		t.Helper()
		if got, err := f.Exists(t.Context(), path); got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	exists(path, false)
	proctest.Must(t, f.WriteFile(t.Context(), path, []byte("of the machine")))
	exists(path, true)
	exists(path+"/below", false)
	if got := string(proctest.Value(os.ReadFile(path))(t)); got != "of the machine" {
		t.Errorf("it has %q", got)
	}
	proctest.Must(t, os.Symlink("nowhere", path+"-link"))
	exists(path+"-link", true)
	if _, err := f.Exists(t.Context(), ""); !errors.As(err, new(*process.InvalidError)) {
		t.Errorf("no path: %v", err)
	}
}

// tree is what is in a directory: modes, contents and targets.
func tree(t testing.TB, dir string) (all []string) {
	t.Helper()
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info := proctest.Value(d.Info())(t)
		text := strings.TrimPrefix(path, dir+"/") + " " + info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			text += " " + proctest.Value(os.Readlink(path))(t)
		case info.Mode().IsRegular():
			text += " " + string(proctest.Value(os.ReadFile(path))(t)) + info.ModTime().UTC().Format(" 15:04")
		}
		all = append(all, text)
		return nil
	}))
	return all
}

func TestADirectoryGoesThereAndBack(t *testing.T) {
	t.Parallel()
	var cut atomic.Int32
	f := withMachine(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/Archive") && cut.Add(-1) >= 0 {
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}).Files()
	local, remote, back := t.TempDir(), filepath.Join(t.TempDir(), "a", "remote"), filepath.Join(t.TempDir(), "b", "back")
	proctest.Must(t, os.MkdirAll(filepath.Join(local, "src", "empty"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(local, "src", "run.sh"), []byte("#!/bin/sh"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(local, strings.Repeat("long", 50)), make([]byte, 300_000), 0o600))
	proctest.Must(t, os.Symlink("src/run.sh", filepath.Join(local, "link")))
	proctest.Must(t, os.Chmod(filepath.Join(local, "src"), 0o555))
	cut.Store(1)
	proctest.Must(t, f.UploadDir(t.Context(), local, remote))
	want := tree(t, local)
	if got := tree(t, remote); !slices.Equal(got, want) || len(got) != 5 {
		t.Errorf("there is %q", got)
	}
	cut.Store(1)
	if left := proctest.Value(f.DownloadDir(t.Context(), remote, back))(t); len(left) != 0 {
		t.Errorf("left out: %q", left)
	}
	if got := tree(t, back); !slices.Equal(got, want) {
		t.Errorf("back came %q", got)
	}

	// What is there stays, and a file replaces that of its name.
	proctest.Must(t, os.WriteFile(filepath.Join(remote, "more"), nil, 0o600))
	proctest.Must(t, os.WriteFile(filepath.Join(local, "src", "run.sh"), []byte("new"), 0o755))
	proctest.Must(t, f.UploadDir(t.Context(), local, remote))
	if got := string(proctest.Value(os.ReadFile(filepath.Join(remote, "src", "run.sh")))(t)); got != "new" || !proctest.Value(f.Exists(t.Context(), filepath.Join(remote, "more")))(t) {
		t.Errorf("the file has %q", got)
	}
}

func TestADownloadLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	f := withMachine(t, nil).Files()
	remote, local, outside := t.TempDir(), t.TempDir(), t.TempDir()
	proctest.Must(t, os.Symlink("/etc/passwd", filepath.Join(remote, "absolute")))
	proctest.Must(t, os.Symlink("../..", filepath.Join(remote, "up")))
	proctest.Must(t, syscall.Mkfifo(filepath.Join(remote, "fifo"), 0o600))
	proctest.Must(t, os.Mkdir(filepath.Join(remote, "dir"), 0o777))
	proctest.Must(t, os.WriteFile(filepath.Join(remote, "dir", "file"), []byte("x"), 0o666))
	proctest.Must(t, os.MkdirAll(filepath.Join(remote, "d", "e", "f"), 0o777)) // by their letters alone these links stay inside
	proctest.Must(t, os.Symlink("../../..", filepath.Join(remote, "d", "e", "f", "top")))
	proctest.Must(t, os.Symlink("d/e/f/top/..", filepath.Join(remote, "chain")))
	proctest.Must(t, os.WriteFile(filepath.Join(remote, "tend-left-out.txt"), []byte("a file of this name"), 0o600))
	left := proctest.Value(f.DownloadDir(t.Context(), remote, local))(t)
	if text := strings.Join(left, "\n"); len(left) != 4 || !strings.Contains(text, "chain: a link to d/e/f/top/..") ||
		!strings.Contains(text, "absolute: a link to /etc/passwd") || !strings.Contains(text, "up: a link") || !strings.Contains(text, "/fifo\"") {
		t.Errorf("left out: %q", left)
	}
	if got := string(proctest.Value(os.ReadFile(filepath.Join(local, "tend-left-out.txt")))(t)); got != "a file of this name" {
		t.Errorf("it has %q", got)
	}
	// A link that was here before is no way out.
	proctest.Must(t, os.RemoveAll(filepath.Join(local, "dir")))
	proctest.Must(t, os.Symlink(outside, filepath.Join(local, "dir")))
	if _, err := f.DownloadDir(t.Context(), remote, local); err == nil {
		t.Error("it went out by a link")
	}
	if names := proctest.Value(os.ReadDir(outside))(t); len(names) != 0 {
		t.Errorf("outside is %v", names)
	}
	for what, err := range map[string]error{
		"no directory there": func() error { _, err := f.DownloadDir(t.Context(), filepath.Join(remote, "none"), local); return err }(),
		"none here":          f.UploadDir(t.Context(), filepath.Join(local, "none"), remote),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := f.UploadDir(t.Context(), local, filepath.Join(remote, "dir", "file")); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("into a file: %v", err)
	}
}
