package oci_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

// childDir has the test binary add and remove images there until it is killed.
const childDir = "TEND_TEST_IMAGES"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		addForever(dir)
	}
	os.Exit(m.Run())
}

func crashed(t testing.TB) *ocitest.Image {
	var img ocitest.Image
	for l := range 3 {
		var files []ocitest.File
		for n := range 300 {
			files = append(files, ocitest.File{Name: fmt.Sprintf("d%d/f%d", l, n), Text: strings.Repeat(fmt.Sprint(n), 50)})
		}
		img.Layers = append(img.Layers, ocitest.Layer(t, files...))
	}
	return &img
}

// child is what stands for a test in a process that is none.
type child struct{ testing.TB }

func (child) Context() context.Context { return context.Background() }
func (child) Helper()                  {}

func addForever(dir string) {
	t := child{}
	p, tar := open(t, dir), crashed(t).Saved(t, "x:1")
	for {
		for _, err := range []error{second(p.add(t, tar)), second(p.Remove("x:1")), p.layers.Sweep(t.Context(), time.Hour)} {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestAKillLeavesTheStoreWhole: at whatever moment, what there is is whole, nothing half is
// left, and the next Add comes to its end.
func TestAKillLeavesTheStoreWhole(t *testing.T) {
	dir, img := t.TempDir(), crashed(t)
	open(t, dir)
	for round := range 25 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		var out bytes.Buffer
		child.Stderr = &out
		proctest.Must(t, child.Start())
		time.Sleep(time.Duration(10+rand.IntN(150)) * time.Millisecond)
		proctest.Must(t, child.Process.Kill())
		if err := child.Wait(); err == nil || child.ProcessState.Exited() {
			t.Fatalf("it ended by itself: %v, %s", err, out.String())
		}
		p := open(t, dir)
		for _, left := range []string{filepath.Join(dir, "layers", ".new"), p.Spool()} {
			if names := proctest.Value(os.ReadDir(left))(t); len(names) != 0 {
				t.Errorf("round %d: %s has %v", round, left, names)
			}
		}
		check := func() {
			t.Helper()
			for l := range 3 {
				for _, n := range []int{0, 150, 299} {
					if got := p.read(t, "x:1", fmt.Sprintf("d%d/f%d", l, n)); got != strings.Repeat(fmt.Sprint(n), 50) {
						t.Fatalf("round %d: d%d/f%d is %q", round, l, n, got)
					}
				}
			}
		}
		if len(p.List()) != 0 {
			check()
		}
		proctest.Value(p.add(t, img.Saved(t, "x:1")))(t)
		check()
	}
}
