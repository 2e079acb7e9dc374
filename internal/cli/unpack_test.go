package cli

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// archive is a tar of entries, as a hostile program may write it.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = "hostile"
			h.Size = int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		proctest.Must(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(text))
		proctest.Must(t, err)
	}
	proctest.Must(t, w.Close())
	return b.Bytes()
}

var (
	dirEntry = tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}
	file     = func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	symlink  = func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hardlink = func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
	}
)

// TestACopyOutOfASandboxStaysInItsTarget: whatever a sandbox sends, nothing outside of
// the target is made, changed or linked to.
func TestACopyOutOfASandboxStaysInItsTarget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		entries []tar.Header
		wrong   string // in the error; "": it succeeds
		skipped int64
	}{
		"a name that leads up":                   {[]tar.Header{dirEntry, file("../outside/secret")}, "leads out", 0},
		"a name that leads up in its middle":     {[]tar.Header{dirEntry, file("a/../../outside/secret")}, "leads out", 0},
		"an absolute name":                       {[]tar.Header{dirEntry, file("/OUT/secret")}, "leads out", 0},
		"a link that leads up, and through it":   {[]tar.Header{dirEntry, symlink("l", "../outside"), file("l/secret")}, "", 1},
		"an absolute link, and through it":       {[]tar.Header{dirEntry, symlink("l", "/OUT"), file("l/secret")}, "", 1},
		"a link through another one":             {[]tar.Header{dirEntry, {Typeflag: tar.TypeDir, Name: "a/b"}, symlink("a/b/up", "../.."), symlink("x", "a/b/up/../outside"), file("x/secret")}, "escapes", 0},
		"a link that leads out through another":  {[]tar.Header{dirEntry, {Typeflag: tar.TypeDir, Name: "a/b"}, symlink("a/b/up", "../.."), symlink("x", "a/b/up/../../outside/secret")}, "", 1},
		"a link that leads out, and a failure":   {[]tar.Header{dirEntry, {Typeflag: tar.TypeDir, Name: "a"}, symlink("a/d", ".."), symlink("b", "a/d/../../outside"), file("b/secret")}, "escapes", 0},
		"a link that a later copy may lead out":  {[]tar.Header{dirEntry, symlink("L", "a/a/d/../secret")}, "", 1},
		"a link that was there before":           {[]tar.Header{dirEntry, file("planted/secret")}, "escapes", 0},
		"a file in place of a link":              {[]tar.Header{dirEntry, file("planted")}, "", 0},
		"a hard link to what is outside":         {[]tar.Header{dirEntry, hardlink("h", "../outside/secret"), hardlink("i", "/OUT/secret"), file("h")}, "", 2},
		"a hard link through a link":             {[]tar.Header{dirEntry, hardlink("h", "planted/secret"), file("h")}, "", 1},
		"a directory in place of a link":         {[]tar.Header{dirEntry, {Typeflag: tar.TypeDir, Name: "planted"}, file("planted/secret")}, "not a directory", 0},
		"devices and sockets":                    {[]tar.Header{dirEntry, {Typeflag: tar.TypeChar, Name: "null"}, {Typeflag: tar.TypeBlock, Name: "sda"}, {Typeflag: tar.TypeFifo, Name: "fifo"}}, "", 3},
		"a setuid program":                       {[]tar.Header{dirEntry, {Typeflag: tar.TypeReg, Name: "su", Mode: 0o6755}}, "", 0},
		"a file in place of a directory":         {[]tar.Header{dirEntry, {Typeflag: tar.TypeDir, Name: "a"}, file("a")}, "is a directory here", 0},
		"the target itself as a file":            {[]tar.Header{dirEntry, file(".")}, "no name", 0},
		"an endless name":                        {[]tar.Header{dirEntry, file(strings.Repeat("x", 100_000))}, "too long", 0},
		"a file where a directory was asked for": {[]tar.Header{file("../../outside/secret")}, "", 0},
		"two files where one was asked for":      {[]tar.Header{file("x"), file("../outside/secret")}, "more bytes than the file has", 0},
		"a link where a file was asked for":      {[]tar.Header{symlink("x", "/OUT/secret")}, "neither a file nor a directory", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			outside, target := filepath.Join(top, "outside"), filepath.Join(top, "target")
			proctest.Must(t, os.Mkdir(outside, 0o700))
			proctest.Must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("mine"), 0o600))
			proctest.Must(t, os.MkdirAll(filepath.Join(target, "box"), 0o700))
			proctest.Must(t, os.Symlink(outside, filepath.Join(target, "box", "planted")))
			for i := range tt.entries {
				tt.entries[i].Name = strings.ReplaceAll(tt.entries[i].Name, "/OUT", outside)
				tt.entries[i].Linkname = strings.ReplaceAll(tt.entries[i].Linkname, "/OUT", outside)
			}
			base := "box"
			if tt.entries[0].Typeflag != tar.TypeDir {
				base = "single"
			}
			u := &unpacker{target: target, base: base, most: 1 << 20}
			err := u.unpack(bytes.NewReader(archive(t, tt.entries...)))
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("it ended with %v; want %q", err, tt.wrong)
			}
			if err == nil && u.facts.Skipped != tt.skipped {
				t.Errorf("%d entries were left out; want %d", u.facts.Skipped, tt.skipped)
			}
			if b := proctest.Value(os.ReadFile(filepath.Join(outside, "secret")))(t); string(b) != "mine" {
				t.Errorf("the file outside has %q", b)
			}
			for _, dir := range []string{outside, top} {
				want := map[string]int{outside: 1, top: 2}[dir]
				if all := proctest.Value(os.ReadDir(dir))(t); len(all) != want {
					t.Errorf("in %s there are %v", dir, all)
				}
			}
			proctest.Must(t, filepath.WalkDir(target, func(p string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
					t.Errorf("%s has the mode %v", p, info.Mode())
				}
				if e.Type() == fs.ModeSymlink && filepath.Base(p) != "planted" {
					if to, err := filepath.EvalSymlinks(p); err == nil && !strings.HasPrefix(to, target) {
						t.Errorf("%s leads to %s", p, to)
					}
				}
				return nil
			}))
		})
	}
}

func TestACopyOutOfASandboxHasABound(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	proctest.Must(t, w.WriteHeader(&dirEntry))
	proctest.Must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: 1 << 40, Mode: 0o600}))
	_, err := w.Write(make([]byte, 1<<20))
	proctest.Must(t, err)
	u := &unpacker{target: t.TempDir(), most: 1000}
	if err := u.unpack(bytes.NewReader(b.Bytes())); err == nil || !strings.Contains(err.Error(), "--max allows more") {
		t.Errorf("more than was allowed: %v", err)
	}
	u = &unpacker{target: t.TempDir(), most: 1 << 30}
	if err := u.unpack(bytes.NewReader(b.Bytes())); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a torn archive: %v", err)
	}
	endless := append(archive(t, dirEntry), make([]byte, 2<<20)...)
	u = &unpacker{target: t.TempDir(), most: 1 << 30}
	if err := u.unpack(bytes.NewReader(endless)); err == nil || !strings.Contains(err.Error(), "after its end") {
		t.Errorf("more behind the end: %v", err)
	}
}

// FuzzUnpack: no bytes of a sandbox make anything outside of the target.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, dirEntry, file("a/b"), symlink("l", "../x"), file("l/y"), hardlink("h", "a/b")))
	f.Add(archive(f, file("x")))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		target := filepath.Join(top, "target")
		proctest.Must(t, os.Mkdir(target, 0o700))
		_ = (&unpacker{target: target, base: "box", most: 1 << 20}).unpack(bytes.NewReader(b))
		if all := proctest.Value(os.ReadDir(top))(t); len(all) != 1 {
			t.Errorf("beside the target there are %v", all)
		}
	})
}

func TestPathsOfACopy(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string][2]string{
		"web:/tmp/x": {"web", "/tmp/x"}, "web:": {"web", ""}, "./web:x": {"", "./web:x"}, "/a:b": {"", "/a:b"}, "-": {"", "-"},
		"dir/a:b": {"", "dir/a:b"}, "a:b:c": {"a", "b:c"}, "~/a:b": {"", "~/a:b"}, ":x": {"", ":x"},
	} {
		if sandbox, name := splitPath(arg); sandbox != want[0] || name != want[1] {
			t.Errorf("%s is %q in %q", arg, name, sandbox)
		}
	}
	for name, want := range map[string]string{"/a/b": "b", "/a/b/": "b", "/a/.": "", ".": "", "..": "", "/": "", "./": "", "./x": "x"} {
		if got := baseOf(name); got != want {
			t.Errorf("the base of %s is %q", name, got)
		}
	}
	if got := inside("-rf"); got != "./-rf" {
		t.Errorf("-rf is passed on as %q", got)
	}
}
