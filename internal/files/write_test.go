//go:build unix

package files

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

var errBroken = errors.New("connection reset")

func broken(n int) io.Reader {
	return io.MultiReader(bytes.NewReader(make([]byte, n)), iotest.ErrReader(errBroken))
}

func TestWrite(t *testing.T) {
	f := tree(t)
	big := strings.Repeat("0123456789abcdef", 20_000)
	for _, tt := range []struct{ name, path, content string }{
		{"a new file with its parents", "x/y/z", "content"},
		{"a shorter file over a longer one", "dir/file", "hi"},
		{"an empty file", "dir/file", ""},
		{"more than is read ahead", "big", big},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := f.Write(tt.path, strings.NewReader(tt.content), nil)
			if err != nil || e.Size != int64(len(tt.content)) {
				t.Fatalf("%+v, %v", e, err)
			}
			got, err := os.ReadFile(e.Path)
			if err != nil || string(got) != tt.content {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	t.Run("a link that leads nowhere makes its target", func(t *testing.T) {
		if _, err := f.Write("dangling", strings.NewReader("x"), nil); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(f.User.Home, "nowhere")); err != nil || string(got) != "x" {
			t.Errorf("%q, %v", got, err)
		}
	})
	for path, want := range map[string]error{
		"dir": ErrIsDir, "fifo": ErrNotRegular, "/dev/null": ErrNotRegular,
		"loop": ErrLoop, "dir/file/below": ErrNotDir,
	} {
		t.Run("refused: "+path, func(t *testing.T) {
			if _, err := f.Write(path, strings.NewReader("x"), nil); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

func TestOpenNeverHangsAndTakesRegularFilesOnly(t *testing.T) {
	f := tree(t)
	for path, want := range map[string]error{
		"fifo": ErrNotRegular, "/dev/zero": ErrNotRegular, "dir": ErrIsDir, "missing": ErrNotExist, "loop": ErrLoop,
	} {
		if _, _, err := f.Open(path); !errors.Is(err, want) {
			t.Errorf("open %s: %v, want %v", path, err, want)
		}
	}
	file, info, err := f.Open("link/file")
	if err != nil || info.Size() != 5 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnUploadThatBreaksOff(t *testing.T) {
	tests := []struct {
		name   string
		before string // "" for no file
		sent   int
		want   string
		gone   bool
	}{
		{"early leaves an existing file as it was", "before", 100, "before", false},
		{"early makes no new file", "", 100, "", true},
		{"late leaves an existing file empty", "before", 1 << 20, "", false},
		{"late removes the new file", "", 1 << 20, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := self(t)
			path := filepath.Join(f.User.Home, "file")
			if tt.before != "" {
				proctest.Must(t, os.WriteFile(path, []byte(tt.before), 0o644))
			}
			_, err := f.Write("file", broken(tt.sent), nil)
			if !errors.Is(err, errBroken) || !IsBodyError(err) {
				t.Errorf("error %v", err)
			}
			got, err := os.ReadFile(path)
			if gone := errors.Is(err, os.ErrNotExist); gone != tt.gone || string(got) != tt.want {
				t.Errorf("left %q, %v", got, err)
			}
		})
	}
}

// The sender's errors may be of the same type as those about the arguments.
func TestAnInvalidUploadNamesItsPath(t *testing.T) {
	f := self(t)
	_, err := f.Write("file", iotest.ErrReader(&InvalidError{Field: "user", Reason: "is set twice"}), nil)
	if want := "write " + filepath.Join(f.User.Home, "file") + ": user is set twice"; err == nil || err.Error() != want || !IsBodyError(err) {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestMetadataIsReplacedWithEachWrite(t *testing.T) {
	f := self(t)
	for _, want := range []map[string]string{{"author": "me", "run": "1"}, {"run": "2", "long": strings.Repeat("v", 1000)}, nil} {
		e, err := f.Write("file", strings.NewReader("x"), want)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, e.Metadata); d != "" {
			t.Error(d)
		}
	}
	for name, bad := range map[string]map[string]string{
		"empty key": {"": "x"}, "long key": {strings.Repeat("k", 300): "x"}, "newline": {"k": "a\nb"},
		"not ASCII": {"k": "é"}, "too much": {"a": strings.Repeat("x", 3000), "b": strings.Repeat("x", 3000)},
	} {
		if _, err := f.Write("other", strings.NewReader("x"), bad); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Stat("other"); !errors.Is(err, ErrNotExist) {
		t.Errorf("bad metadata made a file: %v", err)
	}
}

func TestCompose(t *testing.T) {
	f := tree(t)
	write := func(path, content string) {
		t.Helper()
		if _, err := f.Write(path, strings.NewReader(content), nil); err != nil {
			t.Fatal(err)
		}
	}
	write("p1", "one,")
	write("p2", "two")
	write("whole", "old")
	for name, tt := range map[string]struct {
		sources []string
		dest    string
		want    error
	}{
		"a missing source":  {[]string{"p1", "missing"}, "whole", ErrNotExist},
		"a FIFO":            {[]string{"p1", "fifo"}, "whole", ErrNotRegular},
		"a directory":       {[]string{"p1", "dir"}, "whole", ErrNotRegular},
		"onto a directory":  {[]string{"p1"}, "dir", ErrIsDir},
		"below a file":      {[]string{"p1"}, "dir/file/x", ErrNotDir},
		"no source":         {nil, "whole", nil},
		"no destination":    {[]string{"p1"}, "", nil},
		"itself":            {[]string{"p1", "whole"}, "whole", nil},
		"onto a FIFO":       {[]string{"p1"}, "fifo", nil},
		"a NUL in a source": {[]string{"p1\x00"}, "whole", nil},
	} {
		_, err := f.Compose(t.Context(), tt.sources, tt.dest)
		if tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e, err := f.Compose(t.Context(), []string{"p1", "p2"}, "whole")
	if err != nil || e.Size != 7 {
		t.Fatalf("%+v, %v", e, err)
	}
	if got, err := os.ReadFile(e.Path); err != nil || string(got) != "one,two" {
		t.Errorf("%q, %v", got, err)
	}
	list, err := f.List(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, "p") || strings.HasPrefix(e.Name, ".compose") {
			t.Errorf("%s is left", e.Name)
		}
	}
}

func TestConcurrentWritesOfOneFileAllSucceed(t *testing.T) {
	f := self(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := f.Write("d/e/file", strings.NewReader("same content"), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got, err := os.ReadFile(filepath.Join(f.User.Home, "d/e/file")); err != nil || string(got) != "same content" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheSystemsErrorsAreNamed(t *testing.T) {
	for errno, want := range map[syscall.Errno]error{
		syscall.ENOSPC: ErrNoSpace, syscall.EDQUOT: ErrNoSpace, syscall.EXDEV: ErrCrossDevice,
		syscall.EROFS: ErrPermission, syscall.EACCES: ErrPermission, syscall.ELOOP: ErrLoop, syscall.ENOTEMPTY: ErrExists,
	} {
		if err := pathError("write", "/x", &os.PathError{Op: "write", Path: "/x", Err: errno}); !errors.Is(err, want) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
