package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Who made an archive may not be who says where it is unpacked: no link of it leads an entry elsewhere, by whatever name it is
// reached, and one that was there before does as it always did.
func TestAnArchiveLeadsThroughNoLinkOfItsOwn(t *testing.T) {
	f := self(t)
	for what, entries := range map[string][]tar.Header{
		"a file":          {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, {Name: "l/evil", Typeflag: tar.TypeReg}},
		"a directory":     {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, {Name: "l/evil", Typeflag: tar.TypeDir}},
		"deeper":          {{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, {Name: "d/l/a/evil", Typeflag: tar.TypeReg}},
		"relative":        {{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../../out"}, {Name: "d/l/evil", Typeflag: tar.TypeReg}},
		"a link":          {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, {Name: "l/evil", Typeflag: tar.TypeSymlink, Linkname: "x"}},
		"its content":     {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, {Name: "evil", Typeflag: tar.TypeLink, Linkname: "l/mine"}},
		"by another name": {{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "OUT"}, {Name: "was/l/evil", Typeflag: tar.TypeReg}},
	} {
		base := t.TempDir()
		top, out := filepath.Join(base, "top"), filepath.Join(base, "out")
		proctest.Must(t, errors.Join(os.MkdirAll(filepath.Join(top, "d"), 0o755), os.Mkdir(out, 0o755),
			os.Symlink("d", filepath.Join(top, "was")),
			os.WriteFile(filepath.Join(out, "mine"), []byte("mine"), 0o600)))
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		proctest.Must(t, w.WriteHeader(&tar.Header{Name: "was/file", Typeflag: tar.TypeReg, Mode: 0o600}))
		for i := range entries {
			if h := &entries[i]; h.Linkname == "OUT" {
				h.Linkname = out
			}
			entries[i].Mode = 0o755
			proctest.Must(t, w.WriteHeader(&entries[i]))
		}
		proctest.Must(t, w.Close())
		_, err := f.Extract(t.Context(), &b, top, ExtractOptions{})
		if in, ok := errors.AsType[*InvalidError](err); !ok || in.Reason != "leads through a link of the archive" {
			t.Errorf("%s: %v", what, err)
		}
		names := proctest.Value(os.ReadDir(out))(t)
		if _, err := os.Lstat(filepath.Join(top, "evil")); len(names) != 1 || err == nil {
			t.Errorf("%s: outside is %v", what, names)
		}
		if _, err := os.Stat(filepath.Join(top, "d", "file")); err != nil {
			t.Errorf("%s: by a link that was there: %v", what, err)
		}
	}
}

// Zeros of an archive take no room on the disk: a small one may have any number of them.
func TestZerosOfAnArchiveAreHoles(t *testing.T) {
	f := self(t)
	top := t.TempDir()
	content := append(append(make([]byte, 32<<20), "middle"...), make([]byte, 32<<20)...)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	proctest.Must(t, w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}))
	proctest.Value(w.Write(content))(t)
	proctest.Must(t, w.Close())
	proctest.Value(f.Extract(t.Context(), &b, top, ExtractOptions{}))(t)
	var st syscall.Stat_t
	proctest.Must(t, syscall.Stat(filepath.Join(top, "f"), &st))
	if !bytes.Equal(proctest.Value(os.ReadFile(filepath.Join(top, "f")))(t), content) || st.Blocks*512 > 4<<20 {
		t.Errorf("it has %d bytes, which take %d", st.Size, st.Blocks*512)
	}
	b.Reset()
	w = tar.NewWriter(&b)
	proctest.Must(t, w.WriteHeader(&tar.Header{Name: "g", Typeflag: tar.TypeLink, Linkname: "nothing"}))
	proctest.Must(t, w.Close())
	_, err := f.Extract(t.Context(), &b, top, ExtractOptions{})
	if in, ok := errors.AsType[*InvalidError](err); !ok || in.Field != "path" {
		t.Errorf("another name of nothing: %v", err)
	}
}
