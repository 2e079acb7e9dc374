package tend

import (
	"context"
	"fmt"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
)

// HealStatus is what the healer knows of a service.
type HealStatus uint8

const (
	HealNone      HealStatus = iota // the healer is not for this service
	HealRunning                     // nothing is known to be wrong
	HealSuspected                   // something is, and it is being found out what
	HealHealing                     //
	HealVerifying                   // something was done, and it is being found out whether it has helped
	HealReady                       // it was repaired
	HealBroken                      // it was not, and nothing more is done by itself
)

var healStatuses = [...]string{"", "running", "suspected", "healing", "verifying", "ready", "broken"}

func (s HealStatus) String() string {
	if int(s) < len(healStatuses) {
		return healStatuses[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Episode is one repair of one service.
type Episode struct {
	ID, Service string
	Status      HealStatus
	// Doing is what is being done: look, checkpoint, act, verify, review, commit,
	// rollback; over when it has ended.
	Doing string
	// Why it ended as it did.
	Why string
	// Opened and Ended; Ended is zero until it has.
	Opened, Ended time.Time
	// Signals are what was seen, the first of them first.
	Signals []HealSignal
	// Remedies there are to try, and Tries are those that were begun.
	Remedies []HealRemedy
	Tries    []HealTry
	// Commit that was made; "": none. Left is what was changed and is in none, and why.
	Commit string
	Left   []string
	// Dirty: what was tried could not be taken back.
	Dirty bool
	// Proposal is what a person might do.
	Proposal string
	// DryRun: nothing was to be changed.
	DryRun bool
	// Workers are the processes that have worked on it, one after the other.
	Workers int
	// Unreached is why the model does not answer, while it is waited for, and where it did
	// not at all; "": it does, or none was asked.
	Unreached string
	// TakesBack is the episode whose repair this one takes back: HealReady means that it did,
	// HealBroken that it did not; or CHAT/TURN, a turn of a chat. "": this one is a repair.
	TakesBack string
	// TakenBack is the episode that has taken this one back; "": none has.
	TakenBack string
	// Changed are the paths that keep a repair from being taken back.
	Changed []string
	// CanRollBack: there is something to go back to. Whether it may be, RollBack says.
	CanRollBack bool
}

// Over reports whether it has ended.
func (e *Episode) Over() bool { return !e.Ended.IsZero() }

// HealSignal is a fault that was seen: exit, flap, health, stuck, pressure or asked; or that
// somebody wants a repair taken back: rollback.
type HealSignal struct {
	Kind, Text string
	At         time.Time
}

// HealRemedy is one thing to try: wait, restart, playbook, model or undo.
type HealRemedy struct{ Kind, Name, Why string }

// HealTry is a remedy that was begun.
type HealTry struct {
	HealRemedy
	Begun, Ended time.Time
	// Failed says why it did not help; "": it did, or it is being tried.
	Failed, Text string
	Paths        []string
	// Tokens and Steps that a model has used.
	Tokens, Steps int64
	// Cost of that, by healer.llm.prices; 0: there are none.
	Cost float64
	// Unreached: the model did not answer, so that nothing was tried. It is no attempt.
	Unreached bool
}

// Episodes returns the newest repairs of a service, the newest first; "": of all. It is at
// most 100.
func (c *Client) Episodes(ctx context.Context, service string) ([]Episode, error) {
	if err := c.needsServices(ctx); err != nil {
		return nil, err
	}
	var all []Episode
	err := c.call(ctx, unary(c.kept.ListEpisodes, &tendv1.ListEpisodesRequest{Service: service}, func(m *tendv1.ListEpisodesResponse) error {
		all = make([]Episode, len(m.GetEpisodes()))
		for i, e := range m.GetEpisodes() {
			all[i] = toEpisode(e)
		}
		return nil
	}))
	return all, err
}

// EpisodeRecord is an episode with what is kept of it.
type EpisodeRecord struct {
	Episode
	// Diff is what was changed, in the unified form; Transcript is what was said to a
	// model, and what it did: JSON lines. Secrets are hidden in both.
	Diff, Transcript []byte
}

// Episode returns one repair; "": the newest.
func (c *Client) Episode(ctx context.Context, id string) (EpisodeRecord, error) {
	var out EpisodeRecord
	if err := c.needsServices(ctx); err != nil {
		return out, err
	}
	err := c.call(ctx, unary(c.kept.GetEpisode, &tendv1.GetEpisodeRequest{Id: id}, func(m *tendv1.GetEpisodeResponse) error {
		out = EpisodeRecord{Episode: toEpisode(m.GetEpisode()), Diff: m.GetDiff(), Transcript: m.GetTranscript()}
		return nil
	}))
	return out, err
}

// Heal begins to repair a service, whatever is known of it, and returns the ID of the
// episode; "": the service that the healer is for. With dryRun it is only found out what
// would be tried. It is not repeated when the answer is lost.
func (c *Client) Heal(ctx context.Context, service string, dryRun bool) (id string, err error) {
	if err := c.needsServices(ctx); err != nil {
		return "", err
	}
	err = c.once(ctx, unary(c.kept.Heal, &tendv1.HealRequest{Service: service, DryRun: dryRun}, func(m *tendv1.HealResponse) error {
		id = tendpb.CleanName(m.GetEpisode())
		return nil
	}))
	return id, err
}

// CancelHeal ends a repair, and has what it has changed taken back; "": the one that is
// under way. It returns when that is written down.
func (c *Client) CancelHeal(ctx context.Context, id string) error {
	if err := c.needsServices(ctx); err != nil {
		return err
	}
	return c.call(ctx, unary(c.kept.CancelHeal, &tendv1.CancelHealRequest{Id: id}, nil))
}

// ChangedError says that files have changed, and that nothing was done for it. Paths are those
// files, the first ones of very many.
type ChangedError = tendpb.ChangedError

// RollBack takes back what a repair has changed for good: by one new commit of the paths that
// it has committed, or, where it committed nothing, by what it has kept of them. Nothing
// else is touched, and then the service is restarted. It returns the ID of the episode that
// does this, once it is known that it may be done. It is safe to repeat. An id of CHAT/TURN is
// what a turn of a chat has changed, which is in no commit.
//
// [*ChangedError]: one of those paths has changed since. [process.ErrRunning]: the service is
// being repaired, or git is in the middle of something. [process.ErrUnsupported]: there
// is nothing to go back to.
func (c *Client) RollBack(ctx context.Context, id string) (back string, err error) {
	if err := c.needsServices(ctx); err != nil {
		return "", err
	}
	err = c.call(ctx, unary(c.kept.RollBackEpisode, &tendv1.RollBackEpisodeRequest{Id: id}, func(m *tendv1.RollBackEpisodeResponse) error {
		back = tendpb.CleanName(m.GetEpisode())
		return nil
	}))
	return back, err
}

func toEpisode(m *tendv1.Episode) Episode {
	e := Episode{
		ID: tendpb.CleanName(m.GetId()), Service: tendpb.CleanName(m.GetService()), Status: HealStatus(max(0, m.GetStatus())), Doing: tendpb.CleanName(m.GetDoing()),
		Why: tendpb.CleanText(m.GetWhy()), Commit: tendpb.CleanName(m.GetCommit()), Dirty: m.GetDirty(),
		Proposal: tendpb.CleanText(m.GetProposal()), DryRun: m.GetDryRun(), Workers: int(m.GetWorkers()), Unreached: tendpb.CleanText(m.GetUnreached()),
		TakesBack: tendpb.CleanName(m.GetTakesBack()), TakenBack: tendpb.CleanName(m.GetTakenBack()), CanRollBack: m.GetCanRollBack(),
	}
	for _, path := range m.GetChanged() {
		e.Changed = append(e.Changed, tendpb.CleanText(path))
	}
	if t := m.GetOpened(); t != nil {
		e.Opened = t.AsTime()
	}
	if t := m.GetEnded(); t != nil {
		e.Ended = t.AsTime()
	}
	for _, text := range m.GetLeft() {
		e.Left = append(e.Left, tendpb.CleanText(text))
	}
	for _, s := range m.GetSignals() {
		e.Signals = append(e.Signals, HealSignal{Kind: tendpb.CleanName(s.GetKind()), Text: tendpb.CleanText(s.GetText()), At: s.GetAt().AsTime()})
	}
	for _, r := range m.GetRemedies() {
		e.Remedies = append(e.Remedies, toRemedy(r))
	}
	for _, t := range m.GetTries() {
		one := HealTry{
			HealRemedy: toRemedy(t.GetRemedy()), Begun: t.GetBegun().AsTime(), Failed: tendpb.CleanText(t.GetFailed()), Text: tendpb.CleanText(t.GetText()),
			Tokens: t.GetTokens(), Steps: t.GetSteps(), Cost: t.GetCost(), Unreached: t.GetUnreached(),
		}
		if at := t.GetEnded(); at != nil {
			one.Ended = at.AsTime()
		}
		for _, p := range t.GetPaths() {
			one.Paths = append(one.Paths, tendpb.CleanText(p))
		}
		e.Tries = append(e.Tries, one)
	}
	return e
}

func toRemedy(m *tendv1.HealRemedy) HealRemedy {
	return HealRemedy{Kind: tendpb.CleanName(m.GetKind()), Name: tendpb.CleanText(m.GetName()), Why: tendpb.CleanText(m.GetWhy())}
}
