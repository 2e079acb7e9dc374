package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

const (
	goodProbes = 3
	// pace is how often a service that runs is looked at.
	pace = 100 * time.Millisecond
	// maxOutput bounds what is kept of the output of a program, in bytes.
	maxOutput = 256 << 10
)

// Look says how the service is to be looked at.
type Look struct {
	Env   map[string]string
	Start time.Duration // it may take until it is ready
	Hold  time.Duration // it must be well for so long then
	// Verify must end with 0 then, beside the service; nil: nothing must.
	Verify *config.Hook
}

// Outcome is what became of a run of the service.
type Outcome struct {
	Well bool
	Why  string // it is not, for people
	Log  string
	Exit *process.Exit // nil: it has not ended by itself
}

// Run starts the service on a set, and looks at it until it has been well for long enough, or is not.
// What it writes is thrown away. An error says that nothing is known.
func (v *View) Run(ctx context.Context, s *Set, l Look) (out Outcome, err error) {
	err = v.again(ctx, func() (err error) {
		out, err = v.once(ctx, s, l)
		return err
	})
	return out, err
}

func (v *View) once(ctx context.Context, s *Set, l Look) (out Outcome, err error) {
	g, err := v.openGate()
	if err != nil {
		return out, err
	}
	defer g.close()
	p, err := v.enter(ctx, s, g.into)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, p.leave(ctx)) }()
	if err := g.open(ctx, p); err != nil {
		return out, err
	}
	r := v.Rules
	spec := process.Spec{Dir: r.Cwd, Env: l.Env}
	if r.Inherit == "none" {
		spec.Inherit = process.InheritNone
	}
	if out, err = p.hook(ctx, spec, "its hook pre_start", supervisor.HookOf(r, supervisor.PreStart)); err != nil || out.Why != "" {
		return out, err
	}
	one := spec
	one.Argv, one.Shell = r.Command.Argv, r.Command.Line
	proc, err := p.start(ctx, one)
	if err != nil { // a program that is not there, say
		if ctx.Err() != nil || errors.Is(err, process.ErrUnavailable) {
			return out, err
		}
		return Outcome{Why: err.Error(), Log: err.Error()}, nil
	}
	w := &watched{place: p, proc: proc, spec: spec}
	out.Why, out.Exit, err = w.look(ctx, l)
	if err != nil {
		return out, err
	}
	if out.Why == "" {
		verified, err := p.hook(ctx, spec, "healer.verify", l.Verify)
		if err != nil || verified.Why != "" {
			return verified, err
		}
	}
	out.Well = out.Why == ""
	_, _ = proc.Kill(ctx) // it goes with its sandbox
	out.Log, err = Output(ctx, proc, maxOutput)
	return out, err
}

// hook runs a command that must end with 0; nil: there is none.
func (p *place) hook(ctx context.Context, spec process.Spec, name string, h *config.Hook) (out Outcome, err error) {
	if h == nil {
		return out, nil
	}
	spec.Argv, spec.Shell, spec.Timeout = h.Command.Argv, h.Command.Line, h.Timeout.Std()
	ran, err := p.run(ctx, spec)
	if err == nil && (ran.Exit == nil || ran.Exit.ShellStatus() != 0) {
		out = Outcome{Why: fmt.Sprintf("%s has failed: %v", name, ran.Exit), Log: ran.Output, Exit: ran.Exit}
	}
	return out, err
}

// watched is a service that runs in a view.
type watched struct {
	*place
	proc process.Process
	spec process.Spec // of commands of its probes
	seen bool         // a line that its probe waits for
}

// look returns why the service is not well; "": it is.
func (w *watched) look(ctx context.Context, l Look) (why string, exit *process.Exit, err error) {
	begun, good, last := time.Now(), 0, "it says nothing of itself"
	var since time.Time // it is well
	for {
		in, err := w.proc.Info(ctx)
		if err != nil {
			return "", nil, err
		}
		if in.Exit != nil && (!w.v.Rules.Forks || in.Exit.ShellStatus() != 0) {
			return "it has ended: " + in.Exit.String(), in.Exit, nil
		}
		ok, text, err := w.ask(ctx)
		switch {
		case err != nil:
			return "", nil, err
		case ok && good == 0:
			since, good = time.Now(), 1
		case ok:
			good++
		case good > 0:
			return fmt.Sprintf("it did not hold: after %v: %s", time.Since(since).Round(time.Millisecond), text), nil, nil
		default:
			last = text
		}
		if good >= goodProbes && time.Since(since) >= l.Hold {
			return "", nil, nil
		}
		if good == 0 && time.Since(begun) > l.Start {
			return fmt.Sprintf("it was not ready within %v: %s", l.Start, last), nil, nil
		}
		if !backoff.Wait(ctx, max(pace, l.Hold/(goodProbes+2)/4)) {
			return "", nil, ctx.Err()
		}
	}
}

// ask puts the probes of the service to it. Nobody else is in its network, so whoever answers is it.
func (w *watched) ask(ctx context.Context) (ok bool, why string, err error) {
	target := &probe.Target{Process: w.proc, Manager: w.inside, Spec: w.spec, Dial: w.dial}
	target.Spec.User = cmp.Or(w.v.User, "root")
	for _, role := range []supervisor.Role{supervisor.Startup, supervisor.Readiness, supervisor.Liveness} {
		rule := supervisor.ProbeOf(w.v.Rules, role)
		switch {
		case rule == nil:
		case rule.Log != "":
			if !w.seen {
				text, err := Output(ctx, w.proc, maxOutput)
				if err != nil {
					return false, "", err
				}
				line, err := regexp.Compile("(?m)" + string(rule.Log))
				if err != nil {
					return false, "", err
				}
				if w.seen = line.MatchString(text); !w.seen {
					return false, "it has not said what is awaited", nil
				}
			}
		default:
			one := *rule
			one.Anyone = true
			a := probe.Ask(ctx, &one, target)
			for range 2 { // a machine without time says nothing about the service
				if a.OK || !a.Doubt {
					break
				}
				a = probe.Ask(ctx, &one, target)
			}
			if ctx.Err() != nil {
				return false, "", ctx.Err()
			}
			if !a.OK {
				return false, a.Text, nil
			}
		}
	}
	return true, "", nil
}

// dial connects to a port of the view. It asks 127.0.0.1 first, and then ::1.
func (w *watched) dial(ctx context.Context, _, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	c, err := w.sandbox.Dial(ctx, int(at.Port()))
	if err != nil {
		return nil, err
	}
	if got, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil && got.Addr().Unmap() != at.Addr().Unmap() {
		c.Close()
		return nil, fmt.Errorf("%v is what answers: %w", got, syscall.ECONNREFUSED)
	}
	return c, nil
}

// Output is the end of what a program has written, to both streams: at most so many bytes.
func Output(ctx context.Context, p process.Process, most int64) (string, error) {
	in, err := p.Info(ctx)
	if err != nil {
		return "", err
	}
	opts := process.ReadOptions{NoFollow: true}
	for _, s := range in.Streams {
		opts.From[s.Stream] = max(s.Base, s.End-most)
	}
	r, err := p.Read(ctx, opts)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var b strings.Builder
	for ev, err := range process.Follow(ctx, r) {
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return b.String(), err
		}
		if ev.Kind == process.EventOutput {
			b.Write(ev.Data)
		}
	}
	text := b.String()
	return strings.ToValidUTF8(text[max(0, len(text)-int(most)):], "\ufffd"), nil
}
