//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// Start implements process.Manager.
func (m *Manager) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	return m.start(ctx, spec, m.machine)
}

func (m *Manager) start(ctx context.Context, spec process.Spec, root Root) (process.Process, error) {
	if spec.ID == "" {
		spec.ID = process.NewID()
	}
	m.takeHidden(process.IsEnvOf(ctx), &spec)
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	p, done, err := m.claim(ctx, &spec)
	if p != nil || err != nil {
		return p, err
	}
	left := false
	defer func() {
		if !left {
			done()
		}
	}()
	req, known, err := m.prepare(ctx, &spec, root)
	if err != nil {
		return nil, err
	}
	size := int64(len(req.Spec))
	admitted, err := m.admit(ctx, size)
	if err != nil {
		return nil, err
	}
	defer admitted()
	for asked := false; ; {
		var rep reply
		rep, left, err = m.starters.call(ctx, req, func(rep reply, err error) {
			// Another caller that starts the same id waits for this answer.
			if err == nil {
				m.conclude(context.Background(), spec, size, rep)
			}
			done()
			if err != nil {
				m.discoverAll(m.board.Load()) // it may have been done before the keeper went away
			}
		})
		if err != nil {
			return nil, err
		}
		p, busy, err := m.conclude(ctx, spec, size, rep)
		if !asked && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
			// Only once: if freeing finished processes does not suffice, the caller
			// gets the error.
			asked = true
			if await(ctx, &m.made, m.noSpace) {
				continue
			}
		}
		if failed, ok := errors.AsType[*process.StartError](err); ok && known != nil && failed.Reason == process.StartBadDir {
			m.homes.forget(known) // it was there
			if req, known, err = m.prepare(ctx, &spec, root); err != nil {
				return nil, err
			}
			continue
		}
		if !busy {
			return p, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// takeHidden gives a spec the hidden variables of another process of the same place.
func (m *Manager) takeHidden(of process.ID, spec *process.Spec) {
	m.mu.RLock()
	p := m.procs[of]
	m.mu.RUnlock()
	if p == nil {
		return
	}
	from := p.spec.Load()
	if from.Labels[wire.LabelContainer] != spec.Labels[wire.LabelContainer] || from.User != spec.User {
		return
	}
	own := spec.Env
	spec.Env = maps.Clone(own)
	for _, k := range from.HiddenEnv {
		if _, ok := own[k]; ok {
			continue
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[k] = from.Env[k]
		spec.HiddenEnv = append(spec.HiddenEnv, k)
	}
	slices.Sort(spec.HiddenEnv)
}

// smallSpec is what a spec may take whatever there is, in bytes.
const smallSpec = 64 << 10

// admit refuses a large spec when those of running processes, of which nothing
// can be freed, take a quarter of the budget, and has it wait while the spools
// have grown faster than they are freed. done is to be called when the process is
// registered, or was not started.
func (m *Manager) admit(ctx context.Context, size int64) (done func(), err error) {
	if size <= smallSpec {
		return func() {}, nil
	}
	if m.grown.Load() >= m.budget.Load()/grain {
		await(ctx, &m.swept, m.tidy)
	}
	used := m.admitted.Add(size)
	m.mu.RLock()
	for p := range m.running {
		used += p.size
	}
	m.mu.RUnlock()
	done = func() { m.admitted.Add(-size) }
	if most := m.budget.Load() / 4; used > most {
		done()
		return nil,
			fmt.Errorf("%w: arguments, environment and labels of this start have %d bytes, with those of running processes %d; a quarter of the spool budget, %d bytes, is the limit",
				process.ErrLimit, size, used, most)
	}
	return done, nil
}

// conclude takes note of the keeper's answer to a start. busy: the same id is
// just being started by another request.
func (m *Manager) conclude(ctx context.Context, spec process.Spec, size int64, rep reply) (p process.Process, busy bool, err error) {
	if rep.werr != nil && rep.werr.Code == wire.CodeExists {
		// Our own start, answered by a keeper that died: over by now, and
		// forgotten by the next keeper.
		if p := m.finishedTwin(&spec); p != nil {
			return p, false, nil
		}
	}
	if rep.werr != nil {
		return nil, rep.werr.Code == wire.CodeBusy, domainError(rep.werr)
	}
	s, err := wire.ParseSpawned(rep.body)
	if err != nil {
		return nil, false, err
	}
	failpoint.Hit(failpoint.StartAnswered)
	if err := m.awaitKeeper(ctx, spec.ID, s); err != nil {
		return nil, false, err
	}
	return m.started(spec, size, s), false, nil
}

// finishedTwin finds a finished process in the spool that nobody has registered
// and that was started with the same spec; nil if there is none.
func (m *Manager) finishedTwin(spec *process.Spec) process.Process {
	j, err := spool.ReadJournal(filepath.Join(m.spool, string(spec.ID)))
	if err != nil || j.Exit == nil || !j.Asked(spec) || m.onBoard(spec.ID) {
		return nil
	}
	p, err := m.loadFinished(spec.ID)
	if err != nil {
		return nil
	}
	return m.register(p)
}

// asked reports whether the process was started with a spec.
func (p *proc) asked(spec *process.Spec) bool {
	if j := p.left.Load(); j != nil {
		return j.Asked(spec)
	}
	return p.spec.Load().Equal(spec)
}

// awaitKeeper waits until the board at hand is that of the keeper which has
// started id: right after a restart a start can be answered before the hello is.
// A keeper that is gone by now left its board to the next one.
func (m *Manager) awaitKeeper(ctx context.Context, id process.ID, s wire.Spawned) error {
	for bound := suspendaware.New(unavailableAfter); ; {
		m.mu.RLock()
		have := m.hello.PID
		m.mu.RUnlock()
		slot := m.board.Load().Slot(s.Slot)
		if have == s.Keeper || slot.Gen() == s.Gen && slot.PID() == int(s.PID) && slot.ID() == id && slot.Flags()&board.FlagStarted != 0 {
			return nil
		}
		if bound.Over() {
			return fmt.Errorf("%w: keeper %d says no hello", process.ErrUnavailable, s.Keeper)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// claim makes one caller the starter of an id; others wait for it and get the
// same process, if they asked for the same.
func (m *Manager) claim(ctx context.Context, spec *process.Spec) (process.Process, func(), error) {
	for {
		m.mu.Lock()
		if p := m.procs[spec.ID]; p != nil {
			m.mu.Unlock()
			if p.over() {
				if err := p.expire(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
					return nil, nil, err
				}
				continue
			}
			if !p.asked(spec) {
				return nil, nil, fmt.Errorf("%w: %s", process.ErrExists, spec.ID)
			}
			return p, nil, nil
		}
		var under <-chan struct{} = m.starting[spec.ID]
		if m.unread[spec.ID] {
			under = m.scanned // there may be one with this id
		}
		if under == nil {
			done := m.reserve(spec.ID)
			m.mu.Unlock()
			return nil, done, nil
		}
		m.mu.Unlock()
		if _, err := waitFor(ctx, under, m.Ping); err != nil { // of somebody who starts the same id, or of the scan
			return nil, nil, err
		}
	}
}

// started registers a process that the keeper has started.
func (m *Manager) started(spec process.Spec, size int64, s wire.Spawned) *proc {
	slot := m.board.Load().Slot(s.Slot)
	p := &proc{m: m, id: spec.ID, dir: filepath.Join(m.spool, string(spec.ID)), ref: s.Ref, slot: slot, session: sessionOf(slot),
		live: true, started: slot.Started(), pid: int(s.PID), inner: int(s.Inner), fresh: true, size: size}
	if p.inner == 0 && spec.Labels[wire.LabelContainer] != "" { // a repeated request finds what is there
		if j, err := spool.ReadJournal(p.dir); err == nil {
			p.inner = innerOf(j, p.pid)
		}
	}
	p.spec.Store(&spec)
	p.pinned.Store(spec.Retention.Pin)
	p.keepPlace([4]int64{}, firstWithin) // nobody else knows it yet
	m.grow(perProcess + size)
	return m.register(p)
}

// domainError translates the keeper's answer.
func domainError(e *wire.Error) error {
	var sys error
	if e.Errno != 0 {
		sys = syscall.Errno(e.Errno)
	}
	switch e.Code {
	case wire.CodeStart:
		reason := process.StartReason(e.Reason)
		if reason == process.StartLimits {
			if sys == nil {
				sys = process.ErrUnsupported
			} else {
				sys = fmt.Errorf("%w (%w)", process.ErrUnsupported, sys)
			}
		}
		if sys == nil {
			sys = errors.New(e.What)
		}
		return &process.StartError{Reason: reason, What: e.What, Err: sys}
	case wire.CodeInvalid:
		field, reason, _ := strings.Cut(e.What, " ")
		return &process.InvalidError{Field: field, Reason: reason}
	case wire.CodeUnfinished:
		return &process.UnfinishedError{Left: e.What}
	}
	base, ok := map[uint8]error{
		wire.CodeNotFound: process.ErrNotFound, wire.CodeExists: process.ErrExists, wire.CodeExited: process.ErrExited,
		wire.CodeStdinClosed: process.ErrStdinClosed, wire.CodeNoPTY: process.ErrNoPTY, wire.CodeOffset: process.ErrOffset,
		wire.CodeUnsupported: process.ErrUnsupported, wire.CodeLimit: process.ErrLimit,
		wire.CodeContainerNotFound: container.ErrNotFound, wire.CodeContainerEnded: container.ErrEnded,
		wire.CodeContainerFrozen: container.ErrFrozen, wire.CodeContainerExists: container.ErrExists,
	}[e.Code]
	switch {
	case !ok:
		return fmt.Errorf("keeper: %s", e.What)
	case e.What != "":
		return fmt.Errorf("%w: %s", base, e.What)
	}
	return base
}
