package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

type episodesCmd struct {
	ID         string `arg:"" name:"id" optional:"" help:"Show this episode with all its steps. last: the newest."`
	Diff       bool   `help:"Print only its changes, as a diff."`
	Transcript bool   `help:"Print only the conversation with the model, as JSON lines."`
}

func (c *episodesCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Diff && c.Transcript {
		return usageError("--diff and --transcript each print one thing; give one of them")
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	if c.ID == "" && !c.Diff && !c.Transcript {
		all, err := d.Episodes(ctx, "")
		if err != nil {
			return serviceError(err)
		}
		return inv.printEpisodes(all)
	}
	if c.ID == "last" {
		c.ID = ""
	}
	e, err := d.Episode(ctx, c.ID)
	if err != nil {
		return serviceError(err)
	}
	switch {
	case c.Diff && inv.flags.JSON:
		return printJSON(inv.out, map[string]string{"episode": e.ID, "diff": string(e.Diff)})
	case c.Diff:
		return inv.printLines(string(e.Diff))
	case c.Transcript:
		return writeJSON(inv.out, e.Transcript) // lines, in any case
	}
	return inv.printEpisode(&e)
}

func (inv *invocation) printLines(text string) error {
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(inv.out, printable(strings.TrimRight(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// episodeFacts is an episode as JSON.
type episodeFacts struct {
	ID       string         `json:"id"`
	Service  string         `json:"service"`
	Status   string         `json:"status"` // suspected, healing, verifying, ready, broken
	Doing    string         `json:"doing"`
	Why      string         `json:"why,omitempty"`
	Opened   time.Time      `json:"opened"`
	Ended    *time.Time     `json:"ended"` // null until it has ended
	Signals  []signalFacts  `json:"signals"`
	Remedies []remedyFacts  `json:"remedies"`
	Tries    []healTryFacts `json:"tries"`
	Commit   string         `json:"commit,omitempty"`
	Left     []string       `json:"left,omitempty"`
	Dirty    bool           `json:"dirty,omitempty"`
	Proposal string         `json:"proposal,omitempty"`
	DryRun   bool           `json:"dry_run,omitempty"`
	Workers  int            `json:"workers"`
	// Unreached is why the model does not answer.
	Unreached string `json:"unreached,omitempty"`
	// TakesBack is the repair that this one takes back, TakenBack which has taken back this
	// one; Changed are paths that keep it from that, and CanRollBack says that there is
	// something to go back to.
	TakesBack   string   `json:"takes_back,omitempty"`
	TakenBack   string   `json:"taken_back,omitempty"`
	Changed     []string `json:"changed,omitempty"`
	CanRollBack bool     `json:"can_roll_back,omitempty"`
	// Held is the hash of a change that waits for a person, HeldWhy why it does.
	Held    string `json:"held,omitempty"`
	HeldWhy string `json:"held_why,omitempty"`
	// Diff and Transcript of one that was asked for by its ID.
	Diff       string            `json:"diff,omitempty"`
	Transcript []json.RawMessage `json:"transcript,omitempty"`
}

type signalFacts struct {
	Kind string    `json:"kind"`
	Text string    `json:"text,omitempty"`
	At   time.Time `json:"at"`
}

type remedyFacts struct {
	Kind string `json:"kind"` // wait, restart, playbook, model
	Name string `json:"name,omitempty"`
	Why  string `json:"why,omitempty"`
}

type healTryFacts struct {
	remedyFacts
	Begun  time.Time  `json:"begun"`
	Ended  *time.Time `json:"ended"`
	Failed string     `json:"failed,omitempty"`
	Text   string     `json:"text,omitempty"`
	Paths  []string   `json:"paths,omitempty"`
	Tokens int64      `json:"tokens,omitempty"`
	Steps  int64      `json:"steps,omitempty"`
	Cost   float64    `json:"cost,omitempty"`
	// Unreached: the model did not answer, so that nothing was tried.
	Unreached bool `json:"unreached,omitempty"`
}

func episodeFactsOf(e *tend.Episode) episodeFacts {
	remedy := func(r *tend.HealRemedy) remedyFacts { return remedyFacts(*r) }
	return episodeFacts{
		ID: e.ID, Service: e.Service, Status: e.Status.String(), Doing: e.Doing, Why: e.Why, Opened: e.Opened, Ended: timeOrNull(e.Ended),
		Signals:  mapped(e.Signals, func(s *tend.HealSignal) signalFacts { return signalFacts(*s) }),
		Remedies: mapped(e.Remedies, remedy), Tries: mapped(e.Tries, func(t *tend.HealTry) healTryFacts {
			return healTryFacts{
				remedyFacts: remedy(&t.HealRemedy), Begun: t.Begun, Ended: timeOrNull(t.Ended), Failed: t.Failed, Text: t.Text,
				Paths: t.Paths, Tokens: t.Tokens, Steps: t.Steps, Cost: t.Cost, Unreached: t.Unreached,
			}
		}),
		Commit: e.Commit, Left: e.Left, Dirty: e.Dirty, Proposal: e.Proposal, DryRun: e.DryRun, Workers: e.Workers, Unreached: e.Unreached,
		TakesBack: e.TakesBack, TakenBack: e.TakenBack, Changed: e.Changed, CanRollBack: e.CanRollBack,
		Held: e.Held, HeldWhy: e.HeldWhy,
	}
}

func (inv *invocation) printEpisodes(all []tend.Episode) error {
	if inv.flags.JSON {
		return printJSON(inv.out, mapped(all, episodeFactsOf))
	}
	rows := [][]string{{"EPISODE", "SERVICE", "STATUS", "AGE", "TOOK", "SIGNAL", "WHAT"}}
	for _, e := range all {
		took, signal, what := "-", "-", "-"
		if e.Over() {
			took = e.Ended.Sub(e.Opened).Round(100 * time.Millisecond).String()
		}
		if len(e.Signals) > 0 {
			signal = e.Signals[0].Kind
		}
		if n := len(e.Tries); n > 0 {
			what = remedyText(e.Tries[n-1].HealRemedy)
		} else if e.DryRun && len(e.Remedies) > 0 {
			what = "would try " + remedyText(e.Remedies[0])
		}
		rows = append(rows, []string{printable(e.ID), printable(e.Service), episodeStatus(&e), age(time.Since(e.Opened)), took,
			printable(signal), printable(what)})
	}
	return inv.printRows(rows, func(n int) string {
		if all[n].Status == tend.HealBroken && !all[n].DryRun && all[n].TakesBack == "" {
			return red
		}
		return ""
	})
}

// episodeStatus is the status as people read it: a dry run says nothing of the service, and
// neither does the taking back of a repair.
func episodeStatus(e *tend.Episode) string {
	switch {
	case !e.Over():
		return e.Status.String()
	case e.DryRun:
		return "dry run"
	case e.TakesBack != "" && e.Status == tend.HealReady:
		return "done"
	case e.TakesBack != "":
		return "refused"
	case e.TakenBack != "":
		return "taken back"
	}
	return e.Status.String()
}

func remedyText(r tend.HealRemedy) string {
	if r.Name != "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind
}

// printEpisode writes all that is known of an episode.
func (inv *invocation) printEpisode(e *tend.EpisodeRecord) error {
	if inv.flags.JSON {
		f := episodeFactsOf(&e.Episode)
		f.Diff = string(e.Diff)
		for line := range strings.Lines(string(e.Transcript)) {
			if json.Valid([]byte(line)) {
				f.Transcript = append(f.Transcript, json.RawMessage(strings.TrimSpace(line)))
			}
		}
		return printJSON(inv.out, f)
	}
	return inv.printLines(episodeText(e))
}

func episodeText(e *tend.EpisodeRecord) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s", e.ID, e.Service, episodeStatus(&e.Episode))
	if !e.Over() {
		fmt.Fprintf(&b, " (%s)", e.Doing)
	}
	b.WriteByte('\n')
	for _, s := range e.Signals {
		fmt.Fprintf(&b, "seen      %s", s.Kind)
		if s.Text != "" {
			fmt.Fprintf(&b, ": %s", indented(s.Text))
		}
		b.WriteByte('\n')
	}
	if e.DryRun {
		for _, r := range e.Remedies {
			fmt.Fprintf(&b, "would try %s: %s\n", remedyText(r), indented(r.Why))
		}
		if len(e.Remedies) == 0 {
			b.WriteString("would try nothing: no rule matches, and no model is declared\n")
		}
	}
	for _, t := range e.Tries {
		tried, failed := "tried", "did not help"
		if t.Unreached {
			tried, failed = "not made", "the model did not answer"
		}
		fmt.Fprintf(&b, "%-9s %s: %s\n", tried, remedyText(t.HealRemedy), indented(t.Why))
		if t.Text != "" {
			fmt.Fprintf(&b, "          %s\n", indented(t.Text))
		}
		if len(t.Paths) > 0 {
			fmt.Fprintf(&b, "          changed %s\n", strings.Join(t.Paths, ", "))
		}
		if t.Steps > 0 {
			fmt.Fprintf(&b, "          %d steps, %d tokens\n", t.Steps, t.Tokens)
		}
		if t.Failed != "" {
			fmt.Fprintf(&b, "          %s: %s\n", failed, indented(t.Failed))
		}
	}
	if e.TakenBack != "" {
		fmt.Fprintf(&b, "taken back by %s\n", e.TakenBack)
	}
	if e.Commit != "" {
		fmt.Fprintf(&b, "commit    %s\n", e.Commit)
	}
	for _, l := range e.Left {
		fmt.Fprintf(&b, "not in it %s\n", indented(l))
	}
	if e.Proposal != "" {
		fmt.Fprintf(&b, "proposal  %s\n", indented(e.Proposal))
	}
	if e.Why != "" && !e.DryRun {
		status := e.Status.String()
		if e.TakesBack != "" {
			status = episodeStatus(&e.Episode)
		}
		fmt.Fprintf(&b, "%-9s %s\n", status, indented(e.Why))
	}
	if len(e.Diff) > 0 {
		fmt.Fprintf(&b, "\n%s", e.Diff)
	}
	return b.String()
}

// indented is a text of several lines below each other.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n          ")
}
