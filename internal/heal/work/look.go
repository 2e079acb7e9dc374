package work

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/sdk/go"
)

// prepare opens what the worker needs besides the daemon.
func (w *worker) prepare(ctx context.Context, s healer.Secrets) error {
	w.redact.AddSecret("healer key", s.Key)
	w.redact.AddSecret("daemon token", s.Token)
	w.redact.AddEnv(w.order.Rules.Env)
	if err := w.prepareModel(s); err != nil {
		return err
	}
	if w.gone {
		w.failed, _ = w.away(ctx)
		return nil
	}
	p, opened, err := w.openProject(ctx)
	if _, broken := errors.AsType[*project.BrokenError](err); broken || ctx.Err() != nil {
		return err
	}
	for _, f := range opened.Secrets {
		w.redact.AddFile(f.Path, f.Data)
	}
	for _, text := range opened.Notes {
		w.note(text)
	}
	if err != nil {
		w.failed = err.Error() // the journal will say so
		return nil
	}
	w.project = p
	return nil
}

// prepareModel makes what asks the models. A model that cannot be asked is none.
func (w *worker) prepareModel(s healer.Secrets) error {
	m := w.order.Healer.LLM
	if m == nil {
		w.unasked = "none is declared"
		return nil
	}
	if s.Key == "" {
		w.unasked = "tend up found no key for it in its environment"
		w.note("no model is asked: " + w.unasked)
		return nil
	}
	open := agent.NewAnthropic
	if m.Provider == "openai" {
		open = agent.NewOpenAI
	}
	c := agent.Config{BaseURL: s.BaseURL, Key: s.Key, Model: m.Model}
	var err error
	if w.model, err = open(c); err != nil {
		w.unasked = err.Error()
		w.note("no model is asked: " + w.unasked)
		return nil
	}
	if m.ReviewModel != "" {
		c.Model = m.ReviewModel
		if w.review, err = open(c); err != nil {
			w.review = nil
			w.note("changes are looked at by rule alone: " + err.Error())
		}
	}
	return nil
}

// note is for people who read the journal.
func (w *worker) note(text string) {
	if w.says != nil {
		w.says(text)
		return
	}
	_ = w.put(healer.Entry{Kind: healer.Note, Text: text}) // nothing depends on it
}

func (w *worker) close() {
	if w.view != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastTime)
		defer cancel()
		_ = w.view.Close(ctx) // else the next worker does, or its time
	}
	if w.project != nil {
		_ = w.project.Close() // what is on the disk stays
	}
}

// notStarted begins what the supervisor says of a process that could not be started.
const notStarted = "could not be started: "

// evidence is what playbooks look at.
func (w *worker) evidence(ctx context.Context) (playbook.Evidence, error) {
	log, exit, err := w.log(ctx)
	if err != nil {
		return playbook.Evidence{}, err
	}
	signal, err := w.fault(ctx)
	if err != nil {
		return playbook.Evidence{}, err
	}
	o := w.order
	argv := o.Rules.Command.Argv
	if o.Rules.Command.Line != "" {
		argv = []string{"/bin/sh", "-c", o.Rules.Command.Line}
	}
	// What never ran has written nothing. What follows in the log is newer.
	if _, why, ok := strings.Cut(o.Signal.Text, notStarted); ok {
		log = "Error: " + notStarted + why + "\n" + log
	}
	return playbook.Evidence{
		Dir: o.Rules.Cwd, Service: o.Service, Argv: argv, Env: o.Rules.Env,
		Signal: signal, Exit: exit, Log: log, Ports: ports(o.Rules),
	}, nil
}

// fault is the signal for playbooks. A person who asks for a repair reports no fault: then it
// is the present state of the service.
func (w *worker) fault(ctx context.Context) (playbook.Signal, error) {
	kind := playbook.Signal(w.order.Signal.Kind)
	if kind != asked {
		return kind, nil
	}
	s, err := w.service(ctx)
	switch {
	case isGone(err) || err == nil && s.Ready && s.Failures == 0:
		return kind, nil
	case err != nil:
		return "", err
	case s.Phase == tend.ServiceStarting || s.Phase == tend.ServiceRunning:
		return "health", nil
	}
	return "exit", nil
}

// asked is the signal of an episode that a person has begun.
const asked = "asked"

// look finds out what there is to try.
func (w *worker) look(ctx context.Context) (healer.Entry, error) {
	var out healer.Entry
	if w.failed != "" {
		out.Text = w.failed
		return out, nil // without remedies it ends, and says so
	}
	s, err := w.service(ctx)
	if isGone(err) {
		out.Text = err.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if begins := s.Phase == tend.ServiceStarting || s.Phase == tend.ServiceRunning && !s.Ready; begins &&
		w.order.Signal.Kind == asked && s.Age < soonTime {
		// Nobody has seen it fail. What is wrong it says soon, or that nothing is.
		if _, err := w.soon(ctx); err != nil && !isGone(err) {
			return out, err
		}
	}
	ev, err := w.evidence(ctx)
	if err != nil {
		return out, err
	}
	if err := w.seeLives(ctx); err != nil {
		return out, err
	}
	out.Text, out.Cause, out.Lived = firstLines(ev.Log), causeIn(ev.Log), w.lived
	if lasted, err := w.hasLasted(ctx, out.Cause); err != nil || !lasted {
		out.Remedies = []healer.Remedy{{Kind: healer.Undo, Name: w.repair().Episode, Why: "its fault has come back"}}
		return out, err
	}
	if w.plans, err = w.project.Match(ctx, ev); err != nil {
		return out, err
	}
	if s.Ready && s.Failures == 0 && w.order.Signal.Kind != "flap" && w.order.Signal.Kind != "health" {
		out.Remedies = append(out.Remedies, healer.Remedy{Kind: healer.Wait, Why: "it is ready at this moment"})
	}
	var strong, weak []healer.Remedy
	light := false
	for _, p := range w.plans {
		switch {
		case p.Proposal():
			out.Proposal += proposal(p)
		case p.Light():
			light = true
		case p.Strong:
			strong = append(strong, remedyOf(p))
		default:
			weak = append(weak, remedyOf(p))
		}
	}
	out.Remedies = append(out.Remedies, strong...)
	if light || len(strong) == 0 && w.wantsRestart(s) {
		out.Remedies = append(out.Remedies, healer.Remedy{Kind: healer.Restart, Why: "the mildest thing to try"})
	}
	out.Remedies = append(out.Remedies, weak...)
	for n := range w.order.Healer.Attempts {
		if w.model == nil {
			break
		}
		out.Remedies = append(out.Remedies, healer.Remedy{Kind: healer.Model, Name: fmt.Sprint(n + 1),
			Why: fmt.Sprintf("attempt %d of %d", n+1, w.order.Healer.Attempts), Tree: true})
	}
	return out, nil
}

// wantsRestart reports whether a restart by us is another thing than what the supervisor
// has done already.
func (w *worker) wantsRestart(s tend.Service) bool {
	if strings.Contains(w.order.Signal.Text, supervisor.NotWhereAsked) {
		return false // it would serve there again
	}
	switch w.order.Signal.Kind {
	case "stuck", "pressure":
		return true
	case asked:
		return !s.Ready
	}
	return s.Restarts == 0
}

// remedyOf is the remedy of a plan. A plan that only cuts logs needs no checkpoint: on a disk
// that is full there is no room for one, nor for what is cut.
func remedyOf(p playbook.Plan) healer.Remedy {
	r := healer.Remedy{Kind: healer.Book, Name: p.Book, Why: p.Why, Keep: !p.Commit}
	for _, a := range p.Actions {
		switch a.Kind {
		case playbook.Run, playbook.Restore, playbook.Remove, playbook.SetEnv:
			r.Tree = true
		}
	}
	return r
}

func proposal(p playbook.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Book, p.Why)
	for _, a := range p.Actions {
		fmt.Fprintf(&b, "  %s\n", a.Reason)
		if a.Diff != "" {
			b.WriteString(a.Diff + "\n")
		}
	}
	return b.String()
}

// names matches a line that names an error as programs do, and hints one that may.
var (
	names = lazyregexp.New(`^\s*(\S+: )?(Uncaught )?[\w.]*(Error|Exception|Panic)\b|^panic: |^error(\[\w+\])?: |^fatal\b`)
	hints = lazyregexp.New(`(?i)\b(error|exception|fatal|panic|failed|cannot|denied|refused|not found|no such|in use)\b`)
)

// causeIn finds the line of a log that names the fault: the last that names an error, else
// one that hints at one, else the last.
func causeIn(log string) (line string) {
	best := -1
	for l := range strings.Lines(log) {
		l = strings.TrimSpace(l)
		rank := 0
		switch {
		case l == "" || strings.HasPrefix(l, "at "):
			continue
		case names.MatchString(l):
			rank = 2
		case hints.MatchString(l):
			rank = 1
		}
		if rank >= best {
			best, line = rank, l
		}
	}
	return line
}

// firstLines is what a log says of an error, for people: its last lines.
func firstLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
