package unpack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/overlay"
	"github.com/tend-run/tend/internal/support/proctest"
)

var when = time.Unix(1_700_000_000, 0)

// Entries of layers.
func file(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)), Uname: text}
}
func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
func gone(name string) tar.Header {
	return file(filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name)), "")
}
func shut(name string) tar.Header { return file(filepath.Join(name, ".wh..wh..opq"), "") }
func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
}
func hard(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o644}
}

// archive writes entries; the content of a file is its Uname.
func archive(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := h.Uname
		h.Uname = ""
		if h.ModTime.IsZero() {
			h.ModTime = when
		}
		proctest.Must(t, w.WriteHeader(&h))
		proctest.Value(io.WriteString(w, text))(t)
	}
	proctest.Must(t, w.Close())
	return b.Bytes()
}

// chain unpacks layers, lowest first, and returns their directories, topmost first.
func chain(t testing.TB, layers ...[]tar.Header) (dirs []string, last Result) {
	t.Helper()
	top := t.TempDir()
	for i, l := range layers {
		d := filepath.Join(top, fmt.Sprint(i))
		proctest.Must(t, os.Mkdir(d, 0o755))
		var err error
		last, err = Layer(t.Context(), bytes.NewReader(archive(t, l...)), d, Options{Below: dirs})
		if err != nil {
			t.Fatalf("layer %d: %v", i, err)
		}
		dirs = append([]string{d}, dirs...)
	}
	return dirs, last
}

// seen lists what a sandbox of the layers would see: names, kinds, content.
func seen(t testing.TB, dirs []string) string {
	t.Helper()
	proctest.Root(t)
	at := t.TempDir()
	lower := append(append([]string(nil), dirs...), t.TempDir()) // the kernel wants two
	spec := overlay.Spec{Lower: lower, User: true}
	proctest.Must(t, unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, spec.Options()))
	defer func() { proctest.Must(t, unix.Unmount(at, 0)) }()
	return list(t, at)
}

func list(t testing.TB, at string) string {
	t.Helper()
	var all []string
	proctest.Must(t, filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == at {
			return err
		}
		rel, _ := filepath.Rel(at, path)
		switch {
		case d.IsDir():
			rel += "/"
		case d.Type() == fs.ModeSymlink:
			to, _ := os.Readlink(path)
			rel += " -> " + to
		case d.Type() == 0:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel += "=" + string(b)
		default:
			rel += " " + d.Type().String()
		}
		all = append(all, rel)
		return nil
	}))
	return strings.Join(all, "\n")
}

func TestALayerMeansWhatTheSpecificationSays(t *testing.T) {
	below := []tar.Header{dir("d"), file("d/a", "1"), file("d/b", "1"), dir("d/e"), file("d/e/f", "1"), file("x", "1")}
	usr := []tar.Header{dir("usr"), dir("usr/bin"), file("usr/bin/sh", "sh"), link("bin", "usr/bin")}
	for name, c := range map[string]struct {
		layers [][]tar.Header
		want   string
	}{
		"a whiteout removes":                      {[][]tar.Header{below, {gone("d/a"), gone("x")}}, "d/\nd/b=1\nd/e/\nd/e/f=1"},
		"a whiteout removes a directory":          {[][]tar.Header{below, {gone("d")}}, "x=1"},
		"never of its own layer and before it":    {[][]tar.Header{below, {gone("x"), file("x", "2"), gone("d")}}, "x=2"},
		"never of its own layer and after it":     {[][]tar.Header{below, {file("x", "2"), gone("x"), gone("d")}}, "x=2"},
		"a directory that is removed and new":     {[][]tar.Header{below, {gone("d"), dir("d"), file("d/n", "2")}}, "d/\nd/n=2\nx=1"},
		"the same in the other order":             {[][]tar.Header{below, {dir("d"), file("d/n", "2"), gone("d")}}, "d/\nd/n=2\nx=1"},
		"a whiteout below a whiteout":             {[][]tar.Header{below, {gone("d/e/f"), gone("d/e"), gone("d/e/g/h")}}, "d/\nd/a=1\nd/b=1\nx=1"},
		"an opaque directory":                     {[][]tar.Header{below, {dir("d"), shut("d"), file("d/n", "2")}}, "d/\nd/n=2\nx=1"},
		"an opaque mark after what is there":      {[][]tar.Header{below, {file("d/n", "2"), shut("d")}}, "d/\nd/n=2\nx=1"},
		"an opaque directory has no more in it":   {[][]tar.Header{below, {shut("d"), gone("d/e/f"), gone("d/a")}}, "d/\nx=1"},
		"an opaque root":                          {[][]tar.Header{below, {shut(""), file("d/n", "2")}}, "d/\nd/n=2"},
		"an opaque directory that is not there":   {[][]tar.Header{below, {shut("n/o"), gone("n/o/p")}}, "d/\nd/a=1\nd/b=1\nd/e/\nd/e/f=1\nx=1"},
		"a whiteout of nothing":                   {[][]tar.Header{{gone("x"), file("y", "1")}}, "y=1"},
		"other marks of aufs":                     {[][]tar.Header{{file(".wh..wh.aufs", ""), dir(".wh..wh.plnk"), file(".wh..wh.plnk/1.2", "")}}, ""},
		"a file takes the place of a directory":   {[][]tar.Header{below, {file("d", "2")}}, "d=2\nx=1"},
		"a directory takes that of a file":        {[][]tar.Header{below, {dir("x"), file("x/y", "2")}, {file("x/z", "3")}}, "d/\nd/a=1\nd/b=1\nd/e/\nd/e/f=1\nx/\nx/y=2\nx/z=3"},
		"a parent takes that of a file":           {[][]tar.Header{below, {file("x/y", "2")}}, "d/\nd/a=1\nd/b=1\nd/e/\nd/e/f=1\nx/\nx/y=2"},
		"removed and made again three times":      {[][]tar.Header{below, {gone("d")}, {dir("d"), file("d/n", "3")}, {file("d/m", "4")}}, "d/\nd/m=4\nd/n=3\nx=1"},
		"a file for a moment hides what is below": {[][]tar.Header{below, {file("d", "2"), dir("d"), file("d/n", "2")}}, "d/\nd/n=2\nx=1"},
		"the last of one name":                    {[][]tar.Header{{file("a", "1"), dir("a"), file("a/b", "2"), link("a", "b"), file("a", "3")}}, "a=3"},
		"a link of the layer below is followed":   {[][]tar.Header{usr, {file("bin/foo", "2")}}, "bin -> usr/bin\nusr/\nusr/bin/\nusr/bin/foo=2\nusr/bin/sh=sh"},
		"a link of the layer is followed":         {[][]tar.Header{append(usr, file("bin/foo", "2"))}, "bin -> usr/bin\nusr/\nusr/bin/\nusr/bin/foo=2\nusr/bin/sh=sh"},
		"a whiteout behind a link":                {[][]tar.Header{usr, {gone("bin/sh")}}, "bin -> usr/bin\nusr/\nusr/bin/"},
		"a directory takes the place of a link":   {[][]tar.Header{usr, {dir("bin"), file("bin/foo", "2")}}, "bin/\nbin/foo=2\nusr/\nusr/bin/\nusr/bin/sh=sh"},
		"a hard link to a file below":             {[][]tar.Header{below, {hard("h", "d/a"), gone("d/b")}}, "d/\nd/a=1\nd/e/\nd/e/f=1\nh=1\nx=1"},
		"a hard link of which the first is gone":  {[][]tar.Header{below, {hard("h", "x"), gone("x")}}, "d/\nd/a=1\nd/b=1\nd/e/\nd/e/f=1\nh=1\nx=1"},
		"a hard link through a link":              {[][]tar.Header{usr, {hard("bin/s", "/bin/sh")}}, "bin -> usr/bin\nusr/\nusr/bin/\nusr/bin/s=sh\nusr/bin/sh=sh"},
		"a hard link to a link":                   {[][]tar.Header{usr, {hard("b", "bin")}}, "b -> usr/bin\nbin -> usr/bin\nusr/\nusr/bin/\nusr/bin/sh=sh"},
		"names in other forms":                    {[][]tar.Header{{dir("./"), dir("./a//"), file("/a/./b", "1"), dir(".")}}, "a/\na/b=1"},
	} {
		t.Run(name, func(t *testing.T) {
			dirs, _ := chain(t, c.layers...)
			if diff := cmp.Diff(c.want, seen(t, dirs)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatALayerKeeps(t *testing.T) {
	proctest.Root(t)
	long := strings.Repeat("n", 255)
	suid := file("suid", "x")
	suid.Mode, suid.Uid, suid.Gid = 0o6755, 7, 8
	attr := file("attr", "x")
	attr.PAXRecords = map[string]string{"SCHILY.xattr.user.mark": "m", "SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.security.capability": "c",
		"SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.huge": strings.Repeat("h", 60_000)}
	foreign := file("foreign", "x")
	foreign.Uid, foreign.Gid, foreign.Mode = 70_000, 1<<31, 0o6755
	shy := dir("d")
	shy.Mode, shy.Gid = 0o1570, 9
	dirs, res := chain(t, []tar.Header{
		suid, attr, foreign, shy, file("d/"+long, "x"), file("d/late", "x"),
		{Typeflag: tar.TypeChar, Name: "null"}, {Typeflag: tar.TypeFifo, Name: "fifo"}, file("hole", strings.Repeat("\x00", 1<<20)),
	}, []tar.Header{file("d/new", "x")})
	lower := dirs[1]
	stat := func(name string) *syscall.Stat_t {
		t.Helper()
		return proctest.Value(os.Lstat(filepath.Join(lower, name)))(t).Sys().(*syscall.Stat_t)
	}
	if st := stat("suid"); st.Mode&0o7777 != 0o6755 || st.Uid != 7 || st.Gid != 8 || st.Mtim.Sec != when.Unix() {
		t.Errorf("suid: %+v", st)
	}
	if st := stat("foreign"); st.Mode&0o7777 != 0o755 || st.Uid != nobody || st.Gid != nobody {
		t.Errorf("foreign: %+v", st)
	}
	if st := stat("hole"); st.Size != 1<<20 || st.Blocks != 0 {
		t.Errorf("hole: %d bytes in %d blocks", st.Size, st.Blocks)
	}
	stat("d/" + long)
	for name := range map[string]bool{"null": true, "fifo": true} {
		if _, err := os.Lstat(filepath.Join(lower, name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if st := stat("d"); st.Mode&0o7777 != 0o1570 || st.Mtim.Sec != when.Unix() {
		t.Errorf("d: %+v", st)
	}
	lower = dirs[0] // as below, without an entry of its own
	if st := stat("d"); st.Mode&0o7777 != 0o1570 || st.Gid != 9 || st.Mtim.Sec != when.Unix() {
		t.Errorf("d of the upper layer: %+v", st)
	}
	var names [1 << 10]byte
	n := proctest.Value(unix.Listxattr(filepath.Join(dirs[1], "attr"), names[:]))(t)
	if got := string(names[:n]); got != "user.mark\x00" {
		t.Errorf("attributes: %q", got)
	}
	if res.Left != (Left{}) {
		t.Errorf("the second layer left out %+v", res.Left)
	}
	d := filepath.Join(t.TempDir(), "again")
	proctest.Must(t, os.Mkdir(d, 0o755))
	res = proctest.Value(Layer(t.Context(), bytes.NewReader(archive(t, attr, foreign, tar.Header{Typeflag: tar.TypeChar, Name: "null"})), d, Options{}))(t)
	if res.Left != (Left{Capabilities: 1, Owners: 1, Attributes: 3, Devices: 1}) {
		t.Errorf("left out: %+v", res.Left)
	}
}

func TestAHardLinkIsOneFile(t *testing.T) {
	dirs, _ := chain(t, []tar.Header{file("a", "1")}, []tar.Header{hard("b", "a"), hard("c", "b")})
	var inode uint64
	for _, name := range []string{"a", "b", "c"} {
		st := proctest.Value(os.Lstat(filepath.Join(dirs[0], name)))(t).Sys().(*syscall.Stat_t)
		if inode == 0 {
			inode = st.Ino
		}
		if st.Ino != inode || st.Nlink != 3 {
			t.Errorf("%s: inode %d of %d names", name, st.Ino, st.Nlink)
		}
	}
}

func TestAViewReadsThroughLayersAndLinks(t *testing.T) {
	dirs, _ := chain(t, []tar.Header{dir("etc"), file("etc/passwd", "1"), link("e", "/etc"), link("out", "/../../etc"), dir("d")},
		[]tar.Header{file("etc/passwd", "2"), gone("d")})
	v := proctest.Value(OpenView(dirs))(t)
	defer v.Close()
	for _, name := range []string{"/etc/passwd", "e/passwd", "out/passwd"} {
		if b, err := v.ReadFile(name, 10); string(b) != "2" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, name := range []string{"none", "etc", "d"} {
		if b, err := v.ReadFile(name, 10); err == nil {
			t.Errorf("%s: %q", name, b)
		}
	}
	if _, err := v.ReadFile("etc/passwd", 0); err == nil {
		t.Error("a file of 1 byte is read where 0 are allowed")
	}
	for name, want := range map[string]bool{"/": true, "etc": true, "e": true, "d": false, "none": false, "etc/passwd": false} {
		if v.IsDir(name) != want {
			t.Errorf("IsDir(%q) is %v", name, !want)
		}
	}
}

// What Tar writes is the layer again, with owners, modes, times, attributes, hard links and what
// it removes: the tar of that is the same.
func TestTheTarOfALayerIsTheSameLayer(t *testing.T) {
	proctest.Root(t)
	marked := file("attr", "a")
	marked.PAXRecords = map[string]string{"SCHILY.xattr.user.of": "me\x00you"}
	owned := file("sub/owned", "s")
	owned.Uid, owned.Gid, owned.Mode, owned.ModTime, owned.Format = 33, 44, 0o6751, time.Unix(5, 123), tar.FormatPAX
	long := file(strings.Repeat("long/", 60)+"f", "l")
	dirs, _ := chain(t,
		[]tar.Header{dir("etc"), file("etc/passwd", "p"), file("etc/group", "g"), dir("old"), file("old/a", "1"), file("gone", ""), dir("was"), file("was/x", "")},
		[]tar.Header{gone("gone"), gone("etc/group"), shut("old"), file("old/b", "2"), owned, marked, long, link("l", "/etc/passwd"),
			file("first", "text"), hard("second", "first"), gone("was"), file("hole", strings.Repeat("\x00", 200_000)), {Typeflag: tar.TypeSymlink, Name: "own", Linkname: "x", Uid: 7}},
		[]tar.Header{file("was", "a file"), hard("passwd", "etc/passwd"), link("first", "l")})
	var again, tars [3][]byte
	var copies []string
	for i := range 3 {
		var b bytes.Buffer
		proctest.Must(t, Tar(t.Context(), dirs[2-i], &b))
		tars[i] = b.Bytes()
		d := t.TempDir()
		proctest.Value(Layer(t.Context(), bytes.NewReader(tars[i]), d, Options{Below: copies}))(t)
		copies = append([]string{d}, copies...)
	}
	for i := range 3 {
		var b bytes.Buffer
		proctest.Must(t, Tar(t.Context(), copies[2-i], &b))
		again[i] = b.Bytes()
		if !bytes.Equal(tars[i], again[i]) {
			t.Errorf("layer %d is not the same", i)
		}
	}
	if is, was := seen(t, copies), seen(t, dirs); is != was {
		t.Errorf("%s", cmp.Diff(was, is))
	}
	r := tar.NewReader(bytes.NewReader(tars[1]))
	all := map[string]*tar.Header{}
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		all[h.Name] = h
	}
	for _, name := range []string{".wh.gone", "etc/.wh.group", "old/.wh..wh..opq", ".wh.was", "old/b"} {
		if all[name] == nil {
			t.Errorf("it has no %s", name)
		}
	}
	if h := all["sub/owned"]; h.Uid != 33 || h.Gid != 44 || h.Mode != 0o6751 || !h.ModTime.Equal(owned.ModTime) {
		t.Errorf("owned: %+v", h)
	}
	if h := all["attr"]; h.PAXRecords["SCHILY.xattr.user.of"] != "me\x00you" {
		t.Errorf("attr: %+v", h)
	}
	if h := all["second"]; h.Typeflag != tar.TypeLink || h.Linkname != "first" {
		t.Errorf("second: %+v", h)
	}
}
