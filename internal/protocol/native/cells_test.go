package native_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/interpreter"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// serveCells serves a sandbox of the host driver whose kernels are this machine's bash, and returns its ID.
func serveCells(t *testing.T) (tendv1connect.CodeServiceClient, string) {
	t.Helper()
	dir := t.TempDir()
	python := proctest.Value(exec.Command("python3", "-c", "import sys; print(sys.executable)").Output())(t)
	proctest.Must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	proctest.Must(t, os.Symlink(strings.TrimSpace(string(python)), filepath.Join(dir, "bin", "python")))
	proctest.Must(t, os.Symlink(proctest.Value(filepath.Abs("../../interpreter/kernels"))(t), filepath.Join(dir, "kernels")))
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	_, url := serve(t, native.Config{Manager: m, Driver: d, Code: &interpreter.Service{Dir: dir}})
	sandbox := create(t, tendv1connect.NewSandboxServiceClient(http.DefaultClient, url), &tendv1.SandboxSpec{Name: "cells"})
	return tendv1connect.NewCodeServiceClient(http.DefaultClient, url), sandbox.GetId()
}

const cellName, longest = "abcdefghijklmnop", "abcdefghijklmnopqrstuvwxyz0123"

// runCell returns the execution and all events of a cell.
func runCell(t *testing.T, c tendv1connect.CodeServiceClient, sandbox string, m *tendv1.RunCellRequest) (execution string, events []string, err error) {
	t.Helper()
	stream := proctest.Value(c.RunCell(t.Context(), inside(m, sandbox)))(t)
	defer stream.Close()
	for stream.Receive() {
		if id := stream.Msg().GetExecution(); id != "" {
			execution = id
		}
		if e := stream.Msg().GetEvent(); len(e) > 0 {
			events = append(events, string(e))
		}
	}
	return execution, events, stream.Err()
}

func TestACellRunsOnceHoweverOftenItIsAskedFor(t *testing.T) {
	t.Parallel()
	c, sandbox := serveCells(t)
	m := &tendv1.RunCellRequest{Code: "echo a; (( n++ )); echo $n$A; false", Language: "bash", Env: map[string]string{"A": "x"}, Cell: cellName}
	execution, events, err := runCell(t, c, sandbox, m)
	if said := strings.Join(events, "\n"); err != nil || execution == "" || !strings.Contains(events[0], "number_of_executions") ||
		!strings.Contains(said, `1x\n"`) || !strings.Contains(said, `"ExitStatus"`) || !strings.Contains(events[len(events)-1], "end_of_execution") {
		t.Fatalf("%q %v %v", execution, events, err)
	}
	m.Again, m.From = true, 1
	if again, rest, err := runCell(t, c, sandbox, m); err != nil || again != execution || strings.Join(rest, "\n") != strings.Join(events[1:], "\n") {
		t.Errorf("again from the second event on: %q %v %v", again, rest, err)
	}
}

func TestContextsAreMadeFollowedRestartedAndRemoved(t *testing.T) {
	t.Parallel()
	c, sandbox := serveCells(t)
	ctx := t.Context()
	made := proctest.Value(c.CreateContext(ctx, inside(&tendv1.CreateCodeContextRequest{Language: "bash", Dir: "/"}, sandbox)))(t).Msg.GetContext()
	if made.GetLanguage() != "bash" || made.GetDir() != "/" {
		t.Errorf("made: %v", made)
	}
	listed := proctest.Value(c.ListContexts(ctx, inside(&tendv1.ListCodeContextsRequest{}, sandbox)))(t).Msg.GetContexts()
	if len(listed) != 3 || listed[2].GetId() != made.GetId() {
		t.Errorf("listed: %v", listed)
	}
	// Who follows a context is told its cells with their code, and ends with its kernel.
	_, _, err := runCell(t, c, sandbox, &tendv1.RunCellRequest{Code: "x=1; echo one", Context: made.GetId(), Cell: cellName})
	proctest.Must(t, err)
	followed := proctest.Value(c.FollowContext(ctx, inside(&tendv1.FollowCodeContextRequest{Context: made.GetId()}, sandbox)))(t)
	defer followed.Close()
	var said []string
	for followed.Receive() {
		m := followed.Msg()
		if said = append(said, m.GetCell()+" "+string(m.GetEvent())); strings.Contains(said[len(said)-1], "end_of_execution") {
			proctest.Value(c.RestartContext(ctx, inside(&tendv1.RestartCodeContextRequest{Context: made.GetId()}, sandbox)))(t)
		}
	}
	all := strings.Join(said, "\n")
	if followed.Err() != nil || !strings.Contains(all, `- {"type": "code", "cell": "`+cellName+`", "code": "x=1; echo one"}`) ||
		!strings.Contains(all, cellName+` {"type": "stdout", "text": "one\n"`) {
		t.Errorf("followed: %v %s", followed.Err(), all)
	}
	_, events, err := runCell(t, c, sandbox, &tendv1.RunCellRequest{Code: "echo ${x-new}", Context: made.GetId(), Cell: cellName + "2"})
	if err != nil || !strings.Contains(strings.Join(events, "\n"), `"new\n"`) {
		t.Errorf("after a restart: %v %v", events, err)
	}
	proctest.Value(c.RemoveContext(ctx, inside(&tendv1.RemoveCodeContextRequest{Context: made.GetId()}, sandbox)))(t)
	if _, err := c.RemoveContext(ctx, inside(&tendv1.RemoveCodeContextRequest{Context: made.GetId()}, sandbox)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("removed again: %v", err)
	}
}

func TestACellGoesOnWithoutItsCallAndIsCancelledByName(t *testing.T) {
	t.Parallel()
	c, sandbox := serveCells(t)
	stream := proctest.Value(c.RunCell(t.Context(), inside(&tendv1.RunCellRequest{Code: "kept=5; echo set; sleep 600",
		Language: "bash", Cell: longest}, sandbox)))(t)
	for stream.Receive() && !strings.Contains(string(stream.Msg().GetEvent()), `"set`) {
	}
	stream.Close() // the cell runs, and its caller has left
	m := &tendv1.RunCellRequest{Language: "bash", Cell: longest, Again: true}
	again := proctest.Value(c.RunCell(t.Context(), inside(m, sandbox)))(t)
	defer again.Close()
	said := ""
	for again.Receive() {
		if id := again.Msg().GetExecution(); id != "" {
			proctest.Value(c.CancelCell(t.Context(), inside(&tendv1.CancelCellRequest{Execution: id}, sandbox)))(t)
		}
		said += string(again.Msg().GetEvent())
	}
	if again.Err() != nil || !strings.Contains(said, "KeyboardInterrupt") {
		t.Errorf("%v %s", again.Err(), said)
	}
	_, events, err := runCell(t, c, sandbox, &tendv1.RunCellRequest{Code: "echo $kept", Language: "bash", Cell: cellName + "2"})
	if err != nil || !strings.Contains(strings.Join(events, "\n"), `"5\n"`) {
		t.Errorf("the next cell: %v %v", events, err)
	}
}

func TestCellsThatCannotBeAreRefusedByType(t *testing.T) {
	t.Parallel()
	c, sandbox := serveCells(t)
	for what, tc := range map[string]struct {
		m    *tendv1.RunCellRequest
		code connect.Code
		says string
	}{
		"an unknown language":    {&tendv1.RunCellRequest{Language: "r", Cell: cellName}, connect.CodeInvalidArgument, "language is \"r\"; there are python"},
		"an unknown context":     {&tendv1.RunCellRequest{Context: "x", Cell: cellName}, connect.CodeNotFound, "Context x not found"},
		"a context and language": {&tendv1.RunCellRequest{Context: "x", Language: "bash", Cell: cellName}, connect.CodeInvalidArgument, "language"},
		"no name":                {&tendv1.RunCellRequest{Language: "bash"}, connect.CodeInvalidArgument, "cell is \"\""},
		"a long name":            {&tendv1.RunCellRequest{Language: "bash", Cell: strings.Repeat("a", 31)}, connect.CodeInvalidArgument, "16 to 30"},
		"a name with a space":    {&tendv1.RunCellRequest{Language: "bash", Cell: "abcdefgh ijklmnop"}, connect.CodeInvalidArgument, "cell"},
		"a variable":             {&tendv1.RunCellRequest{Language: "bash", Cell: cellName, Env: map[string]string{"a=": ""}}, connect.CodeInvalidArgument, "env"},
	} {
		if _, _, err := runCell(t, c, sandbox, tc.m); connect.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.ListContexts(t.Context(), inside(&tendv1.ListCodeContextsRequest{})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("without a sandbox: %v", err)
	}
	if _, err := c.CancelCell(t.Context(), inside(&tendv1.CancelCellRequest{Execution: "x.y"}, sandbox)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown execution: %v", err)
	}
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	_, url := serve(t, native.Config{Manager: m, Driver: d, Code: &interpreter.Service{Dir: "/nowhere"}})
	bare := create(t, tendv1connect.NewSandboxServiceClient(http.DefaultClient, url), &tendv1.SandboxSpec{})
	_, err := tendv1connect.NewCodeServiceClient(http.DefaultClient, url).ListContexts(t.Context(), inside(&tendv1.ListCodeContextsRequest{}, bare.GetId()))
	if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "code-interpreter-v1") {
		t.Errorf("a sandbox without kernels: %v", err)
	}
}
