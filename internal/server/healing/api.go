package healing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

const (
	maxListed     = 100
	maxTranscript = 4 << 20 // bytes that are returned
	maxRunning    = 8 << 10
)

// List returns the episodes of a service, the newest first; "": of all. Nobody needs one by which
// nothing was taken back, since it was refused, which was said.
func (h *Healing) List(ctx context.Context, service string) ([]*tendv1.Episode, error) {
	var out []*tendv1.Episode
	for _, id := range h.store.episodes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := h.message(id)
		if err != nil {
			continue // it is being made, or removed
		}
		if (service == "" || m.GetService() == service) && !wasRefused(m) {
			out = append(out, m)
		}
		if len(out) == maxListed {
			break
		}
	}
	h.told(ctx, out...)
	return out, nil
}

// Get returns an episode with its diff and its transcript; "": the newest.
func (h *Healing) Get(ctx context.Context, id string) (*tendv1.GetEpisodeResponse, error) {
	m, err := h.newest(id)
	if err != nil {
		return nil, err
	}
	id = m.GetId()
	h.told(ctx, m)
	out := &tendv1.GetEpisodeResponse{Episode: m}
	if out.Diff, err = tailOf(filepath.Join(h.store.episode(id), healer.DiffFile), healer.MaxDiff); err != nil {
		return nil, err
	}
	if held := h.store.held(id); held != nil && m.GetHeld() != "" {
		out.Diff = []byte(held.Diff)
	}
	if out.Transcript, err = tailOf(filepath.Join(h.store.episode(id), healer.TranscriptFile), maxTranscript); err != nil {
		return nil, err
	}
	return out, nil
}

// newest is an episode; "": the newest that is listed.
func (h *Healing) newest(id string) (*tendv1.Episode, error) {
	if id != "" {
		return h.message(id)
	}
	for _, id := range h.store.episodes() {
		if m, err := h.message(id); err != nil || !wasRefused(m) {
			return m, err
		}
	}
	return nil, noEpisode("")
}

func wasRefused(m *tendv1.Episode) bool {
	return m.GetTakesBack() != "" && m.GetEnded() != nil && len(m.GetTries()) == 0 && m.GetWorkers() <= healer.MaxWorkers
}

// told is called before somebody is told of episodes. One whose journal says that it is over
// is then over for the server, too: it looks at the files of a broken service already, and so
// misses no change by the person who reads this.
func (h *Healing) told(ctx context.Context, all ...*tendv1.Episode) {
	h.mu.Lock()
	followed := h.shown.followed
	h.mu.Unlock()
	over := func(m *tendv1.Episode) bool { return m.GetEnded() != nil && m.GetId() == followed }
	if !slices.ContainsFunc(all, over) {
		return
	}
	_ = h.in(ctx, func() { // an error: the server ends
		if f := h.episode; f != nil {
			h.readOn(f)
		}
	})
}

func noEpisode(id string) error {
	if id == "" {
		return errtext.New("nothing was repaired yet", process.ErrNotFound)
	}
	return errtext.New(fmt.Sprintf("there is no episode %.80q; tend episodes lists all", id), process.ErrNotFound)
}

// tailOf returns the end of a file, from the beginning of a line; nil: there is no
// file.
func tailOf(path string, most int64) ([]byte, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, st.Size()-most)
	data, err := io.ReadAll(io.NewSectionReader(f, from, min(most, st.Size())))
	if from > 0 {
		if at := slices.Index(data, '\n'); at >= 0 {
			data = data[at+1:]
		}
	}
	return data, err
}

// message is an episode, by an ID from anywhere.
func (h *Healing) message(id string) (*tendv1.Episode, error) {
	if !validID(id) {
		return nil, noEpisode(id)
	}
	o, err := healer.ReadOrder(h.store.episode(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noEpisode(id)
	}
	if err != nil {
		return nil, err
	}
	entries, err := healer.ReadJournal(o.Path(healer.JournalFile))
	if err != nil {
		return nil, err
	}
	s := healer.Fold(entries)
	m := &tendv1.Episode{
		Id: id, Service: o.Service, Status: StatusOf(s.Status), Doing: s.Doing.String(), Why: s.Why, Opened: stamp(o.At), Ended: stamp(s.Ended),
		Commit: s.Committed, Left: s.Left, Dirty: s.Dirty, Proposal: s.Proposal, DryRun: o.DryRun, Workers: int32(s.Workers),
		Unreached: s.Unreached,
		TakesBack: s.Back, TakenBack: h.store.takenBack(id), Changed: s.Changed, CanRollBack: h.store.cannotRollBack(o, &s) == nil,
	}
	if held := h.store.held(id); held != nil && s.Done() && s.Status == healer.Broken {
		m.Held, m.HeldWhy = held.Hash, held.Why
	}
	if !s.Done() {
		m.Running = running(o)
	}
	for _, one := range s.Signals {
		m.Signals = append(m.Signals, &tendv1.HealSignal{Kind: one.Kind, Text: one.Text, At: stamp(one.At)})
	}
	for _, r := range s.Remedies {
		m.Remedies = append(m.Remedies, remedy(r))
	}
	for _, t := range s.Tries {
		m.Tries = append(m.Tries, &tendv1.HealTry{
			Remedy: remedy(t.Remedy), Begun: stamp(t.Begun), Ended: stamp(t.Ended), Failed: t.Failed, Text: t.Text, Paths: t.Paths,
			Tokens: t.Tokens, Steps: t.Steps, Cost: t.Cost,
			Unreached: t.Unreached,
		})
	}
	return m, nil
}

// running is the command of a playbook that runs; nil: none does.
func running(o *healer.Order) *tendv1.HealCommand {
	var r healer.Command
	data, err := atomicfile.Read(o.Path(healer.RunningFile), maxRunning)
	if err != nil || json.Unmarshal(data, &r) != nil {
		return nil
	}
	return &tendv1.HealCommand{Command: r.Command, Begun: stamp(r.Begun), Line: r.Line}
}

func remedy(r healer.Remedy) *tendv1.HealRemedy {
	return &tendv1.HealRemedy{Kind: r.Kind, Name: r.Name, Why: r.Why}
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// StatusOf is a status in messages.
func StatusOf(st healer.Status) tendv1.HealStatus { return tendv1.HealStatus(st + 1) }

// Heal begins an episode because somebody asks for it. It returns its ID.
func (h *Healing) Heal(ctx context.Context, service string, dry bool) (id string, err error) {
	ierr := h.in(ctx, func() {
		if d := h.declared; d != nil && service != "" && service != d.Service {
			err = &process.InvalidError{Field: "service", Reason: fmt.Sprintf("is %.80q; the healer is for %s (healer.service in %s)",
				service, d.Service, filepath.Base(d.File))}
			return
		}
		id, err = h.open(healer.Signal{Kind: "asked", Text: "somebody asked for it", At: time.Now()}, true, dry)
		h.show()
	})
	return id, errors.Join(err, ierr)
}

// Cancel ends the episode that is under way.
func (h *Healing) Cancel(ctx context.Context, id string) (err error) {
	ierr := h.in(ctx, func() {
		f := h.episode
		if f != nil {
			if f.read(h); f.state.Done() { // its worker is just ending
				f = nil
			}
		}
		switch {
		case f == nil && id == "":
			err = errtext.New("nothing is being repaired", process.ErrNotFound)
		case f == nil || id != "" && f.order.ID != id:
			if _, err = h.message(id); err == nil { // it has ended
				return
			}
		default:
			err = f.cancel()
		}
	})
	return errors.Join(err, ierr)
}
