package usage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

const (
	// MaxSince is how far back points are kept.
	MaxSince = 24 * time.Hour
	// maxNames bounds those of a request.
	maxNames = 100
	// startEases is how long after a start is looked what runs: what ends before is not measured.
	startEases = time.Second
	// measured is how long it takes to measure what is used now.
	measured = time.Second
)

// Config of the part. Manager and Dir are needed.
type Config struct {
	Manager process.Manager
	// Driver has the sandboxes, and Services lists the services. nil: there are none.
	Driver   driver.Driver
	Services func(context.Context) (*tendv1.ListServicesResponse, error)
	// Dir is made if it is missing.
	Dir string
	Log *slog.Logger // nil: nothing is logged
}

// Usage is the part.
type Usage struct {
	c       Config
	trouble error // why nothing is kept

	mu     sync.Mutex
	points *points // guarded by mu; nil: there is trouble

	looking sync.Mutex // one measures what is used now, and others have it
	now     []*tendv1.Usage
	at      time.Time
}

var _ module.Runner = (*Usage)(nil)

// Open returns the part. If its file is not usable, nothing is kept, and the log and each request
// for what was say why.
func Open(c Config) *Usage {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	u := &Usage{c: c}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		u.trouble = err
	} else if u.points, err = openPoints(filepath.Join(c.Dir, "points")); err != nil {
		u.trouble = err
	}
	if u.trouble != nil {
		u.trouble = fmt.Errorf("%w: what was used is not kept: %w", process.ErrUnavailable, u.trouble)
		c.Log.Error("what is used is not kept", "err", u.trouble)
	}
	return u
}

// Name implements module.Part.
func (*Usage) Name() string { return "usage" }

// Run implements module.Runner.
func (u *Usage) Run(ctx context.Context) error {
	if u.trouble != nil {
		<-ctx.Done()
		return nil
	}
	defer u.points.close()
	var before *sight
	failing := false
	for {
		now, err := u.look(ctx, before)
		if err == nil && before != nil && now.busy() {
			err = u.keep(now.since(before))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failing { // once
			u.c.Log.Warn("what is used is not measured", "err", err)
		}
		if failing = err != nil; failing {
			now = nil
		}
		if before = now; now == nil || now.busy() {
			// On the minute: each has one point.
			if !backoff.Wait(ctx, time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) {
				return nil
			}
			continue
		}
		if before = nil; !u.rest(ctx) {
			return nil
		}
	}
}

// rest waits until something starts; false: ctx has ended.
func (u *Usage) rest(ctx context.Context) bool {
	starts, err := u.c.Manager.Watch(ctx)
	if err != nil {
		return backoff.Wait(ctx, time.Minute)
	}
	defer starts.Close()
	if now, err := u.look(ctx, nil); err != nil || now.busy() { // it has started before the watch
		return backoff.Wait(ctx, time.Minute)
	}
	select {
	case <-starts.Ready():
		return backoff.Wait(ctx, startEases) // who starts one program after the other is not looked at each time
	case <-ctx.Done():
		return false
	}
}

// keep writes the points of one look.
func (u *Usage) keep(all []*tendv1.Usage) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	there := map[string]bool{}
	for _, one := range all {
		there[key(one)] = true
		for _, m := range one.GetPoints() {
			p := point{At: uint32(m.GetTime().GetSeconds()), CPU: m.GetCpu(), Memory: uint64(m.GetMemory()), Received: unknown, Sent: unknown}
			if m.Received != nil {
				p.Received, p.Sent = uint64(m.GetReceived()), uint64(m.GetSent())
			}
			if err := u.points.add(key(one), p); err != nil {
				return err
			}
		}
	}
	return u.points.keep(func(key string) bool { return there[key] })
}

// key names a subject in the file.
func key(m *tendv1.Usage) string {
	switch m.GetKind() {
	case kindSandbox:
		return kindSandbox + " " + m.GetId()
	case kindService:
		return kindService + " " + m.GetName()
	}
	return kindMachine
}

// Usage answers the call of the API.
func (u *Usage) Usage(ctx context.Context, req *tendv1.UsageRequest) (*tendv1.UsageResponse, error) {
	since := req.GetSince().AsDuration()
	switch {
	case len(req.GetNames()) > maxNames:
		return nil, &process.InvalidError{Field: "names", Reason: fmt.Sprintf("has %d; the limit is %d", len(req.GetNames()), maxNames)}
	case req.GetSince() != nil && (req.GetSince().CheckValid() != nil || since <= 0 || since > MaxSince):
		return nil, &process.InvalidError{Field: "since", Reason: fmt.Sprintf("is %v; more than 0 and at most %v is kept", since, MaxSince)}
	case since > 0 && u.trouble != nil:
		return nil, u.trouble
	}
	var all []*tendv1.Usage
	var err error
	if since == 0 {
		all, err = u.current(ctx)
	} else {
		var now *sight
		if now, err = u.look(ctx, nil); err == nil {
			all = now.subjects()
		}
	}
	if err != nil {
		return nil, err
	}
	if all, err = chosen(all, req.GetNames()); err != nil || since == 0 {
		return &tendv1.UsageResponse{Usages: all}, err
	}
	m := &tendv1.UsageResponse{Usages: all, Step: durationpb.New(minute * time.Second)}
	if since > time.Hour {
		m.Step = durationpb.New(five * time.Second)
	}
	return m, u.fill(all, since)
}

// fill gives subjects their points.
func (u *Usage) fill(all []*tendv1.Usage, since time.Duration) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for _, one := range all {
		kept, err := u.points.since(key(one), now.Add(-since), now)
		if err != nil {
			return fmt.Errorf("%w: read what was used: %w", process.ErrUnavailable, err)
		}
		for _, p := range kept {
			m := &tendv1.UsagePoint{Time: &timestamppb.Timestamp{Seconds: int64(p.At)}, Cpu: p.CPU, Memory: int64(p.Memory)}
			if p.Received != unknown {
				m.Received, m.Sent = proto.Int64(int64(p.Received)), proto.Int64(int64(p.Sent))
			}
			one.Points = append(one.Points, m)
		}
	}
	return nil
}

// current measures what is used now, for all that ask meanwhile.
func (u *Usage) current(ctx context.Context) ([]*tendv1.Usage, error) {
	u.looking.Lock()
	defer u.looking.Unlock()
	if u.now != nil && time.Since(u.at) < measured {
		return u.now, nil
	}
	before, err := u.look(ctx, nil)
	if err != nil {
		return nil, err
	}
	if !backoff.Wait(ctx, measured) {
		return nil, ctx.Err()
	}
	now, err := u.look(ctx, before)
	if err != nil {
		return nil, err
	}
	u.now, u.at = now.since(before), time.Now()
	return u.now, nil
}

// chosen are the subjects with these names; none: all. One that is not there is process.ErrNotFound.
func chosen(all []*tendv1.Usage, names []string) (out []*tendv1.Usage, err error) {
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		found := false
		for _, one := range all {
			_, short := config.SplitName(one.GetName())
			if name != "" && (name == one.GetName() || name == one.GetId() || one.GetKind() == kindService && name == short) {
				found = true
				if !slices.Contains(out, one) {
					out = append(out, one)
				}
			}
		}
		if !found {
			return nil, errtext.New(fmt.Sprintf("no sandbox and no service is called %q; machine is the whole machine",
				strings.ToValidUTF8(name[:min(len(name), 100)], "?")), process.ErrNotFound)
		}
	}
	return out, nil
}
