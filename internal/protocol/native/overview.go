package native

import (
	"context"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

const (
	// overviewPause is the time between two looks while nothing is known to happen,
	// and overviewLeast the least between two messages.
	overviewPause = time.Second
	overviewLeast = 500 * time.Millisecond
	// overviewPiece is how many processes one message has at most.
	overviewPiece = 1000
)

// overviews implements the OverviewService.
type overviews struct {
	looker    looker
	manager   process.Manager
	version   string
	heartbeat time.Duration
	stopping  <-chan struct{}
	measured  func(context.Context, *tendv1.UsageRequest) (*tendv1.UsageResponse, error)
}

func (o *overviews) Usage(ctx context.Context, req *connect.Request[tendv1.UsageRequest]) (*connect.Response[tendv1.UsageResponse], error) {
	if o.measured == nil {
		return nil, unsupported("usage")
	}
	m, err := o.measured(ctx, req.Msg)
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(m), nil
}

func (o *overviews) Watch(ctx context.Context, _ *connect.Request[tendv1.WatchOverviewRequest],
	stream *connect.ServerStream[tendv1.WatchOverviewResponse]) error {
	var sent overview
	last := time.Now() // of the last message
	for first := true; ; first = false {
		seen, err := o.looker.collect(ctx)
		if err != nil {
			return wireError(err)
		}
		msgs := difference(&sent, seen)
		if first {
			msgs[0].Full, msgs[0].Version = true, o.version
		} else if !msgs[0].tells() && slices.Equal(sent.missing, seen.missing) {
			if msgs = nil; time.Since(last) >= o.heartbeat {
				msgs = []overviewMessage{{&tendv1.WatchOverviewResponse{Heartbeat: true}}}
			}
		}
		for _, m := range msgs {
			m.Now = tendpb.Time(time.Now())
			if !m.Heartbeat {
				m.Missing = seen.missing
			}
			if err := stream.Send(m.WatchOverviewResponse); err != nil {
				return err
			}
			last = time.Now()
		}
		sent = *seen
		if done, err := o.rest(ctx); err != nil {
			return wireError(err)
		} else if done {
			return stream.Send(&tendv1.WatchOverviewResponse{GoingAway: true})
		}
	}
}

// rest waits until it is time to look again. done: the server stops.
func (o *overviews) rest(ctx context.Context) (done bool, err error) {
	least := time.NewTimer(overviewLeast)
	defer least.Stop()
	select {
	case <-least.C:
	case <-o.stopping:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	happens, err := o.manager.Watch(ctx)
	if err != nil {
		return false, err
	}
	defer happens.Close()
	most := time.NewTimer(overviewPause - overviewLeast)
	defer most.Stop()
	select {
	case <-happens.Ready():
	case <-most.C:
	case <-o.stopping:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// overview is everything at one moment.
type overview struct {
	processes map[string]*tendv1.OverviewProcess
	sandboxes map[string]*tendv1.OverviewSandbox
	services  map[string]*tendv1.ServiceStatus
	order     []string // the IDs of processes, the oldest of each place first
	missing   []string
}

type overviewMessage struct{ *tendv1.WatchOverviewResponse }

func (m overviewMessage) tells() bool {
	return len(m.Processes)+len(m.Sandboxes)+len(m.Services)+len(m.ProcessesGone)+len(m.SandboxesGone)+len(m.ServicesGone) > 0
}

// difference is what makes now of before, as one message at least.
func difference(before, now *overview) []overviewMessage {
	m := overviewMessage{&tendv1.WatchOverviewResponse{}}
	for _, id := range slices.Sorted(maps.Keys(now.sandboxes)) {
		if old := before.sandboxes[id]; old == nil || !proto.Equal(old, now.sandboxes[id]) {
			m.Sandboxes = append(m.Sandboxes, now.sandboxes[id])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.services)) {
		if old := before.services[name]; old == nil || !sameService(old, now.services[name]) {
			m.Services = append(m.Services, now.services[name])
		}
	}
	m.ProcessesGone, m.SandboxesGone, m.ServicesGone = gone(before.processes, now.processes), gone(before.sandboxes, now.sandboxes),
		gone(before.services, now.services)
	msgs := []overviewMessage{m}
	for _, id := range now.order {
		p := now.processes[id]
		if old := before.processes[id]; old != nil && proto.Equal(old, p) {
			continue
		}
		if len(m.Processes) == overviewPiece {
			m = overviewMessage{&tendv1.WatchOverviewResponse{}}
			msgs = append(msgs, m)
		}
		m.Processes = append(m.Processes, p)
	}
	return msgs
}

// sameService leaves out what only time changes.
func sameService(a, b *tendv1.ServiceStatus) bool {
	if a.GetPhase() != b.GetPhase() || a.GetRun() != b.GetRun() {
		return false
	}
	was, is := proto.CloneOf(a), proto.CloneOf(b)
	was.Age, was.Next, is.Age, is.Next = nil, nil, nil, nil
	return proto.Equal(was, is)
}

func gone[T any](before, now map[string]T) (keys []string) {
	for key := range before {
		if _, ok := now[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
