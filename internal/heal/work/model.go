package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/view"
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
	w.erred, w.applied, w.judged, w.verdict = ev.Log, heldSet{}, false, ""
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
	hands := &hands{ctx: ctx, w: w, try: e.Try, set: &view.Set{}}
	v, _, err := w.openView(ctx)
	if _, ok := errors.AsType[*noView](err); ok {
		hands.unproved = err.Error()
	} else if err != nil {
		return out, err
	} else {
		tried, err := w.tried(ctx, v)
		switch {
		case err != nil:
			return out, err
		case tried.well:
			return out, errors.New(tried.why)
		}
		hands.unproved = tried.why
	}
	if hands.unproved != "" {
		w.note("what a model changes is only proposed: " + hands.unproved)
	}
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
	if done.Unreached {
		out.Model = healer.Unreached
		return out, errors.New(strings.TrimPrefix(done.Why, "model: "))
	}
	if !done.Finished && hands.set.Empty() && !hands.applied {
		return out, fmt.Errorf("the model changed nothing: %s", done.Why)
	}
	if hands.unproved != "" && !hands.set.Empty() {
		if err := w.based(ctx, &w.applied, hands.set); err != nil {
			return out, err
		}
		out.Proposal = "a model proposes:\n" + w.keepDiff(e.Try, w.applied.diff)
		said := w.keepHeld(&w.applied, done.Summary, hands.unproved)
		return out, fmt.Errorf("it is only proposed: %s. %s", hands.unproved, said)
	}
	return out, hands.settle(ctx, done.Summary)
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
