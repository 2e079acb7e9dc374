//go:build unix

package tend_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

func TestFilesOfASandbox(t *testing.T) {
	t.Parallel()
	c := withSandboxes(t, nil)
	sandbox := tend.NewSandbox(c, tend.SandboxSpec{Name: "files"}) // made by the first operation
	f := sandbox.Files()
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	proctest.Must(t, f.WriteFile(t.Context(), "a/b/large", large))
	if got := proctest.Value(f.ReadFile(t.Context(), "a/b/large"))(t); !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back", len(got))
	}
	e := proctest.Value(f.Stat(t.Context(), "a/b/large"))(t)
	if e.Type != tend.FileRegular || e.Size != int64(len(large)) || e.Name != "large" || !filepath.IsAbs(e.Path) || e.Modified.IsZero() {
		t.Errorf("it is %+v", e)
	}
	if got := printed(t, sandbox.Processes(), "wc -c < a/b/large"); strings.TrimSpace(got) != "1048576" {
		t.Errorf("a program sees %q bytes", got)
	}
	proctest.Must(t, f.Mkdir(t.Context(), "dir"))
	if err := f.Mkdir(t.Context(), "dir"); !errors.Is(err, fs.ErrExist) || !errors.Is(err, process.ErrExists) {
		t.Errorf("made twice: %v", err)
	}
	proctest.Must(t, f.Move(t.Context(), "a/b/large", "dir/small"))
	proctest.Must(t, f.WriteFile(t.Context(), "dir/small", nil))
	var names []string
	for _, e := range proctest.Value(f.List(t.Context(), ".", 2))(t) {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); got != "a b dir small" {
		t.Errorf("there are %s", got)
	}
	proctest.Must(t, f.Remove(t.Context(), "dir"))
	proctest.Must(t, f.Remove(t.Context(), "dir"))
	for what, err := range map[string]error{
		"read": func() error { _, err := f.ReadFile(t.Context(), "dir/small"); return err }(),
		"stat": func() error { _, err := f.Stat(t.Context(), "dir"); return err }(),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "dir") {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
	for field, err := range map[string]error{
		"path":        func() error { _, err := f.Stat(t.Context(), ""); return err }(),
		"destination": f.Move(t.Context(), "a", strings.Repeat("x", 5000)),
		"user":        f.As(strings.Repeat("u", 1000)).Remove(t.Context(), "a"),
	} {
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != field {
			t.Errorf("a wrong %s: %v", field, err)
		}
	}
	if _, err := f.ReadFile(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory as a file: %v", err)
	}
}

// brokenReader gives some bytes, and then an error.
type brokenReader struct{ n int }

func (f *brokenReader) Read(b []byte) (int, error) {
	if f.n == 0 {
		return 0, errors.New("the disk is gone")
	}
	n := min(f.n, len(b))
	f.n -= n
	return n, nil
}

func TestAWriteThatFailsIsNoFile(t *testing.T) {
	t.Parallel()
	f := tend.NewSandbox(withSandboxes(t, nil), tend.SandboxSpec{Name: "half"}).Files()
	proctest.Must(t, f.WriteFile(t.Context(), "x", []byte("whole")))
	if _, err := f.Write(t.Context(), "x", &brokenReader{1 << 10}); err == nil || err.Error() != "the disk is gone" {
		t.Errorf("it ended with %v", err)
	}
	if got := proctest.Value(f.ReadFile(t.Context(), "x"))(t); string(got) != "whole" {
		t.Errorf("there are %d bytes", len(got))
	}
}

func TestAWriteOfAFileIsRepeatedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	var writes atomic.Int32
	c := withSandboxes(t, losing("WriteFile", func(n int32) bool { return n == 1 }, &writes))
	f := tend.NewSandbox(c, tend.SandboxSpec{Name: "again"}).Files()
	proctest.Must(t, f.WriteFile(t.Context(), "x", []byte("once")))
	if got := proctest.Value(f.ReadFile(t.Context(), "x"))(t); string(got) != "once" || writes.Load() != 2 {
		t.Errorf("%q by %d writes", got, writes.Load())
	}
	// What cannot be read again is sent once.
	writes.Store(0)
	if _, err := f.Write(t.Context(), "y", io.MultiReader(strings.NewReader("a pipe"))); err == nil || writes.Load() != 1 {
		t.Errorf("%v by %d writes", err, writes.Load())
	}
}

// cutting ends each answer of a method after some bytes, the first time.
func cutting(method string, after int, calls *atomic.Int32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/"+method) && calls.Add(1) <= 3 {
				w = &cut{w, after}
			}
			next.ServeHTTP(w, r)
		})
	}
}

type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(b)
}

func (c *cut) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func TestAReadOfAFileGoesOnWhereTheConnectionWasLost(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32
	f := tend.NewSandbox(withSandboxes(t, cutting("ReadFile", 600<<10, &reads)), tend.SandboxSpec{Name: "cut"}).Files()
	var want []byte
	for i := range 300_000 {
		want = append(want, byte(i), byte(i>>8), byte(i>>16), '\n')
	}
	proctest.Must(t, f.WriteFile(t.Context(), "x", want))
	if got := proctest.Value(f.ReadFile(t.Context(), "x"))(t); !bytes.Equal(got, want) || reads.Load() < 2 {
		t.Errorf("%d bytes of %d by %d reads", len(got), len(want), reads.Load())
	}
}

func TestAPortOfASandboxIsDialed(t *testing.T) {
	t.Parallel()
	c := withSandboxes(t, nil)
	sandbox := tend.NewSandbox(c, tend.SandboxSpec{Name: "port"})
	port := proctest.FreePort(t)                                                 // which nobody gets once it is closed
	l := proctest.Value(net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)))(t) // the host driver's sandboxes have the machine's network
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all, _ := io.ReadAll(c)
			io.WriteString(c, strings.ToUpper(string(all)))
			c.Close()
		}
	}()
	conn := proctest.Value(sandbox.Dial(t.Context(), port))(t)
	defer conn.Close()
	proctest.Value(io.WriteString(conn, "hello"))(t)
	proctest.Must(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	if got := proctest.Value(io.ReadAll(conn))(t); string(got) != "HELLO" {
		t.Errorf("it answers %q", got)
	}
	id := proctest.Value(sandbox.ID(t.Context()))(t)
	if u := proctest.Value(sandbox.URL(t.Context(), 3000))(t); !strings.HasPrefix(u, "http://3000-"+id+".localhost:") {
		t.Errorf("its URL is %s", u)
	}
	l.Close()
	if _, err := sandbox.Dial(t.Context(), port); err == nil || !strings.Contains(err.Error(), "listens") {
		t.Errorf("a port where nobody listens: %v", err)
	}
	if _, err := sandbox.Dial(t.Context(), 70000); !errors.Is(err, process.ErrUnsupported) {
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "port" {
			t.Errorf("a wrong port: %v", err)
		}
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))
	if _, err := sandbox.Dial(t.Context(), port); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("a sandbox that is gone: %v", err)
	}
}

func TestTemplatesThatThereAreNotAreSaidToBeUnsupported(t *testing.T) {
	t.Parallel()
	c := withSandboxes(t, nil) // the host driver has none
	if _, err := c.Templates(t.Context()); !errors.Is(err, process.ErrUnsupported) {
		t.Errorf("list: %v", err)
	}
	if _, err := c.BuildTemplate(t.Context(), tend.TemplateSpec{Name: "x"}, nil); !errors.Is(err, process.ErrUnsupported) {
		t.Errorf("build: %v", err)
	}
	_, err := c.BuildTemplate(t.Context(), tend.TemplateSpec{Name: "x", Steps: []tend.TemplateStep{{Kind: "COPY", Args: []string{"a", "b"}}}}, nil)
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "steps[0].files" {
		t.Errorf("a COPY without files: %v", err)
	}
}
