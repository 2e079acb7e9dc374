package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
	tend "github.com/tend-run/tend/sdk/go"
)

// Labels of processes.
const (
	labelEpisode = "tend.heal"
	labelCommand = "tend.heal.command"
)

const (
	logBytes  = 64 << 10 // of output that is looked at
	runsBack  = 4        // runs of the service that are looked at
	startTime = time.Minute
)

// goneError: nobody wants the service to run any more.
type goneError struct{ why string }

func (e *goneError) Error() string { return e.why }

// service returns the service as it is now.
func (w *worker) service(ctx context.Context) (tend.Service, error) {
	all, err := w.client.Services(ctx)
	if err != nil {
		return tend.Service{}, err
	}
	for _, s := range all {
		if s.Name == w.order.Service {
			if !s.Up {
				return s, &goneError{w.order.Service + " is not wanted any more (tend down)"}
			}
			return s, nil
		}
	}
	return tend.Service{}, &goneError{"there is no service " + w.order.Service + " any more"}
}

// restart restarts the service, and returns once another run of it has begun. What a server
// that ended has not taken is asked of the next one: that it ended says nothing of the remedy.
func (w *worker) restart(ctx context.Context) error {
	s, err := w.service(ctx)
	if err != nil {
		return err
	}
	before, asked := s.Runs, false
	for {
		if !asked {
			err := w.client.RestartServices(ctx, w.order.Service)
			if err != nil && (!errors.Is(err, process.ErrUnavailable) || ctx.Err() != nil) {
				return fmt.Errorf("restart %s: %w", w.order.Service, err)
			}
			asked = err == nil
		}
		if s, err = w.service(ctx); err != nil {
			return err
		}
		stops := s.Phase == tend.ServiceStopping || s.Phase == tend.ServiceKilling
		if s.Runs > before && !stops {
			return nil
		}
		asked = asked || stops // the answer was lost, and the restart not
		if !backoff.Wait(ctx, 20*time.Millisecond) {
			return fmt.Errorf("restart %s: it is still %s", w.order.Service, s.Phase)
		}
	}
}

// tellsOfRun reports whether a process with the label of a service tells how its runs end:
// a hook does only if no run followed, because it failed.
func tellsOfRun(in *process.Info) bool {
	hook := in.Spec.Labels[process.LabelHook]
	return hook == "" || hook == "pre_start" && in.Exit != nil && in.Exit.ShellStatus() != 0
}

// runs are the newest runs of the service, the newest first.
func (w *worker) runs(ctx context.Context) ([]process.Info, error) {
	all, err := w.there.List(ctx, process.Filter{Labels: map[string]string{process.LabelService: w.order.Service}})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(in process.Info) bool { return !tellsOfRun(&in) })
	slices.Reverse(all)
	return all[:min(len(all), runsBack)], nil
}

// endLeft ends what earlier runs of the service have left: the descendants that a run has had
// and that have outlived it. Only the keeper knows them. Another program is nobody's that we know,
// though it is the same one in the same directory: a person may have started it.
func (w *worker) endLeft(ctx context.Context) (string, error) {
	all, err := w.there.List(ctx, process.Filter{Labels: map[string]string{process.LabelService: w.order.Service}})
	if err != nil {
		return "", err
	}
	var ended []string
	for _, in := range all {
		if in.Exit == nil || in.TreeGone {
			continue
		}
		p, err := w.there.Get(ctx, process.Selector{ID: in.ID})
		var res process.KillResult
		if err == nil {
			res, err = p.Kill(ctx)
		}
		switch {
		case errors.Is(err, process.ErrNotFound), errors.Is(err, process.ErrExited):
			continue
		case err != nil:
			return "", err
		case len(res.Survivors) > 0:
			return "", fmt.Errorf("pids %v of an earlier run do not end", res.Survivors)
		}
		ended = append(ended, string(in.ID))
	}
	if len(ended) == 0 {
		return "", nil
	}
	return "ended what was left of earlier runs: " + strings.Join(ended, ", "), nil
}

// output is the end of what a run has written, to both streams.
func (w *worker) output(ctx context.Context, in *process.Info) (string, error) {
	p, err := w.there.Get(ctx, process.Selector{ID: in.ID})
	if err != nil {
		return "", err
	}
	return view.Output(ctx, p, logBytes)
}

// log is what the service has written last, since a start: of a run that has only just
// begun and says nothing yet, what the one before it wrote.
func (w *worker) log(ctx context.Context) (text string, exit *process.Exit, err error) {
	runs, err := w.runs(ctx)
	if err != nil {
		return "", nil, err
	}
	for i := range runs {
		one, err := w.output(ctx, &runs[i])
		if err != nil && !errors.Is(err, process.ErrNotFound) {
			return "", nil, err
		}
		if exit == nil {
			exit = runs[i].Exit
		}
		if text == "" || runs[i].Exit != nil && exit == runs[i].Exit && i > 0 {
			text = one + text
		}
		if runs[i].Exit != nil && strings.TrimSpace(text) != "" {
			break
		}
	}
	return text, exit, nil
}

// ports are those on which the service is to listen.
func ports(r *config.Service) (all []int) {
	add := func(text string) {
		if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 1<<16 && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	for _, p := range []*config.Probe{r.Health, r.Startup, r.Readiness, r.Liveness} {
		if p == nil {
			continue
		}
		if p.HTTP != nil {
			rest := strings.TrimPrefix(string(p.HTTP.URL), "http://")
			host, _, _ := strings.Cut(rest, "/")
			if _, port, err := net.SplitHostPort(host); err == nil {
				add(port)
			}
		}
		if p.TCP != "" {
			text := string(p.TCP)
			add(text[strings.LastIndexByte(text, ':')+1:])
		}
	}
	add(r.Env["PORT"])
	return all
}

// command is what is run for a playbook.
type command struct {
	argv []string
	dir  string // absolute
	env  map[string]string
	time time.Duration
	bare bool // it inherits no variable
	tell bool // people see that it runs
}

const (
	commandTime   = 120 * time.Second
	installTime   = 10 * time.Minute
	commandMemory = 4 << 30
	commandPids   = 1024
)

// start starts a process of the healer where the service runs.
func (w *worker) start(ctx context.Context, spec process.Spec) (process.Process, error) {
	return w.startBounded(ctx, w.there, spec)
}

// startBounded starts a process with those bounds of its tree for which there are cgroups.
// What is missing is said once: time and output are bounded all the same.
func (w *worker) startBounded(ctx context.Context, on starter, spec process.Spec) (process.Process, error) {
	for {
		p, err := on.Start(ctx, spec)
		taken := healer.Lessen(&spec.Limits, err)
		if taken == "" {
			return p, err
		}
		if !w.unbounded[taken] {
			if w.unbounded == nil {
				w.unbounded = map[string]bool{}
			}
			w.unbounded[taken] = true
			w.note(fmt.Sprintf("its commands run without %s: %v", taken, err))
		}
	}
}

type starter interface {
	Start(context.Context, process.Spec) (process.Process, error)
}

// run runs a command to its end, and kills what is left of it.
func (w *worker) run(ctx context.Context, c command) (view.Ran, error) {
	spec := process.Spec{
		Argv: c.argv, Dir: c.dir, Env: c.env, Timeout: c.time, TimeoutScope: process.ScopeTree,
		Name: "heal-command", Labels: map[string]string{labelEpisode: w.order.ID, labelCommand: "1"},
		Limits:    process.Limits{MemoryMax: commandMemory, PidsMax: commandPids, Nice: 5},
		Retention: process.Retention{Limit: 1 << 20, TTL: time.Hour},
	}
	if c.bare {
		spec.Inherit = process.InheritNone
	}
	if w.remote() {
		spec.User = w.order.Rules.User
		if c.bare && w.sandbox != nil { // as the process that works on the project, which began with it
			spec.User = w.inside
		}
	}
	p, err := w.startBounded(ctx, w.there, spec)
	if err != nil {
		return view.Ran{}, err
	}
	defer func() { _ = w.discard(p) }() // else the next worker does
	if c.tell {
		defer w.running(ctx, c.argv, p)()
	}
	res, err := p.Wait(ctx, process.Until{})
	if err != nil {
		return view.Ran{}, err
	}
	text, err := view.Output(ctx, p, logBytes)
	if err != nil {
		return view.Ran{}, err
	}
	return view.Ran{Output: text, Exit: res.Exit, TimedOut: res.Exit != nil && res.Exit.Cause == process.CauseTimeout}, nil
}

// discard ends the tree of a process, and forgets it.
func (w *worker) discard(p process.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := p.Kill(ctx)
	if errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrNotFound) {
		err = nil
	}
	_ = p.Remove(ctx) // else its TTL does
	return err
}

// killCommands ends what a worker that has died has left running.
func (w *worker) killCommands(ctx context.Context) error {
	if err := view.Sweep(ctx, w.client, w.order.ID); err != nil {
		return err
	}
	if w.gone {
		return nil
	}
	return w.killCommandsOf(ctx, w.there)
}

func (w *worker) killCommandsOf(ctx context.Context, on *tend.Client) error {
	all, err := on.List(ctx, process.Filter{Live: true, Labels: map[string]string{labelEpisode: w.order.ID, labelCommand: "1"}})
	if err != nil {
		return err
	}
	for _, in := range all {
		if in.ID == w.ours {
			continue
		}
		p, err := on.Get(ctx, process.Selector{ID: in.ID})
		if errors.Is(err, process.ErrNotFound) {
			continue
		}
		if err == nil {
			err = w.discard(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// environ is that of the service, for a playbook's command: without what the healer itself is
// given.
func (w *worker) environ() map[string]string {
	env := maps.Clone(w.order.Rules.Env)
	maps.DeleteFunc(env, func(name, _ string) bool { return ofHealer(name, w.order.Healer) })
	if env == nil {
		env = map[string]string{}
	}
	env["CI"], env["GIT_TERMINAL_PROMPT"] = "1", "0"
	return env
}

// ofHealer reports whether a variable is what models and reports are paid with.
func ofHealer(name string, h *config.Healer) bool {
	upper := strings.ToUpper(name)
	for _, prefix := range []string{"ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_GENERATIVE", "COMPOSIO_", "MASTRA_AUTH", "TEND_"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	return h.LLM != nil && name == h.LLM.KeyEnv || h.Report != nil && name == h.Report.KeyEnv
}

// signalText is what was seen, for people and for models.
func signalText(s *healer.State) string {
	var all []string
	for _, one := range s.Signals {
		text := one.Kind
		if one.Text != "" {
			text += ": " + one.Text
		}
		all = append(all, text)
	}
	return strings.Join(all[:min(len(all), 8)], "\n")
}
