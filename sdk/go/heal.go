package tend

import (
	"context"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// HealStatus is the state of a service for the healer.
type HealStatus uint8

const (
	HealNone      HealStatus = iota // the healer is not for this service
	HealRunning                     // nothing is known to be wrong
	HealSuspected                   // something is wrong; the healer finds out what
	HealHealing                     //
	HealVerifying                   // a remedy was applied; the healer checks whether it has helped
	HealReady                       // it was repaired
	HealBroken                      // the repair failed; the healer does nothing more by itself
)

func (s HealStatus) String() string {
	return word("status", s, "", "running", "suspected", "healing", "verifying", "ready", "broken")
}

// Episode is one repair of one service.
type Episode struct {
	ID, Service string
	Status      HealStatus
	// Doing is the current step: look, checkpoint, act, verify, review, commit, rollback;
	// over when the episode has ended.
	Doing string
	// Why it ended as it did.
	Why string
	// Opened and Ended; Ended is zero until it has.
	Opened, Ended time.Time
	// Signals are the observed faults, the earliest first.
	Signals []HealSignal
	// Remedies are the candidates, and Tries those that were started.
	Remedies []HealRemedy
	Tries    []HealTry
	// Commit is the commit that was made; "": none. Left lists changes that are in no
	// commit, and why.
	Commit string
	Left   []string
	// Dirty: the changes of an attempt could not be rolled back.
	Dirty bool
	// Proposal is what a person could do.
	Proposal string
	// DryRun: the episode only found out what would be tried.
	DryRun bool
	// Workers are the processes that have worked on it, one after the other.
	Workers int
	// Unreached says why the model does not answer, while tend waits for it, or if it
	// never answered; "": it answers, or none was asked.
	Unreached string
	// TakesBack is the episode whose repair this one takes back: HealReady means that it did,
	// HealBroken that it did not; or CHAT/TURN, a turn of a chat. "": this one is a repair.
	TakesBack string
	// TakenBack is the episode that took this one back; "": none did.
	TakenBack string
	// Changed are the paths that prevent taking the repair back.
	Changed []string
	// CanRollBack: there is something to take back. RollBack says whether it may be taken
	// back.
	CanRollBack bool
	// Held is the hash of a change by a model that waits for a person, HeldWhy why it does; "": none waits.
	// The Diff of an [EpisodeRecord] is that change.
	Held, HeldWhy string
	// Running is the command of a playbook that runs, such as an install; nil: none does.
	Running *HealCommand
}

// HealCommand is a command of a playbook that runs.
type HealCommand struct {
	Command string
	Begun   time.Time
	Line    string // the last of its output, secrets hidden
}

// Over reports whether it has ended.
func (e *Episode) Over() bool { return !e.Ended.IsZero() }

// HealSignal is the reason of an episode: an observed fault (exit, flap, health, stuck,
// pressure), a request for a repair (asked), or a request to take one back (rollback).
type HealSignal struct {
	Kind, Text string
	At         time.Time
}

// HealRemedy is one thing to try: wait, restart, playbook, model or undo.
type HealRemedy struct{ Kind, Name, Why string }

// HealTry is a remedy that was started.
type HealTry struct {
	HealRemedy
	Begun, Ended time.Time
	// Failed says why it did not help; "": it helped, or it is still running.
	Failed, Text string
	Paths        []string
	// Tokens and Steps are the model's usage.
	Tokens, Steps int64
	// Cost of the usage, by healer.llm.prices; 0: no prices are configured.
	Cost float64
	// Unreached: the model did not answer, so nothing was tried. This does not count as an
	// attempt.
	Unreached bool
}

// Episodes returns up to 100 repairs of a service, the newest first; "": of all
// services.
func (c *Client) Episodes(ctx context.Context, service string) (all []Episode, err error) {
	req := &tendv1.ListEpisodesRequest{Service: service}
	err = c.aboutServices(ctx, c.call, unary(c.kept.ListEpisodes, req, func(m *tendv1.ListEpisodesResponse) error {
		all = make([]Episode, len(m.GetEpisodes()))
		for i, e := range m.GetEpisodes() {
			all[i] = toEpisode(e)
		}
		return nil
	}))
	return all, err
}

// EpisodeRecord is an episode with its stored diff and transcript.
type EpisodeRecord struct {
	Episode
	// Diff has the changes, in unified format; Transcript has the conversation with the
	// model and its actions, as JSON lines. Secrets are hidden in both.
	Diff, Transcript []byte
}

// Episode returns one repair; "": the newest.
func (c *Client) Episode(ctx context.Context, id string) (out EpisodeRecord, err error) {
	err = c.aboutServices(ctx, c.call, unary(c.kept.GetEpisode, &tendv1.GetEpisodeRequest{Id: id}, func(m *tendv1.GetEpisodeResponse) error {
		out = EpisodeRecord{Episode: toEpisode(m.GetEpisode()), Diff: m.GetDiff(), Transcript: m.GetTranscript()}
		return nil
	}))
	return out, err
}

// Heal starts a repair of a service, in whatever state it is, and returns the ID of the
// episode. If service is "", it is the service that the healer is configured for. With
// dryRun the episode only finds out what would be tried. The call is not repeated if
// the answer is lost.
func (c *Client) Heal(ctx context.Context, service string, dryRun bool) (id string, err error) {
	req := &tendv1.HealRequest{Service: service, DryRun: dryRun}
	err = c.aboutServices(ctx, c.once, unary(c.kept.Heal, req, func(m *tendv1.HealResponse) error {
		id = tendpb.CleanName(m.GetEpisode())
		return nil
	}))
	return id, err
}

// ApplyHeld applies the change by a model that waits under a hash ([Episode.Held]), in an episode of its own,
// and returns its ID once it is clear that it may be done. The error is a [*ChangedError] if files have
// changed that it is based on, and process.ErrNotFound if no change of that hash waits. The service is
// watched then, and exactly the change is taken back if it is not well. The call is not repeated if
// the answer is lost.
func (c *Client) ApplyHeld(ctx context.Context, hash string) (id string, err error) {
	if hash == "" {
		return "", errNoHash
	}
	err = c.aboutServices(ctx, c.once, unary(c.kept.Heal, &tendv1.HealRequest{Apply: hash}, func(m *tendv1.HealResponse) error {
		id = tendpb.CleanName(m.GetEpisode())
		return nil
	}))
	return id, err
}

var errNoHash = &process.InvalidError{Field: "hash", Reason: "is missing"}

// DiscardHeld removes it instead.
func (c *Client) DiscardHeld(ctx context.Context, hash string) error {
	if hash == "" {
		return errNoHash
	}
	return c.aboutServices(ctx, c.once, unary(c.kept.Heal, &tendv1.HealRequest{Discard: hash}, nil))
}

// CancelHeal ends a repair and rolls back its changes; "": the running one. It returns
// when the request is recorded.
func (c *Client) CancelHeal(ctx context.Context, id string) error {
	return c.aboutServices(ctx, c.call, unary(c.kept.CancelHeal, &tendv1.CancelHealRequest{Id: id}, nil))
}

// ChangedError says that files have changed since, so nothing was done. Paths are those
// files; of very many only the first.
type ChangedError = tendpb.ChangedError

// RollBack takes back the changes of a finished repair: with one new commit of the
// paths that the repair committed, or, if it committed nothing, from the copies that it
// kept. Nothing else is touched. Then the service is restarted. RollBack returns the ID
// of the episode that does this, once it is clear that it may be done. It is safe to
// repeat. With the id CHAT/TURN it takes back the changes of a turn of a chat, which
// are in no commit.
//
// The error is a [*ChangedError] if one of those paths has changed since,
// [process.ErrRunning] if the service is being repaired or git is in the middle of an
// operation, and [process.ErrUnsupported] if there is nothing to take back.
func (c *Client) RollBack(ctx context.Context, id string) (back string, err error) {
	req := &tendv1.RollBackEpisodeRequest{Id: id}
	err = c.aboutServices(ctx, c.call, unary(c.kept.RollBackEpisode, req, func(m *tendv1.RollBackEpisodeResponse) error {
		back = tendpb.CleanName(m.GetEpisode())
		return nil
	}))
	return back, err
}

func toEpisode(m *tendv1.Episode) Episode {
	e := Episode{
		ID: tendpb.CleanName(m.GetId()), Service: tendpb.CleanName(m.GetService()), Status: HealStatus(max(0, m.GetStatus())),
		Doing: tendpb.CleanName(m.GetDoing()), Opened: tendpb.ToTime(m.GetOpened()), Ended: tendpb.ToTime(m.GetEnded()),
		Why: tendpb.CleanText(m.GetWhy()), Commit: tendpb.CleanName(m.GetCommit()), Dirty: m.GetDirty(),
		Changed: mapped(m.GetChanged(), tendpb.CleanText), Left: mapped(m.GetLeft(), tendpb.CleanText),
		Remedies: mapped(m.GetRemedies(), toRemedy),
		Proposal: tendpb.CleanText(m.GetProposal()), DryRun: m.GetDryRun(), Workers: int(m.GetWorkers()),
		Unreached: tendpb.CleanText(m.GetUnreached()),
		TakesBack: tendpb.CleanName(m.GetTakesBack()), TakenBack: tendpb.CleanName(m.GetTakenBack()), CanRollBack: m.GetCanRollBack(),
		Held: tendpb.CleanName(m.GetHeld()), HeldWhy: tendpb.CleanText(m.GetHeldWhy()),
	}
	if r := m.GetRunning(); r != nil {
		e.Running = &HealCommand{tendpb.CleanText(r.GetCommand()), tendpb.ToTime(r.GetBegun()), tendpb.CleanText(r.GetLine())}
	}
	for _, s := range m.GetSignals() {
		e.Signals = append(e.Signals, HealSignal{Kind: tendpb.CleanName(s.GetKind()), Text: tendpb.CleanText(s.GetText()),
			At: s.GetAt().AsTime()})
	}
	for _, t := range m.GetTries() {
		e.Tries = append(e.Tries, HealTry{
			HealRemedy: toRemedy(t.GetRemedy()), Begun: t.GetBegun().AsTime(), Ended: tendpb.ToTime(t.GetEnded()),
			Failed: tendpb.CleanText(t.GetFailed()), Text: tendpb.CleanText(t.GetText()), Paths: mapped(t.GetPaths(), tendpb.CleanText),
			Tokens: t.GetTokens(), Steps: t.GetSteps(), Cost: t.GetCost(), Unreached: t.GetUnreached(),
		})
	}
	return e
}

func toRemedy(m *tendv1.HealRemedy) HealRemedy {
	return HealRemedy{Kind: tendpb.CleanName(m.GetKind()), Name: tendpb.CleanText(m.GetName()), Why: tendpb.CleanText(m.GetWhy())}
}
