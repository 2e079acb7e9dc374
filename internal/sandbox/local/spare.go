package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// spares holds those in the shapes that were asked for last.
type spares struct {
	changed chan struct{}
	patience
	started atomic.Int64  // when something was started inside a sandbox last: Unix time, ns
	stays   time.Duration // spareStays
	shapes  int           // so many have spares at most
	most    int           // so many are kept at most

	ending sync.Mutex // held while those that are unfit are ended

	mu     sync.Mutex
	making map[shape]int // creations that are not over; guarded by mu
	pools  []*pool       // that asked for last at the end; guarded by mu
	unfit  []*spare      // to be ended; guarded by mu
}

// pool has the spares of one shape: as many as were asked for at once, in the last minute or before. What guards
// the pools guards all in it.
type pool struct {
	shape   shape
	created time.Time // when one was created last
	wanted  int       // how many are kept
	peak    time.Time // when as many were asked for
	ready   []*spare  // the newest last
	coming  *coming   // nil: none is being made
}

// coming is a spare that is being made.
type coming struct {
	made   chan struct{} // closed when it is, or will not be
	wanted bool          // a creation waits for it
}

// of is the pool of a shape; nil: there is none. p.mu is held.
func (p *spares) of(want shape) *pool {
	for _, q := range p.pools {
		if q.shape == want {
			return q
		}
	}
	return nil
}

// drop ends a pool. p.mu is held.
func (p *spares) drop(q *pool) {
	p.unfit, q.ready = append(p.unfit, q.ready...), nil
	p.pools = slices.DeleteFunc(p.pools, func(other *pool) bool { return other == q })
}

// patience is how long nothing must have been created or started before a spare is made, which would be in its way, and how
// long that may take. For the first it is another time, if no creation goes on.
type patience struct{ first, after, latest time.Duration }

var (
	// With a processor to spare it is made as soon as the first program of the sandbox that was just created runs: who creates
	// one after the other finds one ready, or nearly so.
	sparePatience = func() patience {
		p := patience{20 * time.Millisecond, 20 * time.Millisecond, time.Second}
		if runtime.NumCPU() > 1 {
			p.first = 5 * time.Millisecond
		}
		return p
	}()
	// What starts in a warm one takes a second of work, which the sandbox that was just created does, too.
	warmPatience = patience{2 * time.Second, 2 * time.Second, 20 * time.Second}
)

func newSpares(p patience, shapes, most int) spares {
	return spares{changed: make(chan struct{}, 1), stays: spareStays, patience: p, shapes: min(shapes, most), most: most,
		making: map[shape]int{}}
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
	// spareShapes are the shapes of which some are kept ready.
	spareShapes = 4
	// spareStays is how long a spare is left alone by creations in other shapes.
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
	if s = d.takeSpare(ctx, rec); s != nil {
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
	p, want, ok := d.sparesFor(rec)
	if !ok || !d.cfg.Spare {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.making[want]++
	if q := p.of(want); q != nil && p.making[want] >= q.wanted {
		q.wanted, q.peak = min(p.making[want], p.most), time.Now()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.making[want]--; p.making[want] == 0 {
			delete(p.making, want)
			p.wake()
		}
	}
}

// takeSpare returns a spare with this record, which has no name of its own; nil: there
// is none for it. The caller has it appear. If one is being made, and no other creation waits for it, that is
// there before one that begins now.
func (d *Driver) takeSpare(ctx context.Context, rec record) *sandbox {
	p, want, ok := d.sparesFor(&rec)
	for waited := false; ok; {
		p.mu.Lock()
		q := p.of(want)
		if q == nil {
			p.mu.Unlock()
			return nil
		}
		if last := len(q.ready) - 1; last >= 0 {
			sp := q.ready[last]
			q.ready = q.ready[:last]
			p.mu.Unlock()
			if s := d.become(sp, rec); s != nil {
				return s
			}
			p.mu.Lock()
			p.unfit = append(p.unfit, sp)
			p.mu.Unlock()
			p.wake()
			continue
		}
		c := q.coming
		if ok = c != nil && !c.wanted && !waited; ok {
			c.wanted, waited = true, true
		}
		p.mu.Unlock()
		if ok {
			ok = p.await(ctx, c)
		}
	}
	return nil
}

// await reports whether a spare is made in time.
func (p *spares) await(ctx context.Context, c *coming) bool {
	late := time.NewTimer(p.latest)
	defer late.Stop()
	select {
	case <-c.made:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
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
	now, q := time.Now(), p.of(want)
	if q == nil && (len(p.pools) < p.shapes || p.give(now)) {
		q = &pool{shape: want, wanted: max(1, min(p.making[want], p.most)), peak: now} // as many as are being asked for now
	}
	if q != nil {
		q.created = now
		p.pools = append(slices.DeleteFunc(p.pools, func(other *pool) bool { return other == q }), q)
	}
	p.mu.Unlock()
	p.wake()
}

// give ends the pool that was asked for least recently, for another shape, unless what is in it is new. p.mu is held.
func (p *spares) give(now time.Time) bool {
	q := p.pools[0]
	if n := len(q.ready); n > 0 && now.Sub(q.ready[n-1].since) < p.stays {
		return false
	}
	p.drop(q)
	return true
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
		for len(p.pools) > 0 {
			p.drop(p.pools[0])
		}
		p.mu.Unlock()
		p.wake()
	}
}

// endSpares ends them, and returns when none holds anything any more.
func (d *Driver) endSpares(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, p := range []*spares{&d.spares, &d.warm} {
		var making []*coming
		p.mu.Lock()
		for len(p.pools) > 0 {
			if c := p.pools[0].coming; c != nil {
				making = append(making, c)
			}
			p.drop(p.pools[0])
		}
		p.mu.Unlock()
		for _, c := range making {
			p.await(ctx, c)
		}
		d.endUnfit(ctx, p)
	}
}

// keepSpare makes spares and ends them, until ctx ends. The last one is then left to the
// next server, or to the keeper if that ends, too.
func (d *Driver) keepSpare(ctx context.Context, p *spares) {
	for {
		q, wait := p.pass(time.Now())
		d.endUnfit(ctx, p)
		if wait == 0 {
			d.makeSpare(ctx, p, q)
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

// pass finds out what no spare is needed for any more, and returns of what one is to be made next, and how long to
// wait before; 0: it is time.
func (p *spares) pass(now time.Time) (next *pool, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = time.Hour
	for len(p.pools) > 0 && now.Sub(p.pools[0].created) >= spareFor {
		p.drop(p.pools[0])
	}
	if len(p.pools) == 0 {
		return nil, wait
	}
	last := p.pools[len(p.pools)-1].created
	idle := min(now.Sub(last), now.Sub(time.Unix(0, p.started.Load())))
	if len(p.making) > 0 {
		idle = 0
	}
	wait = min(wait, spareFor-now.Sub(p.pools[0].created))
	room := p.most
	for _, q := range slices.Backward(p.pools) {
		if q.wanted > 1 && now.Sub(q.peak) >= spareEases {
			q.wanted, q.peak = q.wanted/2, now
		}
		if q.wanted > 1 {
			wait = min(wait, spareEases-now.Sub(q.peak))
		}
		wanted, kept := min(q.wanted, room), len(q.ready)
		room -= wanted
		if kept >= wanted {
			p.unfit = append(p.unfit, q.ready[:kept-wanted]...)
			q.ready = slices.Clone(q.ready[kept-wanted:])
			continue
		}
		after := p.after
		if kept == 0 && len(p.making) == 0 {
			after = p.first
		}
		left := max(0, after-idle)
		if now.Sub(q.created) >= p.latest {
			left = 0
		}
		if next == nil || left < wait {
			next, wait = q, min(wait, left)
		}
	}
	return next, wait
}

// makeSpare makes one of a pool.
func (d *Driver) makeSpare(ctx context.Context, p *spares, q *pool) {
	sp, c := &spare{shape: q.shape, since: time.Now()}, &coming{made: make(chan struct{})}
	p.mu.Lock()
	q.coming = c
	p.mu.Unlock()
	err := d.makeSpareOf(ctx, sp)
	defer close(c.made)
	p.mu.Lock()
	defer p.mu.Unlock()
	q.coming = nil
	switch {
	case err != nil:
		for len(p.pools) > 0 { // the next creation says what is wrong; if there are too many sandboxes, these are in its way
			p.drop(p.pools[0])
		}
		if ctx.Err() == nil {
			d.log.Info("no sandbox is kept ready", slog.Any("err", err))
		}
	case slices.Contains(p.pools, q):
		q.ready = append(q.ready, sp)
	default:
		p.unfit = append(p.unfit, sp)
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
	if n := len(d.containers.All()); n >= sandboxrecord.MaxSandboxes-2*mostSpares() {
		return fmt.Errorf("%w: there are %d sandboxes, and the places that are left are for those that are asked for", driver.ErrLimit, n)
	}
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
	p.ending.Lock()
	defer p.ending.Unlock()
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
