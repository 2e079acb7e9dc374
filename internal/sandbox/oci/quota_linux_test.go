package oci_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Images keep to their limit: what was fetched and used longest ago goes for another one, also when
// the server has begun anew, and never what was imported or is used.
func TestImagesKeepToTheirLimit(t *testing.T) {
	const most = 10 << 20
	dir := t.TempDir()
	again := func() *place {
		l := proctest.Value(layer.Open(filepath.Join(dir, "layers")))(t)
		return &place{proctest.Value(oci.Open(oci.Config{Dir: filepath.Join(dir, "images"), Layers: l, Most: most}))(t), l, dir}
	}
	p := again()
	add := func(name string, size int, fetched bool) error {
		// It compresses so well that nobody sees before how much it is.
		raw := ocitest.Layer(t, ocitest.File{Name: name, Text: strings.Repeat(name, size)})
		img := &ocitest.Image{Layers: [][]byte{raw}}
		packed := ocitest.Gzip(t, raw)
		_, err := p.Add(t.Context(), oci.Bundle{Names: []string{"docker.io/library/" + name + ":latest"}, Config: img.JSON(t), Fetched: fetched,
			Layers: []oci.Blob{{Digest: ocitest.Hash(packed), Size: int64(len(packed)), Open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(packed)), nil
			}}}}, nil)
		if used := p.Taken(); used.Bytes > most || used.Most != most {
			t.Errorf("after %s: %+v", name, used)
		}
		return err
	}
	want := func(names ...string) {
		t.Helper()
		var got []string
		for _, m := range p.List() {
			got = append(got, strings.TrimSuffix(m.Names[0], ":latest"))
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			t.Errorf("there are %q; want %q", got, names)
		}
	}
	proctest.Must(t, errors.Join(add("a", 3<<20, true), add("b", 3<<20, true), add("c", 3<<20, false)))
	use := func(name string) layer.ID {
		top, _, err := p.Use(name, "a sandbox")
		proctest.Must(t, err)
		return top
	}
	p.layers.Release(use("a"), "a sandbox")
	p = again()
	proctest.Must(t, add("d", 3<<20, true))
	want("a", "c", "d")
	top := use("a")
	if err := add("e", 5<<20, true); !errors.Is(err, unpack.ErrLimit) || !strings.Contains(err.Error(), "--images-max") {
		t.Errorf("more than can go: %v", err)
	}
	want("a", "c")
	p.layers.Release(top, "a sandbox")
	proctest.Must(t, add("e", 5<<20, true))
	want("c", "e")
	if err := add("f", 11<<20, true); !errors.Is(err, unpack.ErrLimit) {
		t.Errorf("more than all: %v", err)
	}
}

// A disk that is full in the middle of a layer, although nobody has said so before: nothing half is
// left, and when there is room the same image comes whole.
func TestADiskThatIsFullLeavesTheStoreWhole(t *testing.T) {
	proctest.Root(t)
	dir := t.TempDir()
	proctest.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { proctest.Must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	p := open(t, dir)
	img := &ocitest.Image{Layers: [][]byte{ocitest.Layer(t, ocitest.File{Name: "a", Text: "1"}),
		ocitest.Layer(t, ocitest.File{Name: "b", Text: "2"}, ocitest.File{Name: "c", Text: strings.Repeat("c", 5<<20)})}}
	b := oci.Bundle{Config: img.JSON(t)}
	for _, l := range img.Layers {
		b.Layers = append(b.Layers, oci.Blob{Size: -1, Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l)), nil }})
	}
	other := filepath.Join(dir, "other")
	proctest.Must(t, os.WriteFile(other, make([]byte, 4<<20), 0o600))
	if _, err := p.Add(t.Context(), b, nil); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), `layer 2 of 2: entry "c"`) {
		t.Errorf("a full disk: %v", err)
	}
	if left := proctest.Value(os.ReadDir(filepath.Join(dir, "layers", ".new")))(t); len(left) != 0 || len(p.List()) != 0 || p.count(t) != 1 {
		t.Errorf("%v is left, with %d images and %d layers", left, len(p.List()), p.count(t))
	}
	proctest.Must(t, errors.Join(p.layers.Sweep(t.Context(), time.Hour), os.Remove(other)))
	if _, err := p.Add(t.Context(), b, nil); err != nil || p.read(t, img.ID(t), "b") != "2" {
		t.Errorf("with room: %v", err)
	}
}
