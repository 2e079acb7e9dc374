package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

const (
	// lookEvery is how often it is looked whether a sandbox is there.
	lookEvery = time.Second
	// raiseAgain is how soon the start of a sandbox is repeated that has failed.
	raiseAgain = 30 * time.Second
)

// lookedAt is a sandbox that is looked at, and is started if it has ended. No key: there is
// none.
type lookedAt struct {
	key   string
	raise bool
}

// seat is what is known of the sandbox of a service.
type seat struct {
	// one is held from a look until it is told, so that looks are told in their order.
	one sync.Mutex
	// key of the sandbox that was looked at last, and what was told of it. Guarded by one.
	key, away string
	// raise is when a sandbox that has ended may be started next, and lower is why it
	// could not be. Guarded by one.
	raise time.Time
	lower error
	// still is the last time at which the sandbox was seen unable to run anything. Guarded
	// by one.
	still time.Time
}

// errNoSandboxes: this server has no driver.
var errNoSandboxes = fmt.Errorf("this server has no sandboxes: %w", process.ErrUnsupported)

// sandbox finds a sandbox by its name or ID.
func (s *Supervisor) sandbox(ctx context.Context, key string) (driver.Sandbox, error) {
	if s.c.Driver == nil {
		return nil, errNoSandboxes
	}
	return s.c.Driver.Get(ctx, key)
}

// refusal is why a declaration with a sandbox is not taken.
func (s *Supervisor) refusal(service, key string, err error) error {
	field := "services." + service + ".sandbox"
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return &process.InvalidError{Field: field,
			Reason: fmt.Sprintf("is %s, and there is no such sandbox; tend sandbox create %[1]s makes one, tend sandbox ls shows those that there are", key)}
	case errors.Is(err, errNoSandboxes):
		return &process.InvalidError{Field: field, Reason: "cannot be used: " + err.Error()}
	}
	return fmt.Errorf("%s: %w", field, err)
}

// awayText says why a sandbox cannot run a service; "": it can. With an error, that could
// not be found out.
// w.seat.one is held.
func (w *worker) awayText(ctx context.Context, at lookedAt) (string, error) {
	in, err := w.s.sandbox(ctx, at.key)
	var is driver.Info
	if err == nil {
		is, err = in.Info(ctx)
	}
	switch {
	case errors.Is(err, driver.ErrNotFound):
		verb := "sandbox create " + at.key
		if strings.HasPrefix(at.key, config.ImagePrefix) {
			verb = "up"
		}
		return fmt.Sprintf("its sandbox %s is not there any more; tend %s makes another one", at.key, verb), nil
	case errors.Is(err, errNoSandboxes):
		return fmt.Sprintf("its sandbox %s cannot be used: %v", at.key, err), nil
	case err != nil:
		return "", err
	}
	switch is.State {
	case driver.Ready:
		return "", nil
	case driver.Paused:
		return fmt.Sprintf("its sandbox %s is paused; tend sandbox resume %[1]s lets it go on", at.key), nil
	case driver.Stopped:
		if is.Reason == "" {
			return fmt.Sprintf("its sandbox %s is stopped; tend sandbox start %[1]s starts it", at.key), nil
		}
		return w.raise(ctx, in, at, is.Reason), nil
	}
	return fmt.Sprintf("its sandbox %s is %v", at.key, is.State), nil
}

// ending reports whether all of tend is being ended.
func (s *Supervisor) ending(now time.Time) bool {
	return s.c.InShutdown != nil && s.c.InShutdown(now)
}

// raise starts a sandbox that nobody has stopped: it ended with the daemon or the
// machine, or by itself. w.seat.one is held.
func (w *worker) raise(ctx context.Context, in driver.Sandbox, at lookedAt, reason string) string {
	t, now := &w.seat, time.Now()
	if at.raise && !w.s.ending(now) && !now.Before(t.raise) {
		t.raise, t.lower = now.Add(raiseAgain), in.Start(ctx)
		if t.lower == nil {
			return ""
		}
		w.s.c.Log.Warn("the sandbox of a service could not be started", "service", w.name, "sandbox", at.key, "err", t.lower, "again", raiseAgain)
	}
	text := fmt.Sprintf("its sandbox %s has ended: %s", at.key, reason)
	if t.lower != nil {
		text += fmt.Sprintf("; it could not be started: %v", t.lower)
	}
	return text
}

// checkSandbox finds out whether the sandbox of a service is there, and has it told if that has
// changed. failed is how a start or a probe in it has failed, if one has.
func (w *worker) checkSandbox(ctx context.Context, key string, failed error) {
	w.lookAt(ctx, lookedAt{key: key}, failed)
}

// lookAt is checkSandbox. It returns the last time at which the sandbox was seen unable to run
// anything.
func (w *worker) lookAt(ctx context.Context, at lookedAt, failed error) (still time.Time) {
	key, t := at.key, &w.seat
	if key == "" {
		return time.Time{}
	}
	t.one.Lock()
	defer t.one.Unlock()
	away, err := w.awayText(ctx, at)
	if err != nil {
		return t.still // it is looked again
	}
	if away == "" && noSandbox(failed) {
		away = fmt.Sprintf("its sandbox %s cannot run programs: %v", key, failed) // it has only just ended
	}
	if away != "" {
		t.still = time.Now()
	}
	if t.key != key || t.away != away {
		t.key, t.away = key, away
		w.tell(supervisor.Event{Kind: supervisor.Placed, OK: away == "", Text: away})
	}
	return t.still
}

// lookNow looks at the sandboxes of all services, so that what is asked for next is not
// judged by what was a moment ago.
func (s *Supervisor) lookNow(ctx context.Context) {
	keys := map[*worker]string{}
	_ = s.in(ctx, func() { // else there is nothing to ask for
		for _, name := range s.set.Names() {
			if key := s.set.Rules(name).Sandbox; key != "" {
				keys[s.work(name)] = key
			}
		}
	})
	for w, key := range keys {
		w.checkSandbox(ctx, key, nil)
	}
}

// keepPlace looks at the sandbox of a service that is wanted, or lives.
func (w *worker) keepPlace(key string, wanted, lives bool) {
	at := lookedAt{key: key, raise: wanted}
	if key == "" || !wanted && !lives {
		at = lookedAt{}
	}
	if w.place == at {
		return
	}
	if w.endPlace != nil {
		w.endPlace()
		w.endPlace = nil
	}
	if w.place = at; at.key == "" {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	w.endPlace = cancel
	w.s.wg.Go(func() {
		for {
			w.lookAt(ctx, at, nil)
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
				return
			}
		}
	})
}

// start starts a process of a service, in its sandbox if it has one.
func (w *worker) start(ctx context.Context, r *config.Service, spec process.Spec) error {
	defer w.s.admit(ctx)()
	if r.Sandbox == "" {
		_, err := w.s.c.Manager.Start(ctx, spec)
		return err
	}
	in, err := w.s.sandbox(ctx, r.Sandbox)
	if err == nil {
		_, err = in.Processes().Start(ctx, spec)
	}
	if err != nil {
		w.checkSandbox(ctx, r.Sandbox, err)
	}
	return err
}

// answer puts a question of a probe, in the sandbox of the service if it has one.
func (w *worker) answer(rule *config.Probe, target *probe.Target, key string) probe.Answer {
	if key == "" {
		return probe.Ask(w.ctx, rule, target)
	}
	in, err := w.s.sandbox(w.ctx, key)
	if err != nil {
		w.checkSandbox(w.ctx, key, nil)
		return probe.Answer{Text: err.Error(), Doubt: true}
	}
	a, gone := askInside(w.ctx, rule, target, in)
	if !a.OK { // nothing is heard from a sandbox that is paused
		w.checkSandbox(w.ctx, key, gone)
	}
	return a
}

// askInside puts a question inside of a sandbox. gone is why the sandbox could not be asked,
// which is no failure of the service: what is being stopped says so before its state does.
func askInside(ctx context.Context, rule *config.Probe, target *probe.Target, in driver.Sandbox) (a probe.Answer, gone error) {
	var lost atomic.Pointer[error]
	inside := *target
	inside.Manager, inside.Dial = in.Processes(), dialer(in, func(err error) { lost.Store(&err) })
	a = probe.Ask(ctx, rule, &inside)
	if err := lost.Load(); err != nil && !a.OK {
		a.Doubt, gone = true, *err
	}
	return a, gone
}

// noSandbox reports whether an error says that a sandbox cannot do anything now.
func noSandbox(err error) bool {
	return errors.Is(err, driver.ErrPaused) || errors.Is(err, driver.ErrStopped) || errors.Is(err, driver.ErrNotFound)
}

// dialer connects to ports of a sandbox. lost is called if there is none to connect to.
func dialer(in driver.Sandbox, lost func(error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		c, err := in.Dial(ctx, int(at.Port()))
		if err != nil {
			if noSandbox(err) {
				lost(err)
			}
			return nil, err
		}
		// A sandbox is asked by 127.0.0.1 first, and then by ::1.
		if got, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil && got.Addr().Unmap() != at.Addr().Unmap() {
			c.Close()
			return nil, fmt.Errorf("%v is what answers in the sandbox: %w", got, syscall.ECONNREFUSED)
		}
		return c, nil
	}
}
