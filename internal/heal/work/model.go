package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

// askModel makes one attempt of a model.
func (w *worker) askModel(ctx context.Context, e healer.Effect) (out healer.Entry, err error) {
	if w.model == nil { // the worker that has planned it had one
		out.Model = healer.Unreached
		return out, errors.New(w.unasked)
	}
	ev, err := w.evidence(ctx)
	if err != nil {
		return out, err
	}
	w.erred = ev.Log
	h := w.order.Healer
	number := 1
	for _, t := range w.state.Tries[:len(w.state.Tries)-1] {
		if t.Kind == healer.Model && !t.Unreached {
			number++
		}
	}
	line, dir := w.shown()
	story := agent.Story{
		Service: w.order.Service, Command: line, Dir: dir, Signal: signalText(&w.state), Protected: h.Protected,
		Evidence: []agent.Text{{Label: "log since the newest start", Text: ev.Log}}, Past: w.pastTries(),
	}
	if ev.Exit != nil {
		story.Evidence = append(story.Evidence, agent.Text{Label: "how it ended", Text: ev.Exit.String()})
	}
	if w.state.Proposal != "" {
		story.Evidence = append(story.Evidence, agent.Text{Label: "what a rule proposes", Text: w.state.Proposal})
	}
	hands := &hands{ctx: ctx, w: w, try: e.Try}
	defer func() { out.Text = strings.TrimSpace(out.Text + "\n" + hands.said) }()
	words := &words{path: w.order.Path(healer.WordsFile), redact: w.redact}
	defer words.over()
	done, err := agent.Run(ctx, w.model, agent.Attempt{
		Number: number, Of: h.Attempts, Story: story, Tools: agent.Tools(hands, w.redact.Text),
		Budget: agent.Budget{Steps: h.Steps, InputTokens: int64(h.Tokens), OutputTokens: int64(h.Tokens), Wall: h.Wall.Std()},
		Redact: w.redact.Text, Record: w.transcript(number, words), Live: words.take, Prices: pricesOf(h.LLM), Patience: w.patience(ctx),
	})
	out.Text, out.Steps, out.Tokens, out.Cost = done.Summary, int64(done.Steps), done.Usage.Input+done.Usage.Output, done.Cost
	if err != nil {
		return out, err
	}
	paths, err := w.project.Changed(ctx)
	if err != nil {
		return out, err
	}
	if done.Unreached {
		out.Model = healer.Unreached
		return out, errors.New(strings.TrimPrefix(done.Why, "model: "))
	}
	if !done.Finished && len(paths) == 0 {
		return out, fmt.Errorf("the model changed nothing: %s", done.Why)
	}
	if !hands.restarted || hands.touched {
		if err := w.restart(ctx); err != nil {
			return out, err
		}
	}
	return out, hands.settle(ctx, paths)
}

// shown are the service's command and its directory, below the project if it is, for a model.
func (w *worker) shown() (line, dir string) {
	rules := w.order.Rules
	s := process.Spec{Argv: rules.Command.Argv, Shell: rules.Command.Line}
	dir, err := filepath.Rel(w.project.Root(), rules.Cwd)
	if err != nil || !filepath.IsLocal(dir) {
		dir = rules.Cwd
	}
	return s.Command(), filepath.ToSlash(dir)
}

// pastTries are the attempts before, with what each had changed.
func (w *worker) pastTries() (all []agent.Past) {
	for i, t := range w.state.Tries[:len(w.state.Tries)-1] {
		if t.Kind == healer.Wait || t.Unreached {
			continue
		}
		diff, err := atomicfile.Read(w.order.Path(healer.TakenBackFile(i+1)), healer.MaxDiff+1)
		if err != nil {
			diff = nil
		}
		summary := t.Text
		if t.Kind != healer.Model {
			summary = t.Remedy.String() + ": " + summary
		}
		all = append(all, agent.Past{Number: i + 1, Summary: summary, Diff: string(diff), Why: t.Failed})
	}
	return all
}

func pricesOf(m *config.LLM) agent.Prices {
	if m == nil || m.Prices == nil {
		return agent.Prices{}
	}
	return agent.Prices(*m.Prices)
}

// transcript returns what writes down what is said, in the n-th attempt. A reply that is
// written down is no longer being written.
func (w *worker) transcript(n int, words *words) func(agent.Event) {
	return func(ev agent.Event) {
		if ev.Kind == "reply" && w.state.Unreached != "" {
			_ = w.put(healer.Entry{Kind: healer.Note, Model: healer.Reached, Text: "the model answers"})
		}
		if ev.Kind == "reply" || ev.Kind == "end" {
			defer words.over()
		}
		w.record.Lock()
		defer w.record.Unlock()
		line, err := json.Marshal(struct {
			At      time.Time `json:"at"`
			Attempt int       `json:"attempt"`
			agent.Event
		}{time.Now(), n, ev})
		if err != nil {
			return
		}
		f, err := atomicfile.Open(w.order.Path(healer.TranscriptFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
		if err != nil {
			return // it is for people; the repair goes on
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.Size()+int64(len(line)) < healer.MaxTranscript {
			_, _ = f.Write(append(line, '\n'))
		}
	}
}

// restartTime is how long the tool restart waits until the service is healthy.
const restartTime = 30 * time.Second

// hands are what a model acts with. All that it changes goes through guard.
type hands struct {
	ctx context.Context // of the attempt: nothing of it outlasts that
	w   *worker
	// restarted: the service was, and touched: something was changed since.
	restarted, touched bool
	// try is the number of the attempt, from 1; 0: it is a chat. installed: its packages were
	// installed, which said tells, or failed.
	try       int
	installed bool
	said      string
	failed    error
	log       string // of the service, since the newest restart by the model
}

var _ agent.Hands = (*hands)(nil)

func (h *hands) ReadFile(name string, off, most int64) ([]byte, int64, error) {
	return h.w.project.ReadFile(h.ctx, name, off, most)
}

// own makes what a function does the healer's.
func (h *hands) own(ctx context.Context, f func() error) error {
	if err := h.w.project.Absorb(ctx); err != nil {
		return err
	}
	h.touched = true
	err := f()
	return errors.Join(err, h.w.project.Mark(ctx))
}

func (h *hands) WriteFile(name string, data []byte) error {
	return h.own(h.ctx, func() error { return h.w.project.WriteFile(h.ctx, name, data) })
}

func (h *hands) List(dir string, most int) ([]agent.File, bool, error) {
	all, more, err := h.w.project.List(h.ctx, dir, most)
	files := make([]agent.File, len(all))
	for i, e := range all {
		files[i] = agent.File{Path: path.Join(filepath.ToSlash(dir), e.Name), Dir: e.Kind == "directory", Size: e.Size}
	}
	return files, more, err
}

func (h *hands) Search(ctx context.Context, re, glob string, most int) ([]agent.Hit, bool, error) {
	all, more, err := h.w.project.Search(ctx, re, glob, most)
	hits := make([]agent.Hit, len(all))
	for i, one := range all {
		hits[i] = agent.Hit{Path: one.Path, Line: one.Line, Text: one.Text}
	}
	return hits, more, err
}

func (h *hands) Restart(ctx context.Context) (agent.Restarted, error) {
	w := h.w
	if err := w.restart(ctx); err != nil {
		return agent.Restarted{}, err
	}
	h.restarted, h.touched = true, false
	_, err := w.awaitReady(ctx, restartTime)
	var said string
	if _, ok := errors.AsType[*unwell](err); ok {
		done, ierr := h.install(ctx)
		switch {
		case done:
			said = h.said
			_, err = w.awaitReady(ctx, restartTime)
		case ierr != nil && ierr != h.failed:
			return agent.Restarted{}, ierr
		}
		if h.failed != nil {
			said = h.failed.Error() + "\nNothing is installed again in this attempt. Call finish, and say what is wrong with it."
		}
	}
	log, _, lerr := w.log(ctx)
	if lerr != nil {
		return agent.Restarted{}, lerr
	}
	h.log = log
	if err != nil {
		if _, ok := errors.AsType[*unwell](err); !ok {
			return agent.Restarted{}, err
		}
		return agent.Restarted{Message: strings.TrimSpace(said + "\n" + err.Error()), Log: log}, nil
	}
	return agent.Restarted{Healthy: true, Message: said, Log: log}, nil
}

func (h *hands) setEnv(ctx context.Context, name, value string) (keys []string, err error) {
	h.w.redact.AddSecret(name, value)
	err = h.own(ctx, func() error { return h.w.project.SetEnv(ctx, project.EnvFile, name, value) })
	// The guard shows the names alone.
	data, _, rerr := h.w.project.ReadFile(ctx, project.EnvFile, 0, project.MaxReviewed)
	if rerr == nil {
		for line := range strings.Lines(string(data)) {
			if key, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok && !strings.HasPrefix(key, "#") {
				keys = append(keys, strings.TrimSpace(key))
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}
