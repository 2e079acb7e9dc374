package volume_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/volume"
	"github.com/tend-run/tend/internal/support/proctest"
)

func open(t *testing.T) (*volume.Files, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "v")
	proctest.Must(t, os.Mkdir(dir, 0o700))
	f, err := volume.Open(dir, os.Geteuid() != 0)
	proctest.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f, dir
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	proctest.Must(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestAnUploadThatBreaksOffChangesNothing(t *testing.T) {
	t.Parallel()
	f, dir := open(t)
	_, err := f.Write("/a", strings.NewReader("old"), driver.VolumeAttr{}, false)
	proctest.Must(t, err)
	broken := errors.New("the client left")
	for _, path := range []string{"/a", "/new"} {
		_, err := f.Write(path, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), driver.VolumeAttr{}, true)
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(text) != "old" || names(t, dir) != "a" {
		t.Errorf("it is %q, %v, among %q", text, err, names(t, dir))
	}
}

func TestOfManyThatWriteANewFileOneDoes(t *testing.T) {
	t.Parallel()
	f, dir := open(t)
	var wrote atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := f.Write("f", strings.NewReader(fmt.Sprint(i)), driver.VolumeAttr{}, false)
			if err == nil {
				wrote.Add(1)
			} else if !errors.Is(err, files.ErrExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wrote.Load() != 1 || names(t, dir) != "f" {
		t.Errorf("%d have written it; there is %q", wrote.Load(), names(t, dir))
	}
}

func TestWhatACallerMayNotAskFor(t *testing.T) {
	t.Parallel()
	f, _ := open(t)
	_, err := f.Mkdir("/d", driver.VolumeAttr{}, false)
	proctest.Must(t, err)
	_, err = f.Write("/f", strings.NewReader("x"), driver.VolumeAttr{}, false)
	proctest.Must(t, err)
	for name, tc := range map[string]struct {
		attr  driver.VolumeAttr
		path  string
		field string
	}{
		"setuid":             {driver.VolumeAttr{Mode: new(uint32(0o4755))}, "/x", "mode"},
		"an id beyond":       {driver.VolumeAttr{UID: new(uint32(65536))}, "/x", "uid"},
		"a group beyond":     {driver.VolumeAttr{GID: new(uint32(1 << 31))}, "/x", "gid"},
		"a NUL":              {driver.VolumeAttr{}, "/x\x00", "path"},
		"a path too long":    {driver.VolumeAttr{}, strings.Repeat("/x", 4000), "path"},
		"a name too long":    {driver.VolumeAttr{}, strings.Repeat("x", 256), "path"},
		"a name that is dir": {driver.VolumeAttr{}, "/d", ""},
		"the volume":         {driver.VolumeAttr{}, "/", ""},
	} {
		_, err := f.Write(tc.path, strings.NewReader("x"), tc.attr, true)
		invalid, ok := errors.AsType[*driver.InvalidError](err)
		if tc.field == "" && !errors.Is(err, files.ErrIsDir) || tc.field != "" && (!ok || invalid.Field != tc.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"a file as a directory":  {second(f.Mkdir("/f/d", driver.VolumeAttr{}, true)), files.ErrNotDir},
		"a list of a file":       {second(f.List(t.Context(), "/f", 1)), files.ErrNotDir},
		"a directory over a":     {second(f.Mkdir("/f", driver.VolumeAttr{}, true)), files.ErrExists},
		"a removal of nothing":   {f.Remove("/none"), files.ErrNotExist},
		"a change of nothing":    {second(f.Change("/none", driver.VolumeAttr{})), files.ErrNotExist},
		"a parent that is none":  {second(f.Write("/none/f", strings.NewReader(""), driver.VolumeAttr{}, false)), files.ErrNotExist},
		"a file that there is":   {second(f.Write("/f", strings.NewReader(""), driver.VolumeAttr{}, false)), files.ErrExists},
		"a directory as content": {func() error { _, _, err := f.Open("/d"); return err }(), files.ErrIsDir},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v; want %v", name, tc.err, tc.want)
		}
	}
	if _, ok := errors.AsType[*driver.InvalidError](f.Remove("/d/..")); !ok {
		t.Error("the volume itself is removed")
	}
}

func second[T any](_ T, err error) error { return err }

// A program that swaps a directory for a link, in each moment, leads nothing outside.
func TestSwappedDirectoriesLeadNowhere(t *testing.T) {
	t.Parallel()
	f, dir := open(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	proctest.Must(t, errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "f"), []byte("outside"), 0o644),
		os.Mkdir(filepath.Join(dir, "a"), 0o777), os.Symlink("../outside", filepath.Join(dir, "b"))))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // as a program inside
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c"))
			_ = os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a"))
			_ = os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b"))
			_ = os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, "a"))
		}
	}()
	for range 3000 {
		_, _ = f.Write("a/f", strings.NewReader("written"), driver.VolumeAttr{}, true)
		_, _ = f.Mkdir("a/d", driver.VolumeAttr{}, true)
		_, _ = f.Change("a/f", driver.VolumeAttr{Mode: new(uint32(0o777))})
		if c, _, err := f.Open("a/f"); err == nil {
			text, _ := io.ReadAll(c)
			if c.Close(); string(text) == "outside" {
				t.Fatal("a file outside is read")
			}
		}
		_ = f.Remove("a/f")
	}
	close(stop)
	<-done
	text, err := os.ReadFile(filepath.Join(outside, "f"))
	info, serr := os.Stat(filepath.Join(outside, "f"))
	if err != nil || serr != nil || string(text) != "outside" || info.Mode() != 0o644 || names(t, outside) != "f" {
		t.Errorf("outside is %q, %v, %v, %v; there is %q", text, info, err, serr, names(t, outside))
	}
}
