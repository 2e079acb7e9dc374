package local

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// A spare is a sandbox for which nobody has asked yet: its container and its network are there,
// nothing has run in it, and it has no record. A creation that asks for such a one writes
// the record and is over, and the first program inside waits for no network.
//
// A server that dies leaves of it what a creation leaves that was cut short: a directory
// without a record, and a container without a sandbox. The next server removes both.
type spare struct {
	shape shape
	s     *sandbox
	spec  container.Spec // of its container
	since time.Time      // when it was made
}

// shape is what a spare has to have in common with the sandbox that is asked for.
type shape struct {
	layer, origin layer.ID
	size          driver.Size
	disk          int64
	network       driver.NetworkMode
	warm          string // what has started in it, as JSON; "": nothing has
}

// spares holds those in the shape that was asked for last: as many as were asked for at once, in the last minute or before.
type spares struct {
	changed chan struct{}
	patience
	started atomic.Int64  // when something was started inside a sandbox last: Unix time, ns
	stays   time.Duration // spareStays
	most    int           // so many are kept at most

	mu      sync.Mutex
	asked   bool
	shape   shape     // that was asked for last; guarded by mu
	created time.Time // when; guarded by mu
	making  int       // creations that are not over; guarded by mu
	wanted  int       // how many are kept; guarded by mu
	peak    time.Time // when as many were asked for; guarded by mu
	ready   []*spare  // of one shape, the newest last; guarded by mu
	unfit   []*spare  // to be ended; guarded by mu
}

// patience is how long nothing must have been created or started before a spare is made, which would be in its way, and how
// long that may take. For the first it is another time, if no creation goes on.
type patience struct{ first, after, latest time.Duration }

var (
	// With a processor to spare it is made while the sandbox that was just created starts its first program: who creates one
	// after the other finds one ready.
	sparePatience = func() patience {
		p := patience{20 * time.Millisecond, 20 * time.Millisecond, time.Second}
		if runtime.NumCPU() > 1 {
			p.first = 0
		}
		return p
	}()
	// What starts in a warm one takes a second of work, which the sandbox that was just created does, too.
	warmPatience = patience{2 * time.Second, 2 * time.Second, 20 * time.Second}
)

func newSpares(p patience, most int) spares {
	return spares{changed: make(chan struct{}, 1), stays: spareStays, patience: p, most: most, wanted: 1}
}

// mostSpares are 128, and fewer on a machine with less than 8 GiB: each takes less than 1 MiB, which is a 64th of its part.
func mostSpares() int { return max(1, min(128, int(memoryOfMachine()>>26))) }

const (
	// spareFor is how long a spare waits for a creation.
	spareFor = 10 * time.Minute
	// warmTime bounds how long it takes to warm one up: its files may come from a cold disk.
	warmTime = 2 * time.Minute
	// spareEases is how long as many are kept as were asked for at once; then half of them.
	spareEases = time.Minute
	// spareStays is how long a spare is left alone by creations in another shape.
	spareStays = 10 * time.Second
	// spareEnds bounds how long the end of a spare may take: that of the server may have to
	// wait for one.
	spareEnds = 2 * time.Second
)

// spareShape is the shape of a spare for a record; false: none can be for it. Rules of the
// network have to be there from its first moment on.
func spareShape(r *record) (shape, bool) {
	ok := len(r.Shares) == 0 && len(r.Volumes) == 0 && len(r.Allow) == 0 && len(r.Deny) == 0
	return shape{r.Layer, r.Origin, r.Size, r.Disk, r.Network, ""}, ok
}

// begun is what there is in a warm spare.
type begun struct {
	User, Dir, Start string
	Env              map[string]string
}

// sparesFor returns the spares that a record's sandbox may be one of, and their shape; false: none can be for it. Those in which
// something has started are kept beside the others, so that creations of both kinds do not end each other's.
func (d *Driver) sparesFor(r *record) (*spares, shape, bool) {
	want, ok := spareShape(r)
	if d.cfg.Warm == nil || r.StartCommand == "" || r.StartCommand != d.cfg.WarmStart {
		return &d.spares, want, ok
	}
	warm, err := json.Marshal(begun{r.User, r.Dir, r.StartCommand, r.Env})
	want.warm = string(warm)
	return &d.warm, want, ok && err == nil
}

// takeOrCreate returns the sandbox of a record without a name: a spare, if there is one for it.
func (d *Driver) takeOrCreate(ctx context.Context, rec record) (s *sandbox, err error) {
	defer d.asking(&rec)()
	if s = d.takeSpare(rec); s != nil {
		err = s.appear(ctx)
	} else {
		s, err = d.create(ctx, rec)
	}
	if err == nil {
		d.wantSpare(rec)
	}
	return s, err
}

// asking notes that a sandbox is asked for which a spare can be. over is called when it is there.
func (d *Driver) asking(rec *record) (over func()) {
	p, _, ok := d.sparesFor(rec)
	if !ok || !d.cfg.Spare {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.making++; p.making >= p.wanted {
		p.wanted, p.peak = min(p.making, p.most), time.Now()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.making--; p.making == 0 {
			p.wake()
		}
	}
}

// takeSpare returns a spare with this record, which has no name of its own; nil: there
// is none for it. The caller has it appear.
func (d *Driver) takeSpare(rec record) *sandbox {
	p, want, ok := d.sparesFor(&rec)
	for ok {
		p.mu.Lock()
		last := len(p.ready) - 1
		if last < 0 || p.ready[last].shape != want {
			p.mu.Unlock()
			return nil
		}
		sp := p.ready[last]
		p.ready = p.ready[:last]
		p.mu.Unlock()
		if s := d.become(sp, rec); s != nil {
			return s
		}
		p.mu.Lock()
		p.unfit = append(p.unfit, sp)
		p.mu.Unlock()
		p.wake()
	}
	return nil
}

// become makes a spare the sandbox of a record; nil: it cannot be that any more.
func (d *Driver) become(sp *spare, rec record) *sandbox {
	s := sp.s
	s.mu.Lock()
	in, now := s.container, s.rec
	s.mu.Unlock()
	rec.ID, rec.Name, rec.Boot, rec.Enforced, rec.UIDBase = now.ID, now.Name, now.Boot, now.Enforced, now.UIDBase
	// What is there now may be more or less than when it was made.
	spec, size, err := d.newSandbox(rec).wanted()
	if err != nil || size != now.Enforced || !spec.Equal(&sp.spec) || alive(in) != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec, s.active = rec, time.Now()
	d.containers.Changed(&rec.Record)
	s.meter.reset()
	return s
}

// appear is the end of the creation of a spare that was taken.
func (s *sandbox) appear(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	ctx = context.WithoutCancel(ctx)
	err := errors.Join(s.tell(ctx), s.openDoorsOfSpare())
	if err == nil {
		err = s.enlist()
	}
	if err != nil {
		return s.abandon(ctx, err)
	}
	return nil
}

// wantSpare notes what was created.
func (d *Driver) wantSpare(rec record) {
	p, want, ok := d.sparesFor(&rec)
	if !ok || !d.cfg.Spare {
		return
	}
	p.mu.Lock()
	now := time.Now()
	if p.shape != want { // as many as are being asked for now
		p.wanted, p.peak = max(1, min(p.making, p.most)), now
	}
	p.asked, p.shape, p.created = true, want, now
	p.mu.Unlock()
	p.wake()
}

// wake has keepSpare look again.
func (p *spares) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// dropSpare ends the spares: they would hold files that are being deleted.
func (d *Driver) dropSpare() {
	for _, p := range []*spares{&d.spares, &d.warm} {
		p.mu.Lock()
		p.asked = false
		p.mu.Unlock()
		p.wake()
	}
}

// keepSpare makes spares and ends them, until ctx ends. The last one is then left to the
// next server, or to the keeper if that ends, too.
func (d *Driver) keepSpare(ctx context.Context, p *spares) {
	for {
		wait := p.pass(time.Now())
		d.endUnfit(ctx, p)
		if wait == 0 {
			d.makeSpare(ctx, p)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-time.After(wait):
		}
	}
}

// pass finds out what no spare is needed for any more, and returns how long to wait before
// one may be made; 0: it is time.
func (p *spares) pass(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle := now.Sub(p.created); p.asked && idle >= spareFor {
		p.asked = false
	}
	if p.wanted > 1 && now.Sub(p.peak) >= spareEases {
		p.wanted, p.peak = p.wanted/2, now
	}
	kept, age := 0, time.Duration(0)
	if n := len(p.ready); n > 0 {
		age = now.Sub(p.ready[n-1].since)
		if p.ready[0].shape == p.shape {
			kept = n
		}
	}
	switch {
	case !p.asked:
		p.unfit, p.ready, p.wanted = append(p.unfit, p.ready...), nil, 1
		return time.Hour
	case kept >= p.wanted:
		p.unfit = append(p.unfit, p.ready[:kept-p.wanted]...)
		p.ready = slices.Clone(p.ready[kept-p.wanted:])
		wait := spareFor - now.Sub(p.created)
		if p.wanted > 1 {
			wait = min(wait, spareEases-now.Sub(p.peak))
		}
		return wait
	case kept == 0 && len(p.ready) > 0 && age < p.stays:
		return p.stays - age
	}
	idle, after := min(now.Sub(p.created), now.Sub(time.Unix(0, p.started.Load()))), p.after
	switch {
	case now.Sub(p.created) >= p.latest:
		return 0
	case p.making > 0:
		idle = 0
	case kept == 0:
		after = p.first
	}
	return max(0, after-idle)
}

// makeSpare makes one in the shape that was asked for last.
func (d *Driver) makeSpare(ctx context.Context, p *spares) {
	p.mu.Lock()
	sp := &spare{shape: p.shape, since: time.Now()}
	p.leave(sp.shape)
	p.mu.Unlock()
	d.endUnfit(ctx, p)
	err := d.makeSpareOf(ctx, sp)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.asked = p.shape != sp.shape // the next creation says what is wrong
		if ctx.Err() == nil {
			d.log.Info("no sandbox is kept ready", slog.Any("err", err))
		}
		return
	}
	p.leave(sp.shape) // those of another Run
	p.ready = append(p.ready, sp)
}

// leave leaves none ready in another shape. p.mu is held.
func (p *spares) leave(s shape) {
	if len(p.ready) > 0 && p.ready[0].shape != s {
		p.unfit, p.ready = append(p.unfit, p.ready...), nil
	}
}

func (d *Driver) makeSpareOf(ctx context.Context, sp *spare) error {
	var in begun
	if sp.shape.warm != "" {
		if err := json.Unmarshal([]byte(sp.shape.warm), &in); err != nil {
			return err
		}
	}
	run := driver.RunConfig{User: in.User, Dir: in.Dir, Env: in.Env}
	rec := record{Record: sandboxrecord.NewRecord(d.newID(), &driver.Spec{Run: run}), Layer: sp.shape.layer, Origin: sp.shape.origin,
		Size: sp.shape.size, Disk: sp.shape.disk, Network: sp.shape.network, Way: d.way()}
	d.giveIDs(&rec)
	s := d.newSandbox(rec)
	s.life.Lock()
	defer s.life.Unlock()
	s.hidden = true
	if err := d.enter(s, &rec); err != nil {
		d.ids.free(rec.UIDBase)
		return err
	}
	err := s.make(ctx)
	if err == nil {
		err = s.network(ctx)
	}
	if err == nil {
		_, err = s.openRoot() // for its users and the first program
	}
	if err == nil {
		sp.spec, _, err = s.wanted()
	}
	if err == nil && in.Start != "" {
		err = s.warmUp(ctx)
	}
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), spareEnds)
		defer cancel()
		return s.abandon(late, err)
	}
	sp.s = s
	return nil
}

// warmUp starts in a spare what the start command would. s.life is held.
func (s *sandbox) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	warming := func(on bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.warming = on
	}
	warming(true)
	defer warming(false)
	s.warm = true
	return s.d.cfg.Warm(ctx, s.id, s)
}

// endUnfit ends the spares that nobody needs: one of them also when ctx is over. Those that are left then the next server ends.
func (d *Driver) endUnfit(ctx context.Context, p *spares) {
	p.mu.Lock()
	unfit := p.unfit
	p.unfit = nil
	p.mu.Unlock()
	for i, sp := range unfit {
		if i > 0 && ctx.Err() != nil {
			return
		}
		if err := sp.end(ctx); err != nil {
			d.log.Warn("a sandbox that was kept ready has not ended", slog.Any("err", err))
		}
	}
}

func (sp *spare) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spareEnds)
	defer cancel()
	sp.s.life.Lock()
	defer sp.s.life.Unlock()
	return sp.s.abandon(ctx, nil)
}
