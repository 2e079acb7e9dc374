package oci_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
