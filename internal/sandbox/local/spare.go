package local

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
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
	e2b           string // the template that programs inside are told; "": nothing is
	warm          string // what has started in it, as JSON; "": nothing has
}

// spareShape is the shape of a spare for a record; false: none can be for it. Rules of the
// network have to be there from its first moment on.
func spareShape(r *record) (shape, bool) {
	ok := len(r.Shares) == 0 && len(r.Volumes) == 0 && len(r.Allow) == 0 && len(r.Deny) == 0
	return shape{r.Layer, r.Origin, r.Size, r.Disk, r.Network, r.E2BTemplate, ""}, ok
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
	if err := s.enlist(); err != nil {
		return s.abandon(context.WithoutCancel(ctx), err)
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
		q.created, q.user = now, rec.User
		p.pools = append(slices.DeleteFunc(p.pools, func(other *pool) bool { return other == q }), q)
	}
	p.mu.Unlock()
	p.wake()
}

// dropSpare ends the spares: they would hold files that are being deleted.
func (d *Driver) dropSpare() {
	for _, p := range []*spares{&d.spares, &d.warm} {
		p.mu.Lock()
		p.dropAll()
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
		for _, q := range p.pools {
			if q.coming != nil {
				making = append(making, q.coming)
			}
		}
		p.dropAll()
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

// makeSpare makes one of a pool.
func (d *Driver) makeSpare(ctx context.Context, p *spares, q *pool) {
	sp, c := &spare{shape: q.shape, since: time.Now()}, &coming{made: make(chan struct{})}
	p.mu.Lock()
	q.coming = c
	user := q.user
	p.mu.Unlock()
	err := d.makeSpareOf(ctx, sp, user)
	defer close(c.made)
	p.mu.Lock()
	defer p.mu.Unlock()
	q.coming = nil
	switch {
	case err != nil:
		p.dropAll() // the next creation says what is wrong; if there are too many sandboxes, these are in its way
		if ctx.Err() == nil {
			d.log.Info("no sandbox is kept ready", slog.Any("err", err))
		}
	case slices.Contains(p.pools, q):
		q.ready = append(q.ready, sp)
	default:
		p.unfit = append(p.unfit, sp)
	}
}

// makeSpareOf makes it. user is whose account is looked up, as its creation and first program do.
func (d *Driver) makeSpareOf(ctx context.Context, sp *spare, user string) error {
	var in begun
	if sp.shape.warm != "" {
		if err := json.Unmarshal([]byte(sp.shape.warm), &in); err != nil {
			return err
		}
	}
	run := driver.RunConfig{User: cmp.Or(in.User, user), Dir: in.Dir, Env: in.Env}
	if n := len(d.containers.All()); n >= sandboxrecord.MaxSandboxes-2*mostSpares() {
		return fmt.Errorf("%w: there are %d sandboxes, and the places that are left are for those that are asked for", driver.ErrLimit, n)
	}
	rec := record{Record: sandboxrecord.NewRecord(d.newID(), &driver.Spec{Run: run, E2BTemplate: sp.shape.e2b}),
		Layer: sp.shape.layer, Origin: sp.shape.origin, Size: sp.shape.size, Disk: sp.shape.disk, Network: sp.shape.network,
		Way: d.way(), StartCommand: in.Start}
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
		_, err = s.openRoot() // for the first program
	}
	if err == nil {
		_, _ = s.account("") // for the first program; the creation says what is wrong
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
