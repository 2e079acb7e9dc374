package native_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
)

// watching returns the messages of a stream, but for heartbeats.
func watching(t *testing.T, url string) func() *tendv1.WatchOverviewResponse {
	t.Helper()
	c := tendv1connect.NewOverviewServiceClient(http.DefaultClient, url)
	stream := proctest.Value(c.Watch(t.Context(), connect.NewRequest(&tendv1.WatchOverviewRequest{})))(t)
	t.Cleanup(func() { stream.Close() })
	return func() *tendv1.WatchOverviewResponse {
		t.Helper()
		for stream.Receive() {
			if m := stream.Msg(); !m.GetHeartbeat() {
				return m
			}
		}
		t.Fatal(stream.Err())
		return nil
	}
}

func TestTheOverviewTellsWhatBecomesOfEachProcess(t *testing.T) {
	c, url, _ := serveFace(t, native.Config{Version: "v9"})
	ended := start(t, c, "exit 3")
	proctest.Value(c.Wait(t.Context(), connect.NewRequest(&tendv1.WaitRequest{Process: ended})))(t).Close()
	next := watching(t, url)
	m := next()
	if !m.GetFull() || m.GetVersion() != "v9" || len(m.GetProcesses()) != 1 || m.GetProcesses()[0].GetId() != ended.GetId() {
		t.Fatalf("the first message is %v", m)
	}
	sel := start(t, c, "echo four; exec sleep 1000")
	state := map[string]*tendv1.OverviewProcess{}
	until := func(holds func(p *tendv1.OverviewProcess) bool) {
		t.Helper()
		for !holds(state[sel.GetId()]) {
			m := next()
			if m.GetFull() {
				t.Fatal("a later message is full")
			}
			for _, p := range m.GetProcesses() {
				state[p.GetId()] = p
			}
			for _, id := range m.GetProcessesGone() {
				delete(state, id)
			}
		}
	}
	until(func(p *tendv1.OverviewProcess) bool {
		return p.GetWritten() == 5 && p.GetPid() > 0 && p.GetExit() == nil
	})
	proctest.Value(c.Kill(t.Context(), connect.NewRequest(&tendv1.KillRequest{Process: sel})))(t)
	until(func(p *tendv1.OverviewProcess) bool { return p.GetExit().GetCause() == tendv1.Cause_CAUSE_KILLED })
	proctest.Value(c.Remove(t.Context(), connect.NewRequest(&tendv1.RemoveRequest{Process: sel})))(t)
	until(func(p *tendv1.OverviewProcess) bool { return p == nil })
}

func TestTheOverviewHasNoEnvironmentAndBoundsWhatItShows(t *testing.T) {
	c, url, _ := serveFace(t, native.Config{})
	labels := map[string]string{}
	for n := range 30 {
		labels[fmt.Sprint("label-", n)] = "v"
	}
	spec := &tendv1.Spec{Argv: []string{"/bin/true", strings.Repeat("é", 2000)}, Dir: "/", Env: map[string]string{"SECRET": "hunter2"}, Labels: labels}
	proctest.Value(c.Start(t.Context(), connect.NewRequest(&tendv1.StartRequest{Spec: spec})))(t)
	m := watching(t, url)()
	if len(m.GetProcesses()) != 1 {
		t.Fatalf("%v", m)
	}
	p := m.GetProcesses()[0]
	if n := len(p.GetCommand()); n > 1<<10 || n < 1<<9 || len(p.GetLabels()) != 16 {
		t.Errorf("the command has %d bytes, and there are %d labels", n, len(p.GetLabels()))
	}
	if text := m.String(); strings.Contains(text, "hunter2") {
		t.Error("the environment is in the overview")
	}
}

func TestAnOverviewGoesAwayWithTheServer(t *testing.T) {
	_, url, face := serveFace(t, native.Config{Heartbeat: time.Millisecond})
	next := watching(t, url)
	next()
	proctest.Must(t, face.Close())
	if m := next(); !m.GetGoingAway() {
		t.Errorf("it ends with %v", m)
	}
}

func TestTheOverviewShowsWhatASessionUses(t *testing.T) {
	var pid atomic.Int64
	var cpu atomic.Int64
	used := func() map[int]native.Use {
		return map[int]native.Use{int(pid.Load()): {CPU: time.Duration(cpu.Add(int64(time.Hour))), Memory: 5 << 20}}
	}
	c, url, _ := serveFace(t, native.Config{Usage: used})
	sel := start(t, c, "exec sleep 1000")
	pid.Store(int64(proctest.Value(c.Get(t.Context(), connect.NewRequest(&tendv1.GetRequest{Process: sel})))(t).Msg.GetInfo().GetPid()))
	next := watching(t, url)
	for {
		for _, p := range next().GetProcesses() {
			if p.GetId() == sel.GetId() && p.GetMemory() == 5<<20 && p.GetCpu() > 1000 {
				return
			}
		}
	}
}
