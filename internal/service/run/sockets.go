package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/sockets"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

const (
	// holderTime bounds how long a start waits until its sockets are held.
	holderTime = 20 * time.Second
	// holderStopped is how long a start waits for a holder that stands still: one that a
	// frozen machine has thawed continues by itself.
	holderStopped = 2 * time.Second
	// holderEnd is how long a holder may take to end before it is killed.
	holderEnd = 5 * time.Second
)

// holderID is the process ID of the holder of a service's sockets. A new holder takes it
// over from one that has ended.
func holderID(token string) process.ID { return process.ID("svc-" + token + "-sockets") }

// holderSpec is the process of the holder. It runs as the service's user, and so opens what
// that user may.
func holderSpec(r *config.Service, token string, program []string) process.Spec {
	return process.Spec{
		ID: holderID(token), Name: r.Name + ".sockets", Argv: sockets.HolderArgv(program, "tend-"+strings.ToLower(rand.Text())),
		Env: map[string]string{"GOMAXPROCS": "1"}, Inherit: process.InheritNone, Dir: "/", User: r.User,
		Labels: map[string]string{LabelSockets: token}, Retention: process.Retention{Limit: process.MinRetention},
	}
}

// withSockets has the sockets of a service held, and returns the process of a run that
// takes them.
func (w *worker) withSockets(spec process.Spec, o order) (process.Spec, error) {
	if len(o.rules.Sockets) == 0 {
		return spec, nil
	}
	// What runs has its sockets. Without a holder they could not be opened again.
	if _, _, err := w.find(w.ctx, spec.ID); err == nil {
		return spec, nil
	}
	name, pid, err := w.hold(o)
	if err != nil {
		return spec, err
	}
	argv := spec.Argv
	if spec.Shell != "" {
		argv = []string{"/bin/sh", "-c", spec.Shell}
	}
	spec.Argv, spec.Shell = sockets.Argv(w.s.c.Program, name, pid, argv), ""
	return spec, nil
}

// hold has the sockets of a service held, and returns by whom.
func (w *worker) hold(o order) (name string, pid int, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, holderTime)
	defer cancel()
	want := make([]sockets.Socket, len(o.rules.Sockets))
	for i, s := range o.rules.Sockets {
		want[i] = sockets.Socket{Name: s.Name, Address: string(s.Listen)}
	}
	began := time.Now()
	for {
		var in process.Info
		in, err = w.holder(ctx, o)
		name, pid = sockets.NameOf(in.Spec.Argv), in.PID
		if err == nil && in.State == process.Stopped {
			if time.Since(began) < holderStopped && w.pause(ctx) {
				continue
			}
			return "", 0,
				fmt.Errorf("pid %d, which holds its sockets, is stopped: kill -CONT %[1]d lets it go on; kill -KILL %[1]d closes them, and the next start opens them anew", pid)
		}
		if err == nil {
			err = sockets.Hold(name, pid, want)
			if failed, ok := errors.AsType[*sockets.SocketError](err); ok {
				return "", 0, errors.New(whyNot(failed, pid))
			}
			if err == nil {
				return name, pid, nil
			}
			if errors.Is(err, syscall.EAGAIN) { // it has had the patience of a few seconds
				err = fmt.Errorf("pid %d, which holds them, does not answer; kill -KILL %[1]d closes them, and the next start opens them anew: %w",
					pid, err)
			}
		}
		if _, ok := errors.AsType[*process.StartError](err); ok || errors.Is(err, process.ErrUnsupported) || !w.pause(ctx) {
			return "", 0, fmt.Errorf("its sockets cannot be held: %w", cmp.Or(err, ctx.Err()))
		}
	}
}

// holder finds or starts the process that holds the sockets of a service.
func (w *worker) holder(ctx context.Context, o order) (process.Info, error) {
	for {
		p, in, err := w.find(ctx, holderID(o.token))
		switch {
		case err == nil && in.Exit == nil && in.Spec.User == o.rules.User:
			return in, nil
		case err == nil: // it has ended, or is another user's
			err = w.s.endHolder(ctx, p)
		case errors.Is(err, process.ErrNotFound):
			_, err = w.s.c.Manager.Start(ctx, holderSpec(o.rules, o.token, w.s.c.Program))
			if err != nil && !errors.Is(err, process.ErrExists) && !errors.Is(err, process.ErrUnavailable) {
				return in, err
			}
		default:
			return in, err
		}
		if err != nil && !w.pause(ctx) {
			return in, ctx.Err()
		}
	}
}

// whyNot says why a socket cannot be opened, and what to do. holder is the pid of who tried.
func whyNot(e *sockets.SocketError, holder int) string {
	text := e.Error()
	path, isUnix := strings.CutPrefix(e.Address, "unix:")
	switch {
	case e.Errno == syscall.EADDRINUSE && isUnix:
		return text + fmt.Sprintf(": another program listens on %s, or it is no socket; end that, or choose another path", path)
	case e.Errno == syscall.EADDRINUSE:
		who := "another program"
		if at, err := netip.ParseAddrPort(e.Address); err == nil {
			if at.Addr().IsUnspecified() {
				at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port())
			}
			if a, err := observe.Answering(holder, 0, at); err == nil && a.PID > 0 {
				who = fmt.Sprintf("%.40q (pid %d)", a.Name, a.PID)
			}
		}
		return text + ": " + who + " has it; end that, or choose another address"
	case e.Errno == syscall.EACCES && isUnix:
		return text + ": the user of the service may not make a file there"
	case e.Errno == syscall.EACCES:
		return text +
			": a service's sockets are opened as its user, and a port below 1024 is root's; choose another one, or lower the machine's net.ipv4.ip_unprivileged_port_start"
	case e.Errno == syscall.EADDRNOTAVAIL:
		return text + ": this machine has no such address"
	}
	return text
}

// awaitHolder tells when nobody holds the sockets of a run any more.
func (w *worker) awaitHolder(ctx context.Context, n int64, o order) {
	p, _, err := w.find(ctx, holderID(o.token))
	why := "it is gone"
	switch {
	case err == nil:
		e := w.s.judged(w.until(ctx, p, process.Until{}))
		if e == nil || e.Cause == process.CauseShutdown {
			return // the run ends, or all of tend
		}
		why = e.String()
	case !errors.Is(err, process.ErrNotFound):
		return
	}
	w.tell(supervisor.Event{Kind: supervisor.Unheld, Run: n,
		Text: fmt.Sprintf("the process that holds its sockets has ended (%s): they are opened anew", why)})
}

// holds reports whether the sockets of a service are to stay open: while it runs, and
// while it soon will. A service that was given up refuses connections: nobody would answer.
func holds(r *config.Service, st *supervisor.State) bool {
	switch st.Phase {
	case supervisor.Idle, supervisor.Completed, supervisor.Failed:
		return false
	case supervisor.Waiting:
		return len(r.Sockets) > 0 && r.Schedule == nil
	}
	return len(r.Sockets) > 0
}

// keepHolder ends the holder of a service that needs none any more. The loop calls it.
func (s *Supervisor) keepHolder(name string, rules *config.Service) {
	w, r := s.work(name), s.records[name]
	if !w.held || r == nil {
		return
	}
	if state, _ := s.set.State(name); holds(rules, &state) {
		return
	}
	w.held = false
	token := r.Token
	w.push(func() { s.release(token, name) }) // before the next start
}

// findHolders finds, once, the holders that there are, and ends those of services that a
// server before this one has forgotten.
func (s *Supervisor) findHolders() {
	for {
		all, err := s.c.Manager.List(s.alive, process.Filter{Live: true})
		if err != nil {
			select {
			case <-time.After(retryAfter):
				continue
			case <-s.alive.Done():
				return
			}
		}
		for i := range all {
			token := all[i].Spec.Labels[LabelSockets]
			if token == "" || all[i].ID != holderID(token) {
				continue
			}
			_ = s.in(s.alive, func() { // else the next one does it
				for name, r := range s.records {
					if r.Token == token {
						s.work(name).held = true
						return
					}
				}
				s.wg.Go(func() { s.release(token, all[i].Spec.Name) })
			})
		}
		return
	}
}

// release ends a holder.
func (s *Supervisor) release(token, service string) {
	for {
		p, err := s.c.Manager.Get(s.alive, process.Selector{ID: holderID(token)})
		if err == nil {
			err = s.endHolder(s.alive, p)
		}
		if err == nil || errors.Is(err, process.ErrNotFound) {
			return
		}
		if !errors.Is(err, process.ErrUnavailable) {
			s.c.Log.Warn("sockets of a service could not be closed", "service", service, "err", err)
			return
		}
		select {
		case <-time.After(retryAfter):
		case <-s.alive.Done():
			return // the next one finds it
		}
	}
}

// endHolder ends a holder, if it lives, and forgets it.
func (s *Supervisor) endHolder(ctx context.Context, p process.Process) error {
	// Asked, it removes its files.
	if err := p.Signal(ctx, int(syscall.SIGTERM), process.ScopeLeader); err == nil {
		within, cancel := context.WithTimeout(ctx, holderEnd)
		_, _ = p.Wait(within, process.Until{}) // else it is killed
		cancel()
	} else if errors.Is(err, process.ErrUnavailable) {
		return err
	}
	if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) {
		return err
	}
	return p.Remove(ctx)
}
