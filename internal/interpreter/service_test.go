package interpreter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

const patience = time.Minute // it only ends tests that fail

// kernels is a service whose kernels are of this machine's bash, and a sandbox that has them: this machine.
func kernels(t *testing.T) (*interpreter.Service, interpreter.Sandbox) {
	t.Helper()
	dir := t.TempDir()
	python := proctest.Value(exec.LookPath("python3"))(t)
	// A name that leads to it by a script, as version managers have, would not find it by a link.
	real := proctest.Value(exec.Command(python, "-c", "import sys; print(sys.executable)").Output())(t)
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	proctest.Must(t, os.Symlink(strings.TrimSpace(string(real)), filepath.Join(dir, "bin", "python")))
	proctest.Must(t, os.Symlink(proctest.Value(filepath.Abs("kernels"))(t), filepath.Join(dir, "kernels")))
	m := testkeeper.New(t)
	return &interpreter.Service{Dir: dir}, interpreter.Sandbox{ID: "box", Access: host.NewMachine(m)}
}

// run runs a cell and returns it begun.
func run(t *testing.T, s *interpreter.Service, sandbox interpreter.Sandbox, c interpreter.Cell) *interpreter.Execution {
	t.Helper()
	e := proctest.Value(s.Run(t.Context(), sandbox, c))(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// rest is the events of a cell that are left, but for the count, in short.
func rest(t *testing.T, e *interpreter.Execution) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []string
	for {
		line, err := e.Next(ctx)
		if errors.Is(err, io.EOF) {
			return strings.Join(all, " ")
		}
		proctest.Must(t, err)
		var ev struct{ Type, Text, Name, Value string }
		proctest.Must(t, json.Unmarshal(line, &ev))
		switch ev.Type {
		case "stdout", "stderr":
			all = append(all, ev.Type+":"+strings.TrimSpace(ev.Text))
		case "error":
			all = append(all, ev.Name+":"+ev.Value)
		case "end_of_execution":
			all = append(all, "end")
		}
	}
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

const bash = "bash"

func TestCellsOfAContextShareAShellAndRunInOrder(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	first := run(t, s, sandbox, interpreter.Cell{Code: "x=1; sleep 0.2; x=$((x + 1))", Language: bash})
	second := run(t, s, sandbox, interpreter.Cell{Code: "echo $x; echo e >&2; false", Language: bash})
	want(t, rest(t, first), "end")
	want(t, rest(t, second), "stdout:2 stderr:e ExitStatus:1 end")
	dir := t.TempDir()
	c := proctest.Value(s.Create(t.Context(), sandbox, "BASH ", dir))(t)
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: `echo "$x-$PWD-$V"`, Context: c.ID, Env: map[string]string{"V": `'$(id)"`}})),
		"stdout:-"+dir+"-"+`'$(id)" end`)
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: `echo "${V-gone}"`, Context: c.ID})), "stdout:gone end")
	all := proctest.Value(s.Contexts(t.Context(), sandbox))(t)
	var langs []string
	for _, c := range all {
		langs = append(langs, c.Language)
	}
	want(t, strings.Join(langs, " "), "python javascript bash bash")
}

func TestACellOfBashLeavesItsEngineAsItIs(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	env := map[string]string{"V": "v", "__tend_left": "5", "__tend_status": "4", "__tend_runs": ""}
	for _, c := range [][2]string{
		{"x=1; echo $V", "stdout:v end"}, {"break", "end"}, {"continue", "end"}, {"continue 9; echo more", "end"}, {"return 7",
			"ExitStatus:7 end"},
		{"IFS=127; (exit 127)", "ExitStatus:127 end"}, {"unset IFS; for i in 1 2; do break; done; echo $x$i", "stdout:11 end"},
	} {
		want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: c[0], Language: bash, Env: env})), c[1])
	}
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo $x${V-gone}", Language: bash})), "stdout:1gone end")
}

func TestALanguageWithoutAKernelIsToldWhichThereAre(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	for _, name := range []string{"julia-1.11", "ir", "a b"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(s.Dir, "share", "jupyter", "kernels", name), 0o755))
		proctest.Must(t, os.WriteFile(filepath.Join(s.Dir, "share", "jupyter", "kernels", name, "kernel.json"), nil, 0o600))
	}
	_, err := s.Create(t.Context(), sandbox, "cobol", "/")
	if e, ok := errors.AsType[*interpreter.LanguageError](err); !ok || !strings.Contains(e.Error(), "as a kernel of Jupyter: ") ||
		!strings.Contains(e.Error(), "julia-1.11") || !strings.HasSuffix(e.Error(), " r") {
		t.Errorf("%v", err)
	}
}

func TestACancelledCellEndsAndItsKernelStays(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"sleep 600; echo more", "while :; do :; done", "f() { while true; do sleep 1; done; }; f; echo more"} {
		s, sandbox := kernels(t)
		e := run(t, s, sandbox, interpreter.Cell{Code: "kept=5; echo begun; " + code, Language: bash})
		for begun := false; !begun; {
			line := proctest.Value(e.Next(t.Context()))(t)
			begun = strings.Contains(string(line), "begun")
		}
		waits := run(t, s, sandbox, interpreter.Cell{Code: "kept=6", Language: bash})
		proctest.Must(t, waits.Cancel(t.Context()))
		want(t, rest(t, waits), "ExecutionAborted:the client left before the cell began end")
		proctest.Must(t, e.Cancel(t.Context()))
		if got := rest(t, e); !strings.HasPrefix(got, "KeyboardInterrupt:") {
			t.Errorf("after the interrupt of %q came %q", code, got)
		}
		want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo $kept", Language: bash})), "stdout:5 end")
	}
}

func TestACellThatTakesNoInterruptLosesItsKernel(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	e := run(t, s, sandbox, interpreter.Cell{Code: "trap '' INT; echo begun; sleep 600", Language: bash})
	for begun := false; !begun; {
		begun = strings.Contains(string(proctest.Value(e.Next(t.Context()))(t)), "begun")
	}
	proctest.Must(t, e.Cancel(t.Context()))
	want(t, rest(t, e), "ContextRestarting:Context was restarted end")
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo new", Language: bash})), "stdout:new end")
}

func TestAnExecutionIsReadAgain(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	e := run(t, s, sandbox, interpreter.Cell{Code: "for i in 1 2 3; do echo $i; sleep 0.05; done", Language: bash})
	whole := rest(t, e)
	for range 2 {
		again := proctest.Value(s.Follow(t.Context(), sandbox, e.ID))(t)
		want(t, rest(t, again), whole)
		again.Close()
	}
	for _, id := range []string{"", "x", "x.y", e.ID + "z"} {
		if _, err := s.Follow(t.Context(), sandbox, id); !errors.Is(err, interpreter.ErrNoExecution) {
			t.Errorf("execution %q: %v", id, err)
		}
	}
	// It can still be read when its kernel has died, until there is a next one and that has died, too.
	died := run(t, s, sandbox, interpreter.Cell{Code: "echo last; kill -9 $$", Language: bash})
	want(t, rest(t, died), "stdout:last ContextRestarting:Context was restarted end")
	again := proctest.Value(s.Follow(t.Context(), sandbox, died.ID))(t)
	defer again.Close()
	want(t, rest(t, again), "stdout:last ContextRestarting:Context was restarted end")
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo new", Language: bash})), "stdout:new end")
}

func TestOutputThatIsNotReadInTimeIsToldAsLost(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	e := run(t, s, sandbox, interpreter.Cell{Code: "head -c 150000000 /dev/zero | tr '\\0' x; echo; echo last", Language: bash})
	if next := rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo next", Language: bash})); !strings.HasSuffix(next, "stdout:next end") {
		t.Errorf("the next cell said %.200q", next)
	}
	got := rest(t, e)
	if !strings.Contains(got, "bytes of output were not read in time") || !strings.HasSuffix(got, "last end") {
		t.Errorf("%d bytes: %.200q … %q", len(got), got, got[max(0, len(got)-100):])
	}
}

func TestWhatCannotBeIsRefusedByType(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	ctx := t.Context()
	_, err := s.Create(ctx, sandbox, "cobol", "")
	if e, ok := errors.AsType[*interpreter.LanguageError](err); !ok || e.Language != "cobol" || !strings.Contains(err.Error(), "python, javascript") {
		t.Errorf("an unknown language: %v", err)
	}
	_, err = s.Create(ctx, sandbox, "../cobol", "")
	if e, ok := errors.AsType[*interpreter.LanguageError](err); !ok || e.Language != "../cobol" {
		t.Errorf("a language with a path: %v", err)
	}
	_, err = s.Create(ctx, sandbox, bash, "/nope")
	if _, ok := errors.AsType[*interpreter.DirError](err); !ok {
		t.Errorf("a directory that is missing: %v", err)
	}
	_, err = (&interpreter.Service{Dir: t.TempDir()}).Create(ctx, sandbox, bash, "")
	if _, ok := errors.AsType[*interpreter.LanguageError](err); !ok || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("a kernel that is not installed: %v", err)
	}
	broken := t.TempDir()
	proctest.Must(t, os.Mkdir(filepath.Join(broken, "bin"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(broken, "bin", "python"), []byte("#!/bin/sh\necho why >&2; exit 1\n"), 0o755))
	_, err = (&interpreter.Service{Dir: broken}).Create(ctx, sandbox, bash, "")
	if _, ok := errors.AsType[*interpreter.KernelError](err); !ok || !strings.Contains(err.Error(), "why") {
		t.Errorf("a kernel that does not start: %v", err)
	}
	// An engine that ends at once, with the host that is.
	own := t.TempDir()
	proctest.Must(t, os.MkdirAll(filepath.Join(own, "kernels", "foreign"), 0o755))
	for _, name := range []string{"bin", "kernels/python", "kernels/foreign/host.py"} {
		proctest.Must(t, os.Symlink(filepath.Join(s.Dir, name), filepath.Join(own, name)))
	}
	proctest.Must(t, os.WriteFile(filepath.Join(own, "kernels", "foreign", "engine.sh"), []byte("echo because >&2; exit 7"), 0o755))
	_, err = (&interpreter.Service{Dir: own}).Create(ctx, sandbox, bash, "")
	if _, ok := errors.AsType[*interpreter.KernelError](err); !ok || !strings.Contains(err.Error(), "because") {
		t.Errorf("a kernel whose engine does not start: %v", err)
	}
	for what, err := range map[string]error{
		"run": second(s.Run(ctx, sandbox, interpreter.Cell{Context: "x"})), "remove": s.Remove(ctx, sandbox, "x"), "restart": s.Restart(ctx, sandbox, "x"),
	} {
		if _, ok := errors.AsType[*interpreter.ContextError](err); !ok {
			t.Errorf("%s in a context that is missing: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestContextsAreBounded(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	c := proctest.Value(s.Create(t.Context(), sandbox, bash, ""))(t)
	var err error
	for range interpreter.MaxContexts {
		if _, err = s.Create(t.Context(), sandbox, bash, ""); err != nil {
			break
		}
	}
	if e, ok := errors.AsType[*interpreter.LimitError](err); !ok || e.Max != interpreter.MaxContexts {
		t.Fatalf("contexts without end: %v", err)
	}
	all := proctest.Value(s.Contexts(t.Context(), sandbox))(t)
	want(t, fmt.Sprint(len(all)), fmt.Sprint(interpreter.MaxContexts))
	proctest.Must(t, s.Remove(t.Context(), sandbox, c.ID))
	proctest.Value(s.Create(t.Context(), sandbox, bash, ""))(t)
}

func TestARestartForgetsWhatCellsHaveDone(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	c := proctest.Value(s.Create(t.Context(), sandbox, bash, ""))(t)
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "x=1", Context: c.ID})), "end")
	e := run(t, s, sandbox, interpreter.Cell{Code: "sleep 600", Context: c.ID})
	proctest.Value(e.Next(t.Context()))(t)
	proctest.Must(t, s.Restart(t.Context(), sandbox, c.ID))
	want(t, rest(t, e), "ContextRestarting:Context was restarted end")
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo ${x-none}", Context: c.ID})), "stdout:none end")
}

func TestACommandThatWasTornTakesNoOtherWithIt(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: ":", Language: bash})), "end")
	all := proctest.Value(sandbox.Processes().List(t.Context(), process.Filter{Labels: map[string]string{"tend.code": "kernel"}}))(t)
	proctest.Write(t, proctest.Find(t, sandbox.Processes(), all[0].Spec.ID), "\n{\"cell\": \"x\", \"co")
	want(t, rest(t, run(t, s, sandbox, interpreter.Cell{Code: "echo well", Language: bash})), "stdout:well end")
}

// A cell that is given again with its ID runs once, whether it has begun, waits, or has ended with its kernel.
func TestACellThatIsGivenAgainRunsOnce(t *testing.T) {
	t.Parallel()
	s, sandbox := kernels(t)
	dir := t.TempDir()
	for i, code := range []string{"echo x >> %s; echo done", "echo x >> %s; sleep 1; echo done", "echo x >> %s; exit 3"} {
		file := filepath.Join(dir, fmt.Sprint(i))
		c := interpreter.Cell{ID: fmt.Sprintf("mine%d", i), Code: fmt.Sprintf(code, file), Language: bash}
		first := run(t, s, sandbox, c)
		if i != 1 { // it has ended
			rest(t, first)
		}
		c.Again = true
		end := "stdout:done end"
		if i == 2 {
			end = "ContextRestarting:Context was restarted end"
		}
		for range 2 {
			want(t, rest(t, run(t, s, sandbox, c)), end)
		}
		if got := string(proctest.Value(os.ReadFile(file))(t)); got != "x\n" {
			t.Errorf("cell %d has run %d times", i, strings.Count(got, "x"))
		}
	}
}
