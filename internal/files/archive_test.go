//go:build unix

package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestArchive(t *testing.T) {
	f := self(t)
	dir := filepath.Join(f.User.Home, "top")
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "a", "empty"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "a", "file"), []byte("content"), 0o640))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, strings.Repeat("long", 40)), []byte("x"), 0o600))
	proctest.Must(t, os.Symlink("../a/file", filepath.Join(dir, "a", "link")))
	proctest.Must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	proctest.Must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	var b bytes.Buffer
	proctest.Must(t, f.Archive(t.Context(), dir, &b))
	got := map[string]string{}
	r := tar.NewReader(&b)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		proctest.Must(t, err)
		text := fmt.Sprintf("%c %o %s%s", h.Typeflag, h.Mode, h.Linkname, proctest.Value(io.ReadAll(r))(t))
		if h.Name == "top/"+LeftOut {
			text = strings.ReplaceAll(text, dir, "")
		}
		got[h.Name] = text
	}
	want := map[string]string{
		"top/a/": "5 755 ", "top/a/empty/": "5 755 ", "top/a/file": "0 640 content", "top/a/link": "2 777 ../a/file", "top/dangling": "2 777 nowhere",
		"top/" + strings.Repeat("long", 40): "0 600 x", "top/" + LeftOut: "0 600 \"/fifo\": it is not a regular file\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]error{filepath.Join(dir, "a", "file"): ErrNotDir, filepath.Join(dir, "fifo"): ErrNotDir, filepath.Join(dir, "none"): ErrNotExist} {
		if err := f.Archive(t.Context(), path, io.Discard); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := f.Archive(t.Context(), dir, failing{}); !errors.Is(err, errBroken) {
		t.Errorf("to who has left: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errBroken }

func TestListSome(t *testing.T) {
	f := self(t)
	dir := f.User.Home
	for _, name := range []string{"b.txt", "A.txt", "c"} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for _, name := range []string{"z.txt", "y"} {
		proctest.Must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	proctest.Must(t, os.Symlink("y", filepath.Join(dir, "to-y")))
	for _, tt := range []struct {
		w     Window
		want  string
		total int
	}{
		{Window{}, "y z.txt A.txt b.txt c to-y", 6},
		{Window{From: 1, Most: 2}, "z.txt A.txt", 6},
		{Window{From: 5, Most: 2}, "to-y", 6},
		{Window{From: 9}, "", 6},
		{Window{From: -1, Most: -1, Match: ".TXT"}, "z.txt A.txt b.txt", 3},
		{Window{Match: "none"}, "", 0},
	} {
		all, total, err := f.ListSome(t.Context(), dir, tt.w)
		var names []string
		for _, e := range all {
			names = append(names, e.Name)
		}
		if got := strings.Join(names, " "); got != tt.want || total != tt.total || err != nil {
			t.Errorf("%+v: %s of %d, %v", tt.w, got, total, err)
		}
	}
	if _, _, err := f.ListSome(t.Context(), filepath.Join(dir, "c"), Window{}); !errors.Is(err, ErrNotDir) {
		t.Errorf("of a file: %v", err)
	}
}
