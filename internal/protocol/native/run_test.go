package native_test

import (
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// TestARunIsAStartAndARead: output, exit and ends in one call; repeated with the same
// id it starts nothing; and what a run before has left is removed meanwhile.
func TestARunIsAStartAndARead(t *testing.T) {
	c, _ := serve(t, native.Config{})
	if !proctest.Value(c.Hello(t.Context(), connect.NewRequest(&tendv1.HelloRequest{})))(t).Msg.GetRuns() {
		t.Error("the hello does not tell of Run")
	}
	run := func(id string, forget ...string) (text string, pid uint32, exits []int32) {
		t.Helper()
		spec := &tendv1.Spec{Id: id, Shell: "echo out; echo err >&2; exit 3", Dir: "/"}
		stream := proctest.Value(c.Run(t.Context(), connect.NewRequest(&tendv1.RunRequest{Spec: spec, Read: &tendv1.ReadRequest{Streams: []tendv1.Stream{tendv1.Stream_STREAM_STDOUT}}, Forget: forget})))(t)
		defer stream.Close()
		for first := true; stream.Receive(); first = false {
			ev := stream.Msg().GetEvent()
			if hello := ev.GetHello(); first != (hello != nil) {
				t.Fatalf("%v, first: %v", ev, first)
			}
			text += string(ev.GetOutput().GetData())
			pid += ev.GetStarted().GetPid()
			if e := ev.GetExited(); e != nil {
				exits = append(exits, e.GetCode())
			}
		}
		proctest.Must(t, stream.Err())
		return text, pid, exits
	}
	text, pid, exits := run("one")
	if text != "out\n" || pid == 0 || !slices.Equal(exits, []int32{3}) {
		t.Fatalf("%q, pid %d, exits %v", text, pid, exits)
	}
	if again, same, _ := run("one"); again != text || same != pid {
		t.Fatalf("repeated: %q of process %d, not %d", again, same, pid)
	}
	// A process is removed once its tree is gone, which may come after the end of its output.
	wait := proctest.Value(c.Wait(t.Context(), connect.NewRequest(&tendv1.WaitRequest{Process: &tendv1.Selector{By: &tendv1.Selector_Id{Id: "one"}}, Until: &tendv1.WaitRequest_TreeGone{TreeGone: true}})))(t)
	for wait.Receive() {
	}
	proctest.Must(t, wait.Err())
	run("two", "nobody", "one")
	got := proctest.Value(c.List(t.Context(), connect.NewRequest(&tendv1.ListRequest{})))(t).Msg.GetProcesses()
	if len(got) != 1 || got[0].GetId() != "two" {
		t.Fatalf("there are %v", got)
	}
}

func TestWrongRunsNameTheField(t *testing.T) {
	c, _ := serve(t, native.Config{})
	for field, m := range map[string]*tendv1.RunRequest{
		"argv":         {},
		"max_chunk":    {Spec: &tendv1.Spec{Shell: "true"}, Read: &tendv1.ReadRequest{MaxChunk: 1 << 30}},
		"read.process": {Spec: &tendv1.Spec{Shell: "true"}, Read: &tendv1.ReadRequest{Process: &tendv1.Selector{By: &tendv1.Selector_Id{Id: "x"}}}},
		"forget":       {Spec: &tendv1.Spec{Shell: "true"}, Forget: make([]string, 101)},
	} {
		stream := proctest.Value(c.Run(t.Context(), connect.NewRequest(m)))(t)
		if stream.Receive() {
			t.Errorf("%s: %v came", field, stream.Msg())
		}
		var said *process.InvalidError
		if !errors.As(tendpb.FromError(stream.Err()), &said) || said.Field != field {
			t.Errorf("%s: %v", field, stream.Err())
		}
		stream.Close()
	}
	if all := proctest.Value(c.List(t.Context(), connect.NewRequest(&tendv1.ListRequest{})))(t).Msg.GetProcesses(); len(all) > 0 {
		t.Errorf("%v was started", all)
	}
}
