package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// upView shows what becomes of services.
type upView struct {
	inv    *invocation
	k      *keptServices
	d      *daemon
	before map[string]tend.Service

	together sync.Mutex // of those who print lines
	wg       sync.WaitGroup
	shown    map[string]tend.Service // as they were noted last
	read     map[string]process.ID   // whose output is read
	names    []string                // of all
}

func newUpView(inv *invocation, k *keptServices, before []tend.Service) *upView {
	v := &upView{inv: inv, k: k, d: k.d, before: map[string]tend.Service{}, shown: map[string]tend.Service{}, read: map[string]process.ID{}}
	for _, s := range before {
		v.before[s.Name] = s
	}
	return v
}

func wantedServices(all []tend.Service) []tend.Service {
	return slices.DeleteFunc(slices.Clone(all), func(s tend.Service) bool { return !s.Up })
}

// ready reports whether all that are wanted can be used, and which of them has failed.
func ready(all []tend.Service) (done bool, failed []string) {
	done = true
	for _, s := range wantedServices(all) {
		switch {
		case s.Phase == tend.ServiceFailed, needsHelp(s):
			failed = append(failed, s.Name)
		case s.Ready, s.Phase == tend.ServiceCompleted, s.Phase == tend.ServiceWaiting && s.Runs > 0, s.Phase == tend.ServiceWaiting &&
			s.Why == "for its time":
		default:
			done = false
		}
	}
	return done || len(failed) > 0, failed
}

// notReadyError says what was waited for in vain.
func notReadyError(all []tend.Service, within time.Duration) error {
	var names []string
	for _, s := range wantedServices(all) {
		if done, _ := ready([]tend.Service{s}); !done {
			names = append(names, fmt.Sprintf("%s (%s)", printable(s.Name), printable(cmp.Or(s.Why, s.Phase.String()))))
		}
	}
	return &runError{status: 124, err: lateError(fmt.Sprintf("not ready within %v: %s; they keep running (see tend services)",
		within, cmp.Or(strings.Join(names, ", "), "a service")))}
}

// away reports whether a service can do nothing because of its sandbox.
func away(s tend.Service) bool { return strings.HasPrefix(s.Why, "its sandbox ") }

// needsHelp reports whether it is so until somebody does what its Why says behind a
// semicolon; a sandbox that has ended is started by the daemon.
func needsHelp(s tend.Service) bool { return away(s) && strings.Contains(s.Why, "; ") }

// over reports whether nothing happens any more by itself.
func over(all []tend.Service) (done bool, failed []string) {
	for _, s := range wantedServices(all) {
		switch {
		case s.Phase == tend.ServiceFailed && s.Next == 0:
			failed = append(failed, s.Name)
		case s.Phase == tend.ServiceCompleted:
		default:
			return false, nil
		}
	}
	return true, failed
}

func failedError(failed []string) error {
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("failed: %s (tend services says why, tend logs %s shows what it wrote)", listed(failed), printable(failed[0]))
}

// until waits until the services are so.
func (v *upView) until(ctx context.Context, so func([]tend.Service) (bool, []string)) error {
	for all, err := range v.k.watch(ctx) {
		if err != nil {
			return serviceError(err)
		}
		v.say(all)
		if done, failed := so(all); done {
			return failedError(failed)
		}
	}
	return context.Cause(ctx)
}

// say notes what people want to know of a service.
func (v *upView) say(all []tend.Service) {
	for _, s := range all {
		was, known := v.shown[s.Name]
		v.shown[s.Name] = s
		if !known { // it may have died already
			was.Restarts = v.before[s.Name].Restarts
		}
		if !s.Up && !known {
			continue
		}
		same := known && was.Phase == s.Phase && was.Runs == s.Runs
		switch {
		case s.Phase == tend.ServiceFailed && !same:
			v.note("%s has failed: %s%s", s.Name, s.Why, again(s))
		case s.Phase == tend.ServiceCompleted && !same:
			v.note("%s has completed", s.Name)
		case away(s) && was.Why != s.Why:
			v.note("%s waits: %s", s.Name, s.Why)
		case s.Ready && !(was.Ready && same):
			v.note("%s is ready", s.Name)
		case s.Restarts > was.Restarts:
			v.note("%s starts again: %s", s.Name, s.Why)
		}
	}
}

func again(s tend.Service) string {
	if s.Next <= 0 {
		return ""
	}
	return fmt.Sprintf("; it is tried again in %v", s.Next.Round(time.Second))
}

func (v *upView) note(format string, args ...any) {
	v.together.Lock()
	defer v.together.Unlock()
	v.inv.note(format, args...)
}

// foreground shows what services write until they are over, or a signal ends what this
// command has started.
func (v *upView) foreground(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	news, broken := make(chan []tend.Service), make(chan error, 1)
	var watch sync.WaitGroup
	watch.Go(func() {
		for all, err := range v.k.watch(ctx) {
			if err != nil {
				broken <- err
				return
			}
			select {
			case news <- all:
			case <-ctx.Done():
				return
			}
		}
	})
	defer func() { cancel(); watch.Wait(); v.wg.Wait() }()
	ending := false
	for {
		select {
		case err := <-broken:
			return serviceError(err)
		case all := <-news:
			v.say(all)
			if v.names == nil { // fixed, so that the lines of one look alike
				v.names = mapped(wantedServices(all), func(s *tend.Service) string { return s.Name })
			}
			v.readNew(ctx, all)
			if done, failed := over(all); done && !ending {
				v.rest()
				return failedError(failed)
			}
			if ending && v.ended(all) {
				v.rest()
				return nil
			}
		case s := <-signals:
			switch {
			case slices.Contains(resizeSignals(), s):
			case s == syscall.SIGHUP:
				return statusError(128 + int(syscall.SIGHUP)) // the services keep running
			case ending:
				v.note("left; the services are still being ended (tend services)")
				return statusError(128 + int(syscall.SIGINT))
			default:
				ending = true
				some, err := v.end(ctx)
				if err != nil || !some {
					return serviceError(err)
				}
			}
		}
	}
}

// tui shows the services on the terminal until the person leaves, and then ends what this command has
// started, unless it is to stay.
func (v *upView) tui(ctx, asked context.Context, signals <-chan os.Signal, stay bool) error {
	defer collectOrphans()()
	b := dashboard{inv: v.inv, d: v.d, services: true, project: v.k.project, interval: time.Second}
	if err := b.run(asked); err != nil || stay {
		return err
	}
	for len(signals) > 0 {
		if <-signals == syscall.SIGHUP {
			return statusError(128 + int(syscall.SIGHUP)) // the services keep running
		}
	}
	if some, err := v.end(ctx); err != nil || !some {
		return serviceError(err)
	}
	return v.until(ctx, func(all []tend.Service) (bool, []string) { return v.ended(all), nil })
}

// ours are the services that were not wanted before this command.
func (v *upView) ours(all []tend.Service) (names []string) {
	for _, s := range all {
		if s.Up && !v.before[s.Name].Up {
			names = append(names, s.Name)
		}
	}
	return names
}

// end asks what this command has started to end; false: it has started nothing.
func (v *upView) end(ctx context.Context) (some bool, err error) {
	all, err := v.k.list(ctx)
	if err != nil {
		return false, err
	}
	names := v.ours(all)
	if len(names) == 0 {
		return false, nil
	}
	v.note("ending %s; ctrl-c again leaves", listed(names))
	return true, v.d.StopProject(ctx, v.k.project, names...)
}

// ended: nothing of what this command has started is wanted or lives.
func (v *upView) ended(all []tend.Service) bool {
	return !slices.ContainsFunc(all, func(s tend.Service) bool {
		return !v.before[s.Name].Up && (s.Up || s.Phase.Alive())
	})
}

// restTime bounds how long the last output is waited for.
const restTime = 2 * time.Second

// rest waits for the output of processes that have ended.
func (v *upView) rest() {
	done := make(chan struct{})
	go func() { v.wg.Wait(); close(done) }() // foreground waits for them, too
	select {
	case <-done:
	case <-time.After(restTime):
	}
}

// readNew reads the output of runs that are new.
func (v *upView) readNew(ctx context.Context, all []tend.Service) {
	for _, s := range all {
		// While it starts there may be no process of that ID yet.
		if s.Process == "" || s.Phase == tend.ServiceStarting || v.read[s.Name] == s.Process || !s.Up && v.read[s.Name] == "" {
			continue
		}
		opts := process.ReadOptions{}
		if v.before[s.Name].Process == s.Process { // what it wrote before is in the logs
			if !s.Phase.Alive() {
				continue
			}
			opts.From = [4]int64{0, -1, -1, -1}
		}
		v.read[s.Name] = s.Process
		v.wg.Go(func() {
			if err := v.follow(ctx, s, opts); err != nil && ctx.Err() == nil && !errors.Is(err, process.ErrNotFound) {
				v.note("%s: its output is not shown any more: %v", s.Name, err)
			}
		})
	}
}

func (v *upView) follow(ctx context.Context, s tend.Service, opts process.ReadOptions) error {
	p, err := v.d.Get(ctx, process.Selector{ID: s.Process})
	if err != nil {
		return err
	}
	own := *v.inv
	own.lines = &lineWriter{inv: v.inv, id: p.ID(), name: v.inv.prefix(s.Name, v.names), together: &v.together}
	for ev, err := range process.Events(ctx, p, opts) {
		if err != nil {
			return errors.Join(err, own.lines.flush())
		}
		if ev.Kind == process.EventGap {
			v.note("%s: %s", s.Name, gapText(ev.Gap))
			continue
		}
		if err := own.printOutput(ev); err != nil {
			return err
		}
	}
	return own.lines.flush()
}
