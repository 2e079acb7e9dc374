package oci_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/archive"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
	"github.com/tend-run/tend/internal/support/proctest"
)

type place struct {
	*oci.Store
	layers *layer.Store
	dir    string
}

func open(t testing.TB, dir string) *place {
	t.Helper()
	l := proctest.Value(layer.Open(filepath.Join(dir, "layers")))(t)
	s := proctest.Value(oci.Open(oci.Config{Dir: filepath.Join(dir, "images"), Layers: l}))(t)
	return &place{s, l, dir}
}

// add has the store have the images of an archive.
func (p *place) add(t testing.TB, tar []byte) ([]driver.Image, error) {
	t.Helper()
	f := proctest.Value(p.SpoolFile())(t)
	defer func() { proctest.Must(t, errors.Join(f.Close(), os.Remove(f.Name()))) }()
	a, err := archive.Spool(t.Context(), bytes.NewReader(tar), f, 0)
	if err != nil {
		return nil, err
	}
	all, err := a.Images()
	if err != nil {
		return nil, err
	}
	var out []driver.Image
	for _, b := range all {
		m, err := p.Add(t.Context(), b, nil)
		if err != nil {
			return out, err
		}
		out = append(out, m)
	}
	return out, nil
}

// read is a file as a sandbox of an image sees it.
func (p *place) read(t testing.TB, key, name string) string {
	t.Helper()
	top, _, err := p.Use(key, "test")
	proctest.Must(t, err)
	defer p.layers.Release(top, "test")
	v := proctest.Value(unpack.OpenView(proctest.Value(p.layers.Chain(top))(t).Dirs))(t)
	defer v.Close()
	return string(proctest.Value(v.ReadFile(name, 1<<20))(t))
}

func (p *place) count(t testing.TB) int {
	t.Helper()
	all := proctest.Value(os.ReadDir(filepath.Join(p.dir, "layers")))(t)
	return len(slices.DeleteFunc(all, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }))
}

func two(t testing.TB, second string) *ocitest.Image {
	return &ocitest.Image{
		Layers: [][]byte{
			ocitest.Layer(t, ocitest.File{Name: "etc/"}, ocitest.File{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n"},
				ocitest.File{Name: "etc/group", Text: "web:x:44:\nstaff:x:50:web\n"}, ocitest.File{Name: "a", Text: "1"}),
			ocitest.Layer(t, ocitest.File{Name: "b", Text: second}),
		},
		Config: v1.Config{Env: []string{"A=1", "B=2=3", "bad"}, User: "web", WorkingDir: "/etc", Entrypoint: []string{"/bin/e"}, Cmd: []string{"c"}},
	}
}

func TestEachFormOfAnArchiveIsTheSameImage(t *testing.T) {
	img := two(t, "2")
	for name, tar := range map[string][]byte{
		"docker save":              img.Saved(t, "python:3"),
		"an OCI layout":            img.Layout(t, "docker.io/library/python:3"),
		"docker save in gzip":      ocitest.Gzip(t, img.Saved(t, "python:3")),
		"a layout in zstd":         ocitest.Zstd(t, img.Layout(t, "python:3")),
		"layers in gzip":           (&ocitest.Image{Layers: img.Layers, Config: img.Config, Pack: ocitest.Gzip}).Layout(t, "python:3"),
		"layers in zstd":           (&ocitest.Image{Layers: img.Layers, Config: img.Config, Pack: ocitest.Zstd}).Layout(t, "python:3"),
		"docker save of gzip":      (&ocitest.Image{Layers: img.Layers, Config: img.Config, Pack: ocitest.Gzip}).Saved(t, "python:3"),
		"docker save with a digit": img.Saved(t, "docker.io/python:3"),
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, t.TempDir())
			all, err := p.add(t, tar)
			proctest.Must(t, err)
			m := all[0]
			want := driver.RunConfig{User: "web", Dir: "/etc", Env: map[string]string{"A": "1", "B": "2=3"}}
			if diff := cmp.Diff(want, m.Run); diff != "" || m.ID != img.ID(t) || !slices.Equal(m.Names, []string{"python:3"}) {
				t.Errorf("%+v\n%s", m, diff)
			}
			for _, key := range []string{"python:3", "library/python:3", "docker.io/library/python:3", m.ID, m.ID[7:], m.ID[7:15]} {
				if got := p.read(t, key, "b"); got != "2" {
					t.Errorf("%s: %q", key, got)
				}
			}
			if left := proctest.Value(os.ReadDir(p.Spool()))(t); len(left) != 0 {
				t.Errorf("left in the spool: %v", left)
			}
		})
	}
}

func TestAWholeRootIsAnImage(t *testing.T) {
	p := open(t, t.TempDir())
	tar := ocitest.Layer(t, ocitest.File{Name: "./"}, ocitest.File{Name: "./etc/"}, ocitest.File{Name: "./etc/hostname", Text: "x"})
	one := proctest.Value(p.add(t, tar))(t)[0]
	two := proctest.Value(p.add(t, ocitest.Gzip(t, tar)))(t)[0]
	if one.ID != two.ID || p.read(t, one.ID, "etc/hostname") != "x" || p.count(t) != 1 || one.Run.Env["PATH"] == "" {
		t.Errorf("%+v\n%+v", one, two)
	}
}

func TestLayersAreSharedAndGoWithTheLastImage(t *testing.T) {
	p := open(t, t.TempDir())
	a := proctest.Value(p.add(t, two(t, "2").Saved(t, "a:1")))(t)[0]
	proctest.Value(p.add(t, two(t, "3").Saved(t, "b:1", "b:2")))(t)
	if n := p.count(t); n != 3 {
		t.Errorf("%d layers of two images that begin alike; want 3", n)
	}
	sweep := func(want int) {
		t.Helper()
		proctest.Must(t, p.layers.Sweep(t.Context(), time.Hour))
		if n := p.count(t); n != want {
			t.Errorf("%d layers are left; want %d", n, want)
		}
	}
	top, _, err := p.Use("a:1", "a sandbox")
	proctest.Must(t, err)
	proctest.Value(p.Remove("a:1"))(t)
	sweep(3)
	p.layers.Release(top, "a sandbox")
	p.layers.Expire(top)
	sweep(2)
	if m := proctest.Value(p.Remove("b:1"))(t); !slices.Equal(m.Names, []string{"b:2"}) {
		t.Errorf("names: %v", m.Names)
	}
	sweep(2)
	if _, err := p.Get(a.ID); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if m := proctest.Value(p.Remove("b:2"))(t); len(m.Names) != 0 {
		t.Errorf("names: %v", m.Names)
	}
	sweep(0)
}

func TestANameIsTheLastImagesOne(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	first := proctest.Value(p.add(t, two(t, "2").Saved(t, "a:1", "a:2")))(t)[0]
	second := proctest.Value(p.add(t, two(t, "3").Saved(t, "a:1")))(t)[0]
	for range 2 {
		if p.read(t, "a:1", "b") != "3" || p.read(t, "a:2", "b") != "2" {
			t.Error("a name leads to the other image")
		}
		p = open(t, dir)
	}
	proctest.Value(p.add(t, two(t, "3").Saved(t, "a:2")))(t)
	gone := proctest.Value(p.Prune(false))(t)
	if len(gone) != 1 || gone[0].ID != first.ID {
		t.Errorf("pruned: %+v", gone)
	}
	top, _, err := p.Use("a:2", "a sandbox")
	proctest.Must(t, err)
	if gone := proctest.Value(p.Prune(true))(t); len(gone) != 0 {
		t.Errorf("pruned although it is used: %+v", gone)
	}
	p.layers.Release(top, "a sandbox")
	proctest.Value(p.add(t, (&ocitest.Image{Layers: two(t, "3").Layers[:1]}).Saved(t, "localhost/below:1")))(t)
	if p.read(t, "below:1", "a") != "1" {
		t.Error("a name of this host is not found without it")
	}
	if gone := proctest.Value(p.Prune(true))(t); len(gone) != 2 || len(p.List()) != 0 {
		t.Errorf("pruned: %+v; want %s and one that is below it", gone, second.ID)
	}
}

func TestWhatIsAskedForByManyIsUnpackedOnce(t *testing.T) {
	p := open(t, t.TempDir())
	layer := ocitest.Layer(t, ocitest.File{Name: "a", Text: strings.Repeat("x", 1<<20)})
	var opened atomic.Int32
	img := &ocitest.Image{Layers: [][]byte{layer}}
	b := oci.Bundle{Config: img.JSON(t), Layers: []oci.Blob{{Size: -1, Open: func(context.Context) (io.ReadCloser, error) {
		if opened.Add(1) == 1 {
			return nil, errors.New("the first fails")
		}
		time.Sleep(20 * time.Millisecond)
		return io.NopCloser(bytes.NewReader(layer)), nil
	}}}}
	var wg sync.WaitGroup
	var failed atomic.Int32
	for range 10 {
		wg.Go(func() {
			if _, err := p.Add(t.Context(), b, nil); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if opened.Load() != 2 || failed.Load() != 1 || p.count(t) != 1 {
		t.Errorf("opened %d times, %d failed, %d layers", opened.Load(), failed.Load(), p.count(t))
	}
}

func TestAnImageThatLiesIsRefusedAndLeavesNothing(t *testing.T) {
	good := two(t, "2")
	other := ocitest.Layer(t, ocitest.File{Name: "c", Text: "evil"})
	bundle := func(img *ocitest.Image) oci.Bundle {
		b := oci.Bundle{Config: img.JSON(t)}
		for _, l := range img.Packed(t) {
			b.Layers = append(b.Layers, oci.Blob{Digest: ocitest.Hash(l), Size: int64(len(l)), Open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(l)), nil
			}})
		}
		return b
	}
	with := func(change func(b *oci.Bundle)) oci.Bundle {
		b := bundle(&ocitest.Image{Layers: good.Layers, Config: good.Config, Pack: ocitest.Gzip})
		change(&b)
		return b
	}
	content := func(b []byte) func(context.Context) (io.ReadCloser, error) {
		return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	packed := ocitest.Gzip(t, good.Layers[1])
	bomb := append(ocitest.Layer(t, ocitest.File{Name: "z", Text: strings.Repeat("\x00", 1<<20)}), make([]byte, 64<<20)...)
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0} // a frame of zstd that wants 2^31 bytes, and an empty block
	changed := func(f func(*v1.ConfigFile)) oci.Bundle {
		return bundle(&ocitest.Image{Layers: good.Layers, Change: f})
	}
	for name, c := range map[string]struct {
		b    oci.Bundle
		want string
	}{
		"another layer":             {with(func(b *oci.Bundle) { b.Layers[1].Open = content(other) }), "promised"},
		"the same packed otherwise": {with(func(b *oci.Bundle) { b.Layers[1].Open = content(good.Layers[1]); b.Layers[1].Size = -1 }), "promised"},
		"layers that are swapped":   {with(func(b *oci.Bundle) { b.Layers[0], b.Layers[1] = b.Layers[1], b.Layers[0] }), "its configuration says"},
		"a layer that is cut off":   {with(func(b *oci.Bundle) { b.Layers[1].Open = content(packed[:len(packed)-9]) }), "EOF"},
		"one that goes on":          {with(func(b *oci.Bundle) { b.Layers[1].Open = content(append(slices.Clone(packed), 0)) }), ""},
		"one longer than promised":  {with(func(b *oci.Bundle) { b.Layers[1].Size-- }), "promised"},
		"one that is a bomb": {with(func(b *oci.Bundle) {
			b.Layers[1] = oci.Blob{Size: -1, Open: content(ocitest.Gzip(t,
				bomb))}
		}), "behind the end"},
		"a bomb that is promised": {bundle(&ocitest.Image{Layers: [][]byte{bomb}, Pack: ocitest.Zstd}), "behind the end"},
		"a window of 2 GiB":       {with(func(b *oci.Bundle) { b.Layers[1] = oci.Blob{Size: -1, Open: content(window)} }), "window size exceeded"},
		"garbage":                 {with(func(b *oci.Bundle) { b.Layers[1] = oci.Blob{Size: -1, Open: content([]byte("garbage"))} }), "EOF"},
		"fewer layers":            {with(func(b *oci.Bundle) { b.Layers = b.Layers[:1] }), "has 1 layers, and a configuration of 2"},
		"another machine":         {changed(func(c *v1.ConfigFile) { c.Architecture = "s390x" }), "binfmt"},
		"another system":          {changed(func(c *v1.ConfigFile) { c.OS = "windows" }), `"windows"`},
		"a NUL byte":              {changed(func(c *v1.ConfigFile) { c.Config.User = "a\x00" }), "NUL"},
		"too many variables": {changed(func(c *v1.ConfigFile) {
			for i := range driver.MaxEnv + 1 {
				c.Config.Env = append(c.Config.Env, fmt.Sprint("V", i, "=1"))
			}
		}), "variables; the limit is"},
		"no JSON":        {oci.Bundle{Config: []byte("{")}, "cannot be read"},
		"a huge one":     {oci.Bundle{Config: make([]byte, oci.MaxJSON+1)}, "more than"},
		"an odd digest":  {oci.Bundle{Config: []byte(`{"rootfs":{"diff_ids":["sha256:../../x"]}}`)}, "cannot be read"},
		"a text as list": {oci.Bundle{Config: []byte(`{"config":{"Entrypoint":"/bin/sh"}}`)}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, t.TempDir())
			_, err := p.Add(t.Context(), c.b, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v; want %q", err, c.want)
			}
			if len(p.List()) != 0 {
				t.Errorf("there is an image: %+v", p.List())
			}
			if left := proctest.Value(os.ReadDir(filepath.Join(p.dir, "layers", ".new")))(t); len(left) != 0 {
				t.Errorf("half a layer is left: %v", left)
			}
			// The right one is not in the way of it.
			if _, err := p.Add(t.Context(), bundle(good), nil); err != nil || p.read(t, good.ID(t), "b") != "2" {
				t.Errorf("then the right one: %v", err)
			}
		})
	}
}

// Builders that compress in parallel write many members or frames, and some leave a table behind them.
func TestALayerMayBePackedInPieces(t *testing.T) {
	good := two(t, "2")
	half := func(pack func(testing.TB, []byte) []byte, behind string) func(testing.TB, []byte) []byte {
		return func(t testing.TB, b []byte) []byte {
			return append(append(pack(t, b[:len(b)/2]), pack(t, b[len(b)/2:])...), behind...)
		}
	}
	for name, pack := range map[string]func(testing.TB, []byte) []byte{"members of gzip": half(ocitest.Gzip, ""),
		"frames of zstd":  half(ocitest.Zstd, ""),
		"and one to skip": half(ocitest.Zstd, "\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"), "a block of the writer": func(t testing.TB,
			b []byte) []byte {
			return b
		}} {
		t.Run(name, func(t *testing.T) {
			img := &ocitest.Image{Layers: slices.Clone(good.Layers), Pack: pack}
			if strings.Contains(name, "block") {
				img.Layers[1] = append(slices.Clone(img.Layers[1]), make([]byte, 1<<20)...)
			}
			p := open(t, t.TempDir())
			proctest.Value(p.add(t, img.Saved(t, "x:1")))(t)
			if got := p.read(t, "x:1", "b"); got != "2" {
				t.Errorf("it has %q", got)
			}
		})
	}
}

func TestArchivesWithMistakes(t *testing.T) {
	img := two(t, "2")
	layout := img.Layout(t, "")
	for name, c := range map[string]struct {
		tar  []byte
		want string
	}{
		"nothing":               {nil, "is empty"},
		"no tar":                {[]byte(strings.Repeat("no tar", 1000)), "is no tar"},
		"a tar that is cut off": {layout[:len(layout)/2], "archive"},
		"a gzip of garbage":     {append([]byte{0x1f, 0x8b}, "garbage"...), "decompress"},
		"a layer that is not there": {ocitest.Tar(t, ocitest.File{Name: "c.json", Text: string(img.JSON(t))},
			ocitest.File{Name: "manifest.json", Text: `[{"Config":"c.json","Layers":["x/layer.tar"]}]`}), `has no layer "x/layer.tar"`},
		"a layer above": {ocitest.Tar(t, ocitest.File{Name: "c.json", Text: string(img.JSON(t))}, ocitest.File{Name: "l", To: "../../../etc/passwd"},
			ocitest.File{Name: "manifest.json", Text: `[{"Config":"c.json","Layers":["../../etc/passwd","l"]}]`}), `has no layer "../../etc/passwd"`},
		"links in a ring": {ocitest.Tar(t, ocitest.File{Name: "a", To: "b"}, ocitest.File{Name: "b", To: "a"},
			ocitest.File{Name: "manifest.json", Text: `[{"Config":"a","Layers":[]}]`}), `has no "a"`},
		"a wrong name": {img.Saved(t, "UPPER CASE"), "UPPER CASE"},
		"a chart": {ocitest.Tar(t, ocitest.File{Name: "oci-layout", Text: "{}"}, ocitest.File{Name: "index.json", Text: chart(t, false)},
			ocitest.File{Name: "blobs/sha256/" + ocitest.Hash([]byte(helm)).Hex, Text: helm}), "application/vnd.cncf.helm.config"},
		"a manifest of another digest": {ocitest.Tar(t, ocitest.File{Name: "oci-layout", Text: "{}"}, ocitest.File{Name: "index.json", Text: chart(t, true)},
			ocitest.File{Name: "blobs/sha256/" + strings.Repeat("0", 64), Text: helm}), "was promised"},
		"an empty layout": {ocitest.Tar(t, ocitest.File{Name: "oci-layout", Text: "{}"}, ocitest.File{Name: "index.json", Text: "{}"}), "without an image"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, t.TempDir())
			if _, err := p.add(t, c.tar); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want %q", err, c.want)
			}
		})
	}
}

const helm = `{"schemaVersion":2,"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json","digest":"sha256:` +
	`0000000000000000000000000000000000000000000000000000000000000000","size":2},"layers":[]}`

func chart(_ testing.TB, wrong bool) string {
	d := ocitest.Hash([]byte(helm)).Hex
	if wrong {
		d = strings.Repeat("0", 64)
	}
	return `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":"sha256:` + d + `"}]}`
}

func TestTheUserOfAnImageIsAsInAContainer(t *testing.T) {
	for user, want := range map[string]string{
		"": "root", "web": "web", "33": "33", "1000": "1000:0", "web:staff": "33:50", "33:staff": "33:50", "1000:staff": "1000:50",
		"web:7": "33:7", "1000:7": "1000:7", "nobody": "nobody", "web:none": "web:none", "root:staff": "0:50", "web:": "33:44",
	} {
		p := open(t, t.TempDir())
		img := two(t, "2")
		img.Config.User = user
		if m := proctest.Value(p.add(t, img.Saved(t)))(t)[0]; m.Run.User != want {
			t.Errorf("%q: %q; want %q", user, m.Run.User, want)
		}
	}
}

func TestAWorkingDirectoryThatIsMissingIsMade(t *testing.T) {
	for dir, want := range map[string]string{"": "/", "srv/app": "/srv/app", "/l/x": "/l/x", "/../x": "/x"} {
		p := open(t, t.TempDir())
		img := two(t, "2")
		img.Layers = append(img.Layers, ocitest.Layer(t, ocitest.File{Name: "l", To: "etc"}))
		img.Config.WorkingDir = dir
		m := proctest.Value(p.add(t, img.Saved(t)))(t)[0]
		top, _, err := p.Use(m.ID, "test")
		proctest.Must(t, err)
		v := proctest.Value(unpack.OpenView(proctest.Value(p.layers.Chain(top))(t).Dirs))(t)
		if m.Run.Dir != want || !v.IsDir(want) || dir == "/l/x" && !v.IsDir("/etc/x") {
			t.Errorf("%q: %q", dir, m.Run.Dir)
		}
		v.Close()
	}
}

func TestReferences(t *testing.T) {
	d := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string][2]string{
		"python":                     {"docker.io/library/python:latest", "python:latest"},
		"python:3":                   {"docker.io/library/python:3", "python:3"},
		"me/x":                       {"docker.io/me/x:latest", "me/x:latest"},
		"ghcr.io/me/x:1":             {"ghcr.io/me/x:1", "ghcr.io/me/x:1"},
		"localhost/x":                {"localhost/x:latest", "localhost/x:latest"},
		"127.0.0.1:5000/x@" + d:      {"127.0.0.1:5000/x@" + d, "127.0.0.1:5000/x@" + d},
		"python:3@" + d:              {"docker.io/library/python@" + d, "python@" + d},
		"index.docker.io/library/go": {"docker.io/library/go:latest", "go:latest"},
	} {
		r, err := oci.ParseReference(text)
		if err != nil || r.String() != want[0] || r.Short() != want[1] {
			t.Errorf("%s: %s, %s, %v", text, r, r.Short(), err)
		}
	}
	for _, text := range []string{"", "-x", "A", "a b", "a:", "http://x/y", "a@sha256:1", "../x", "a/../b", "x:" + strings.Repeat("t", 200), strings.Repeat("a", 600), "a\x00"} {
		if r, err := oci.ParseReference(text); err == nil {
			t.Errorf("%q: %+v", text, r)
		} else if _, ok := errors.AsType[*driver.InvalidError](err); !ok {
			t.Errorf("%q: %T", text, err)
		}
	}
}
