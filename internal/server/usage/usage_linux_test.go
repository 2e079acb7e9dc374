package usage

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestWhatServicesUse(t *testing.T) {
	m := testkeeper.New(t)
	busy := proctest.Value(proctest.Start(t, m, process.Spec{Shell: "while :; do :; done"}).Info(t.Context()))(t)
	var all []*tendv1.ServiceStatus
	u := Open(Config{Manager: m, Dir: t.TempDir(), Services: func(context.Context) (*tendv1.ListServicesResponse, error) {
		return &tendv1.ListServicesResponse{Services: all}, nil
	}})
	defer u.points.close()
	before := proctest.Value(u.look(t.Context(), nil))(t)
	if !before.busy() {
		t.Error("a process runs, and it is said that nothing does")
	}
	all = []*tendv1.ServiceStatus{{Name: "shop/web", Pid: uint32(busy.PID)}, {Name: "idle"}}
	// It ran before, and what it had used then is not known.
	first := proctest.Value(u.look(t.Context(), before))(t)
	if got := first.since(before); len(got) != 3 || len(got[0].Points) != 1 || len(got[1].Points) != 0 {
		t.Errorf("at first: %v", got)
	}
	var got []*tendv1.Usage
	for now := first; ; now = proctest.Value(u.look(t.Context(), first))(t) {
		if got = now.since(first); len(got[1].Points) == 1 && got[1].Points[0].Cpu > 0 {
			break
		}
	}
	machine, web := got[0], got[1].Points[0]
	if machine.Kind != "machine" || machine.MemoryTotal < 1<<20 || machine.Points[0].Memory < 1<<20 || machine.Points[0].Received == nil {
		t.Errorf("the machine: %v", machine)
	}
	if web.Memory < 1<<12 || web.Received != nil || web.Sent != nil || len(got[2].Points) != 0 {
		t.Errorf("services: %v", got[1:])
	}
	// Kept, it is found by its name within the project, until it is declared no more.
	proctest.Must(t, u.keep(got))
	ask := func(names ...string) ([]*tendv1.Usage, error) {
		a, err := u.Usage(t.Context(), &tendv1.UsageRequest{Names: names, Since: durationpb.New(time.Hour)})
		return a.GetUsages(), err
	}
	for _, name := range []string{"web", "shop/web"} {
		if a := proctest.Value(ask(name, "machine"))(t); len(a) != 2 || len(a[0].Points) != 1 || a[0].Points[0].Cpu != web.Cpu || len(a[1].Points) != 1 {
			t.Errorf("asked for %s: %v", name, a)
		}
	}
	if a, err := ask("nobody"); !errors.Is(err, process.ErrNotFound) || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("%v, %v", a, err)
	}
	all = nil
	proctest.Must(t, u.keep(proctest.Value(u.look(t.Context(), first))(t).since(first)))
	all = []*tendv1.ServiceStatus{{Name: "shop/web"}}
	if a := proctest.Value(ask("web"))(t); len(a[0].Points) != 0 {
		t.Errorf("declared anew, it has the points of the former: %v", a)
	}
	now := proctest.Value(u.Usage(t.Context(), &tendv1.UsageRequest{Names: []string{"machine"}}))(t)
	if len(now.Usages) != 1 || len(now.Usages[0].Points) != 1 || now.Usages[0].Cpus < 1 || now.Step != nil {
		t.Errorf("now: %v", now)
	}
}

func TestRequestsThatCannotBeAnswered(t *testing.T) {
	u := Open(Config{Manager: testkeeper.New(t), Dir: filepath.Join("/proc", "nowhere")})
	for field, req := range map[string]*tendv1.UsageRequest{
		"names": {Names: make([]string, maxNames+1)},
		"since": {Since: durationpb.New(MaxSince + 1)},
	} {
		var invalid *process.InvalidError
		if _, err := u.Usage(t.Context(), req); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := u.Usage(t.Context(), &tendv1.UsageRequest{Since: durationpb.New(-1)}); err == nil {
		t.Error("the future is answered")
	}
	if _, err := u.Usage(t.Context(), &tendv1.UsageRequest{Since: durationpb.New(1)}); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("without a file: %v", err)
	}
	proctest.Value(u.Usage(t.Context(), &tendv1.UsageRequest{}))(t)
}

// resting is a manager on which nothing runs until something is started. It counts how often it is asked.
type resting struct {
	process.Manager
	process.Watchers
	mu   sync.Mutex
	live []process.Info
	asks int
}

func (r *resting) List(context.Context, process.Filter) ([]process.Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks++
	return r.live, nil
}

func (r *resting) Watch(context.Context) (process.Watcher, error) { return r.Open(), nil }

func (r *resting) set(live ...process.Info) (asks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, asks, r.asks = live, r.asks, 0
	return asks
}

// While nothing runs nothing is done. What runs is measured each minute, and a pause is a gap.
func TestALookAMinute(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &resting{}
		u := Open(Config{Manager: r, Dir: dir})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { proctest.Must(t, u.Run(ctx)) })
		time.Sleep(10 * time.Hour)
		if asks := r.set(process.Info{ID: "p"}); asks > 2 {
			t.Errorf("while nothing ran it was asked %d times", asks)
		}
		r.Publish(process.Event{Kind: process.EventStarted, ID: "p"})
		time.Sleep(10*time.Minute + time.Second)
		r.set()
		time.Sleep(20 * time.Minute)
		if asks := r.set(process.Info{ID: "q"}); asks > 3 {
			t.Errorf("while nothing ran again it was asked %d times", asks)
		}
		r.Publish(process.Event{Kind: process.EventStarted, ID: "q"})
		time.Sleep(5*time.Minute + time.Second)
		m := proctest.Value(u.Usage(ctx, &tendv1.UsageRequest{Since: durationpb.New(time.Hour)}))(t)
		var gaps []time.Duration
		points := m.GetUsages()[0].GetPoints()
		for i := range points[1:] {
			if d := points[i+1].Time.AsTime().Sub(points[i].Time.AsTime()); d != time.Minute {
				gaps = append(gaps, d)
			}
		}
		if n := len(points); n < 13 || n > 15 || len(gaps) != 1 || gaps[0] < 20*time.Minute {
			t.Errorf("%d points, with gaps of %v", n, gaps)
		}
		stop()
		wg.Wait()
	})
}
