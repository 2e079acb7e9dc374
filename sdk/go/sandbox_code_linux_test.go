package tend_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// withKernels is a client of sandboxes whose kernels are this machine's bash.
func withKernels(t *testing.T, around func(http.Handler) http.Handler) *tend.Client {
	t.Helper()
	dir := t.TempDir()
	python := proctest.Value(exec.Command("python3", "-c", "import sys; print(sys.executable)").Output())(t)
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	proctest.Must(t, os.Symlink(strings.TrimSpace(string(python)), filepath.Join(dir, "bin", "python")))
	proctest.Must(t, os.Symlink(proctest.Value(filepath.Abs("../../internal/interpreter/kernels"))(t), filepath.Join(dir, "kernels")))
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	face := native.Config{Manager: m, Driver: d, Code: &interpreter.Service{Dir: dir}}
	return dial(t, serveFace(t, face, nil, around).URL, tend.Options{Retry: tend.Retry{First: time.Millisecond, Max: 50 * time.Millisecond}})
}

func TestCodeRunsInContexts(t *testing.T) {
	t.Parallel()
	sandbox := tend.NewSandbox(withKernels(t, nil), tend.SandboxSpec{})
	ctx := t.Context()
	var kinds []string
	r := proctest.Value(sandbox.Code(ctx, "x=1; echo out; echo err >&2; echo $A; false", tend.CodeOptions{Language: "bash", Env: map[string]string{"A": "a"},
		OnEvent: func(e tend.CodeEvent) { kinds = append(kinds, e.Kind) }}))(t)
	if r.Stdout != "out\na\n" || r.Stderr != "err\n" || r.Err == nil || r.Err.Name != "ExitStatus" || r.Err.Value != "1" || r.Count != 1 ||
		r.TimedOut || kinds[len(kinds)-1] != "error" {
		t.Errorf("%+v %v %v", r, r.Err, kinds)
	}
	in := proctest.Value(sandbox.CreateCodeContext(ctx, "bash", "/"))(t)
	if r := proctest.Value(sandbox.Code(ctx, "pwd; echo ${x-none}", tend.CodeOptions{Context: in.ID}))(t); r.Stdout != "/\nnone\n" || r.Err != nil {
		t.Errorf("in another context: %+v", r)
	}
	if all := proctest.Value(sandbox.CodeContexts(ctx))(t); len(all) < 3 || all[0].Language != "python" {
		t.Errorf("contexts: %v", all)
	}
	proctest.Must(t, sandbox.RestartCodeContext(ctx, in.ID))
	for range 2 {
		proctest.Must(t, sandbox.RemoveCodeContext(ctx, in.ID))
	}
	if _, err := sandbox.Code(ctx, ":", tend.CodeOptions{Context: in.ID}); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("in a context that is removed: %v", err)
	}
	if _, err := sandbox.Code(ctx, "1", tend.CodeOptions{Language: "r"}); err == nil || !strings.Contains(err.Error(), "there are python") {
		t.Errorf("in a language without a kernel: %v", err)
	}
}

func TestATimeoutOrACallerThatLeavesInterruptsTheCell(t *testing.T) {
	t.Parallel()
	sandbox := tend.NewSandbox(withKernels(t, nil), tend.SandboxSpec{})
	r := proctest.Value(sandbox.Code(t.Context(), "kept=5; sleep 600", tend.CodeOptions{Language: "bash", Timeout: time.Second}))(t)
	if !r.TimedOut || r.Err == nil || r.Err.Name != "KeyboardInterrupt" {
		t.Errorf("%+v %v", r, r.Err)
	}
	ctx, leave := context.WithCancel(t.Context())
	_, err := sandbox.Code(ctx, "echo begun; sleep 600", tend.CodeOptions{Language: "bash", OnEvent: func(tend.CodeEvent) { leave() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if r := proctest.Value(sandbox.Code(t.Context(), "echo $kept", tend.CodeOptions{Language: "bash"}))(t); r.Stdout != "5\n" {
		t.Errorf("the next cell: %+v", r)
	}
}

// Each connection of a cell is cut after a few bytes of its answer.
func TestACellWhoseConnectionsAreCutRunsOnceAndItsOutputIsWhole(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	sandbox := tend.NewSandbox(withKernels(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/RunCell") && calls.Add(1) < 4 {
				w = &severed{ResponseWriter: w, left: int(calls.Load()) * 150}
			}
			next.ServeHTTP(w, r)
		})
	}), tend.SandboxSpec{})
	r := proctest.Value(sandbox.Code(t.Context(), `(( n++ )); for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done; echo n$n`, tend.CodeOptions{Language: "bash"}))(t)
	if r.Stdout != "1\n2\n3\n4\n5\n6\n7\n8\nn1\n" || r.Err != nil || calls.Load() != 4 {
		t.Errorf("%d calls: %+v", calls.Load(), r)
	}
}

// severed ends its connection after so many bytes.
type severed struct {
	http.ResponseWriter
	left int
}

func (c *severed) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(b)
}

func (c *severed) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c *severed) Flush()                      { c.ResponseWriter.(http.Flusher).Flush() }
