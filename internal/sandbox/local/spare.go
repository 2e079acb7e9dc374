package local

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
)

// A spare is a sandbox for which nobody has asked yet: its box and its network are there,
// nothing has run in it, and it has no record. A creation that asks for such a one writes
// the record and is over, and the first program inside waits for no network.
//
// A server that dies leaves of it what a creation leaves that was cut short: a directory
// without a record, and a box without a sandbox. The next server removes both.
type spare struct {
	shape shape
	s     *sandbox
	spec  box.Spec  // of its box
	since time.Time // when it was made
}

// shape is what a spare has to have in common with the sandbox that is asked for.
type shape struct {
	layer, origin layer.ID
	size          driver.Size
	disk          int64
	network       driver.NetworkMode
	uidBase       uint32
}

// spares holds at most one spare, in the shape that was asked for last.
type spares struct {
	changed chan struct{}
	started atomic.Int64  // when something was started inside a sandbox last: Unix time, ns
	stays   time.Duration // spareStays

	mu      sync.Mutex
	asked   bool
	shape   shape     // that was asked for last; guarded by mu
	created time.Time // when; guarded by mu
	ready   *spare    // guarded by mu
	unfit   []*spare  // to be ended; guarded by mu
}

const (
	// spareAfter is how long nothing must have been created or started before a spare is
	// made, which would be in its way; spareLatest is how long that may take.
	spareAfter  = 20 * time.Millisecond
	spareLatest = time.Second
	// spareFor is how long a spare waits for a creation.
	spareFor = 10 * time.Minute
	// spareStays is how long a spare is left alone by creations in another shape.
	spareStays = 10 * time.Second
	// spareEnds bounds how long the end of a spare may take: that of the server may have to
	// wait for it.
	spareEnds = 2 * time.Second
)

// spareShape is the shape of a spare for a record; false: none can be for it. Rules of the
// network have to be there from its first moment on.
func spareShape(r *record) (shape, bool) {
	ok := len(r.Shares) == 0 && len(r.Volumes) == 0 && len(r.Allow) == 0 && len(r.Deny) == 0
	return shape{r.Layer, r.Origin, r.Size, r.Disk, r.Network, r.UIDBase}, ok
}

// takeSpare returns the spare with this record, which has no name of its own; nil: there
// is none for it. The caller has it appear.
func (d *Driver) takeSpare(rec record) *sandbox {
	want, ok := spareShape(&rec)
	d.spares.mu.Lock()
	sp := d.spares.ready
	if !ok || sp == nil || sp.shape != want {
		d.spares.mu.Unlock()
		return nil
	}
	d.spares.ready = nil
	d.spares.mu.Unlock()

	s := sp.s
	s.mu.Lock()
	in, now := s.box, s.rec
	s.mu.Unlock()
	rec.ID, rec.Name, rec.Boot, rec.Enforced = now.ID, now.Name, now.Boot, now.Enforced
	// What is there now may be more or less than when it was made.
	spec, size, err := d.newSandbox(rec).wanted()
	if err != nil || size != now.Enforced || !spec.Equal(&sp.spec) || alive(in) != nil {
		d.spares.mu.Lock()
		d.spares.unfit = append(d.spares.unfit, sp)
		d.spares.mu.Unlock()
		d.spares.wake()
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec, s.active = rec, time.Now()
	d.boxes.Changed(&rec.Record)
	s.meter.reset()
	return s
}

// appear is the end of the creation of a spare that was taken.
func (s *sandbox) appear(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	ctx = context.WithoutCancel(ctx)
	err := errors.Join(s.tell(ctx), s.openDoorOfSpare())
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
	want, ok := spareShape(&rec)
	if !ok || !d.cfg.Spare {
		return
	}
	p := &d.spares
	p.mu.Lock()
	p.asked, p.shape, p.created = true, want, time.Now()
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

// dropSpare ends the spare: it would hold files that are being deleted.
func (d *Driver) dropSpare() {
	p := &d.spares
	p.mu.Lock()
	p.asked = false
	p.mu.Unlock()
	p.wake()
}

// keepSpare makes spares and ends them, until ctx ends. The last one is then left to the
// next server, or to the keeper if that ends, too.
func (d *Driver) keepSpare(ctx context.Context) {
	p := &d.spares
	for {
		wait := p.pass(time.Now())
		d.endUnfit(ctx)
		if wait == 0 {
			d.makeSpare(ctx)
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
	age := time.Duration(0)
	if p.ready != nil {
		age = now.Sub(p.ready.since)
	}
	switch {
	case !p.asked:
		if p.ready != nil {
			p.unfit, p.ready = append(p.unfit, p.ready), nil
		}
		return time.Hour
	case p.ready != nil && p.ready.shape == p.shape:
		return spareFor - now.Sub(p.created)
	case p.ready != nil && age < p.stays:
		return p.stays - age
	}
	idle := min(now.Sub(p.created), now.Sub(time.Unix(0, p.started.Load())))
	if now.Sub(p.created) >= spareLatest {
		return 0
	}
	return max(0, spareAfter-idle)
}

// makeSpare makes one in the shape that was asked for last.
func (d *Driver) makeSpare(ctx context.Context) {
	p := &d.spares
	p.mu.Lock()
	if p.ready != nil {
		p.unfit, p.ready = append(p.unfit, p.ready), nil
	}
	sp := &spare{shape: p.shape, since: time.Now()}
	p.mu.Unlock()
	d.endUnfit(ctx)
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
	if p.ready != nil { // of another Run
		p.unfit = append(p.unfit, p.ready)
	}
	p.ready = sp
}

func (d *Driver) makeSpareOf(ctx context.Context, sp *spare) error {
	rec := record{Record: sandboxrecord.NewRecord(d.newID(), &driver.Spec{}), Layer: sp.shape.layer, Origin: sp.shape.origin,
		Size: sp.shape.size, Disk: sp.shape.disk, Network: sp.shape.network, UIDBase: sp.shape.uidBase}
	s := d.newSandbox(rec)
	s.life.Lock()
	defer s.life.Unlock()
	s.hidden = true
	if err := d.enter(s, &rec); err != nil {
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
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), spareEnds)
		defer cancel()
		return s.abandon(late, err)
	}
	sp.s = s
	return nil
}

// endUnfit ends the spares that nobody needs, also when ctx is over.
func (d *Driver) endUnfit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spareEnds)
	defer cancel()
	p := &d.spares
	p.mu.Lock()
	unfit := p.unfit
	p.unfit = nil
	p.mu.Unlock()
	for _, sp := range unfit {
		sp.s.life.Lock()
		err := sp.s.abandon(ctx, nil)
		sp.s.life.Unlock()
		if err != nil {
			d.log.Warn("a sandbox that was kept ready has not ended", slog.Any("err", err))
		}
	}
}
