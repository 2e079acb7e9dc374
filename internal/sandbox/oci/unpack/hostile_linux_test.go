package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// around is what must not change: files beside a layer's directory, which also has one outside
// to which its links may lead.
type around struct {
	top, layer, secret string
	below              []string
}

func newAround(t testing.TB) *around {
	t.Helper()
	top := t.TempDir()
	a := &around{top: top, layer: filepath.Join(top, "in", "layer"), secret: filepath.Join(top, "secret")}
	low := filepath.Join(top, "in", "low")
	proctest.Must(t, errors.Join(os.MkdirAll(a.layer, 0o755), os.MkdirAll(filepath.Join(low, "etc"), 0o755),
		os.MkdirAll(filepath.Join(top, "outside"), 0o755), os.WriteFile(a.secret, []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(low, "etc/passwd"), []byte("low"), 0o644), os.Symlink(filepath.Join(top, "outside"), filepath.Join(low, "out")),
		os.Symlink("../../outside", filepath.Join(low, "up")), os.Symlink(a.secret, filepath.Join(low, "key"))))
	a.below = []string{low}
	return a
}

// picture is all that is around the layer, with times: what is written and taken back shows too.
func (a *around) picture(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	proctest.Must(t, filepath.WalkDir(a.top, func(path string, _ os.DirEntry, err error) error {
		if path == a.layer {
			return filepath.SkipDir
		}
		info, lerr := os.Lstat(path)
		if err = errors.Join(err, lerr); err == nil {
			fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
		return err
	}))
	return b.String()
}

func descriptors(t testing.TB) int {
	t.Helper()
	return len(proctest.Value(os.ReadDir("/proc/self/fd"))(t))
}

func TestAHostileLayerIsRefusedOrHarmless(t *testing.T) {
	const harmless = ""
	deep := strings.Repeat("d/", maxDepth+1)
	var loop []tar.Header
	for i := range 42 {
		loop = append(loop, link(fmt.Sprint("l", i), fmt.Sprint("l", i+1)))
	}
	var ways []tar.Header
	for i := range 10 {
		ways = append(ways, file(fmt.Sprint(i, "/", strings.Repeat("d/", 600), "f"), ""))
	}
	forged := tar.Header{Typeflag: tar.TypeChar, Name: "etc/passwd"}
	huge := tar.Header{Typeflag: tar.TypeReg, Name: "far", Mode: 0o644, ModTime: time.Unix(1<<40, 0), Format: tar.FormatGNU}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string // of the error
	}{
		"a name that leads up":                       {[]tar.Header{file("../x", "")}, "leads up"},
		"one that comes back":                        {[]tar.Header{file("a/../../layer/x", "")}, "leads up"},
		"a whiteout of what is above":                {[]tar.Header{file("a/.wh...", "")}, `removes ".."`},
		"a whiteout of the directory":                {[]tar.Header{file(".wh..", "")}, `removes "."`},
		"a whiteout of nothing":                      {[]tar.Header{file(".wh.", "")}, `removes ""`},
		"a whiteout with a way up":                   {[]tar.Header{file("../.wh.low", "")}, "leads up"},
		"a long name":                                {[]tar.Header{file(strings.Repeat("n", 256), "")}, "255 are possible"},
		"a long path":                                {[]tar.Header{file(strings.Repeat("nnn/", 1100)+"x", "")}, "4095 are possible"},
		"a deep path":                                {[]tar.Header{dir(deep)}, "deeper than"},
		"an absolute name":                           {[]tar.Header{file("/etc/passwd", "mine")}, harmless},
		"a write through a link":                     {[]tar.Header{link("l", "/etc"), file("l/passwd", "mine")}, harmless},
		"a write through a link up":                  {[]tar.Header{link("l", "../../.."), file("l/secret", "mine")}, harmless},
		"a write over a link":                        {[]tar.Header{link("l", "/secret"), file("l", "mine")}, harmless},
		"a write through a link below":               {[]tar.Header{file("out/x", "mine"), file("up/y", "mine"), file("key", "mine")}, harmless},
		"a directory over a link below":              {[]tar.Header{dir("out"), file("out/x", "mine"), dir("key")}, harmless},
		"a whiteout behind a link below":             {[]tar.Header{file("out/.wh.x", ""), file("up/.wh..wh..opq", "")}, harmless},
		"links that lead to each other":              {append(loop, link("l42", "l0"), file("l0/x", "")), "more than 40 links"},
		"a hard link to a file of the machine":       {[]tar.Header{hard("h", "/etc/shadow")}, "is not there"},
		"a hard link upwards":                        {[]tar.Header{hard("h", "../../secret")}, "leads up"},
		"a hard link through a link":                 {[]tar.Header{link("l", ".."), hard("h", "l/secret")}, "is not there"},
		"a hard link through a link below":           {[]tar.Header{hard("h", "up/x")}, "is not there"},
		"a hard link to a link that leads out":       {[]tar.Header{hard("h", "key"), file("h", "mine")}, harmless},
		"a hard link to itself":                      {[]tar.Header{file("h", ""), hard("h", "h")}, "to itself"},
		"a hard link to what comes":                  {[]tar.Header{hard("h", "later"), file("later", "")}, "is not there"},
		"a hard link to a directory":                 {[]tar.Header{hard("h", "etc")}, "is a directory"},
		"a hard link to the root":                    {[]tar.Header{hard("h", "/")}, "to the root"},
		"a hard link to what it takes the place of":  {[]tar.Header{file("d/f", "x"), hard("d", "d/f")}, "what is in it"},
		"a hard link to a whiteout":                  {[]tar.Header{file(".wh.w", ""), hard("h", ".wh.w")}, "is not there"},
		"a link in the place of the root":            {[]tar.Header{link("./", "/etc")}, "the root is a directory"},
		"a file in the place of the root":            {[]tar.Header{file(".", "")}, "the root is a directory"},
		"a file in a file":                           {[]tar.Header{file("f", ""), file("f/g", "")}, "no directory"},
		"a directory that becomes a link meanwhile":  {[]tar.Header{dir("d"), file("d/a", ""), link("d", "/../../outside"), file("d/b", "mine")}, harmless},
		"a link that becomes a directory meanwhile":  {[]tar.Header{link("d", "etc"), file("d/a", ""), dir("d"), file("d/b", "mine")}, harmless},
		"a forged whiteout":                          {[]tar.Header{forged}, harmless},
		"a device of the machine's disk":             {[]tar.Header{{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}}, harmless},
		"a link to nothing":                          {[]tar.Header{{Typeflag: tar.TypeSymlink, Name: "l"}}, "a link to"},
		"a time in the far future":                   {[]tar.Header{huge}, harmless},
		"a file of a petabyte":                       {[]tar.Header{{Typeflag: tar.TypeReg, Name: "f", Size: 1 << 50, Format: tar.FormatGNU}}, "than there is room for: 1048576"},
		"marks below a mark":                         {[]tar.Header{file(".wh.etc/x", "mine"), file(".wh..wh.plnk/../x", "")}, "leads up"},
		"a mark that is a directory with files":      {[]tar.Header{dir("etc/.wh..wh..opq"), file("etc/.wh..wh..opq/x", "mine")}, harmless},
		"the same mark a thousand times":             {repeat(file("etc/.wh.passwd", ""), 1000), harmless},
		"more files than may be":                     {repeat(file("f", ""), 5001), "more than 5000 entries"},
		"directories that no entry describes":        {ways, "more than 5000 entries"},
		"a directory and a file by turns for a time": {repeat2(file("t", "x"), dir("t"), 1000), harmless},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAround(t)
			before, fds := a.picture(t), descriptors(t)
			b := part(t, c.entries)
			_, err := Layer(t.Context(), bytes.NewReader(b), a.layer, Options{Below: a.below, Entries: 5000, Bytes: 1 << 20})
			if c.want == harmless && err != nil || c.want != harmless && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v; want %q", err, c.want)
			}
			if now := a.picture(t); now != before {
				t.Errorf("around the layer:\n%s\nwas\n%s", now, before)
			}
			if n := descriptors(t); n != fds {
				t.Errorf("%d descriptors are open; there were %d", n, fds)
			}
			proctest.Must(t, filepath.WalkDir(a.layer, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.Type()&(os.ModeDevice|os.ModeNamedPipe) != 0 && c.want == harmless && !strings.Contains(name, "mark") {
					t.Errorf("%s is a %s", path, d.Type())
				}
				return err
			}))
		})
	}
}

// What is remembered of paths is bounded in bytes: each part of a path of 4,000 bytes is one
// that is remembered.
func TestLongPathsTakeLittleMemory(t *testing.T) {
	a := newAround(t)
	tree := proctest.Value(openTree(a.layer, a.below))(t)
	defer tree.close()
	for i := range 200 {
		proctest.Value(tree.walk(fmt.Sprintf("%d%s", i, strings.Repeat("/abcdefg", 450))))(t)
		n := 0
		for at, real := range tree.walked {
			n += len(at) + len(real)
		}
		for at := range tree.visited {
			n += len(at)
		}
		if n > maxMemo+3<<20 {
			t.Fatalf("after %d paths %d bytes are remembered", i+1, n)
		}
	}
	for i := range 3000 {
		proctest.Value(tree.stack(fmt.Sprintf("%d%s", i, strings.Repeat("/abcdefg", 450))))(t)
	}
	n := 0
	for at, s := range tree.stacks {
		n += len(at) + 8*len(s)
	}
	if n > maxMemo {
		t.Errorf("%d bytes of stacks are remembered", n)
	}
}

func TestALayerEndsBeforeTheDiskIsFull(t *testing.T) {
	room := int64(1 << 40)
	b := archive(t, file("a", strings.Repeat("x", leastRoom)), file("b", strings.Repeat("x", leastRoom)))
	got, err := Layer(t.Context(), bytes.NewReader(b), newAround(t).layer, Options{Room: func() int64 {
		room /= 1 << 10
		return room
	}})
	if !errors.Is(err, ErrLimit) || got.Bytes != leastRoom {
		t.Errorf("%d bytes, %v", got.Bytes, err)
	}
}

func repeat(h tar.Header, n int) (all []tar.Header) {
	for range n {
		all = append(all, h)
	}
	return all
}

func repeat2(a, b tar.Header, n int) (all []tar.Header) {
	for range n {
		all = append(all, a, b)
	}
	return all
}

// part is the archive of entries of which the content may be missing.
func part(t testing.TB, entries []tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, h := range entries {
		if int64(len(h.Uname)) == h.Size {
			b.Write(bytes.TrimRight(archive(t, h), "\x00"))
			b.Write(make([]byte, (512-b.Len()%512)%512))
			continue
		}
		proctest.Must(t, tar.NewWriter(&b).WriteHeader(&h))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

func TestADamagedLayerIsAnErrorWithItsPlace(t *testing.T) {
	whole := archive(t, file("a", strings.Repeat("x", 5000)), file("b", "y"))
	for _, n := range []int{1, 511, 513, 3000, len(whole) / 2} {
		_, err := Layer(t.Context(), bytes.NewReader(whole[:n]), newAround(t).layer, Options{})
		if err == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	bad := bytes.Clone(whole)
	bad[100] ^= 1
	if _, err := Layer(t.Context(), bytes.NewReader(bad), newAround(t).layer, Options{}); !errors.Is(err, tar.ErrHeader) {
		t.Errorf("a damaged header: %v", err)
	}
	_, err := Layer(t.Context(), bytes.NewReader(archive(t, file("ok", ""), file("../x", ""))), newAround(t).layer, Options{})
	if e, ok := errors.AsType[*EntryError](err); !ok || e.Entry != "../x" || !errors.Is(err, ErrBad) {
		t.Errorf("%v", err)
	}
}

func TestUnpackingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		w.Write(archive(t, file("a", "x"))[:1024])
		cancel()
		w.Write(archive(t, file("b", "x")))
	}()
	if _, err := Layer(ctx, r, newAround(t).layer, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.Close()
}

// FuzzLayer: whatever a layer is, nothing around it changes.
func FuzzLayer(f *testing.F) {
	f.Add(archive(f, file("a", "1"), dir("d"), link("l", "/etc"), file("l/x", "2"), hard("h", "a")))
	f.Add(archive(f, gone("etc/passwd"), shut("etc"), file("out/x", "1"), hard("h", "etc/passwd")))
	f.Add(archive(f, link("a", ".."), link("b", "a/a"), file("b/outside/x", "1"), shut("")))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newAround(t)
		before := a.picture(t)
		_, _ = Layer(t.Context(), bytes.NewReader(b), a.layer, Options{Below: a.below, Entries: 1000, Bytes: 1 << 20})
		if now := a.picture(t); now != before {
			t.Errorf("around the layer:\n%s\nwas\n%s", now, before)
		}
	})
}
