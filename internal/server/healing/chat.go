package healing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

const (
	chatsDir  = "chats"
	keepChats = 20
	// LabelChat is on the processes of a chat.
	LabelChat = "tend.chat"
	// chatWorkers is how many processes may work on what the person did last, one after the
	// other; more end by themselves, and so does the turn.
	chatWorkers = 4
	// chatTries is how often one is started or found in all.
	chatTries = 2 * chatWorkers
)

// talk is a chat, and what this server does about it. Its fields belong to the loop of
// Healing.
type talk struct {
	order   *healer.Order
	journal *chat.Journal
	// busy: somebody starts and follows its workers.
	busy bool
}

func (s store) chat(id string) string { return filepath.Join(s.dir, chatsDir, id) }

func (o *talk) state() *chat.State { return o.journal.State() }

// openTalk reads a chat.
func (h *Healing) openTalk(id string) (*talk, error) {
	if !validID(id) || forgotten(h.store.chat(id)) {
		return nil, noChat(id)
	}
	o, err := healer.ReadOrder(h.store.chat(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, noChat(id)
	}
	if err != nil {
		return nil, err
	}
	t := &talk{order: o, journal: chat.Open(o.Path(healer.JournalFile))}
	_, err = t.journal.Read()
	return t, err
}

func noChat(id string) error {
	if id == "" {
		return errtext.New("there is no chat yet", process.ErrNotFound)
	}
	return errtext.New(fmt.Sprintf("there is no chat %.80q any more", id), process.ErrNotFound)
}

// findTalk finds the chat of the service that is declared, and continues with its turn.
func (h *Healing) findTalk() {
	if h.talk = nil; h.declared == nil {
		return
	}
	for _, id := range h.store.chats() {
		t, err := h.followed[id], error(nil)
		if t == nil { // else another service was declared in the midst of its turn
			t, err = h.openTalk(id)
		}
		if err != nil || t.order.Service != h.declared.Service {
			continue
		}
		if h.talk = t; t.state().Phase == chat.Working || t.state().Phase == chat.Stopping {
			h.goOn(t)
		}
		return
	}
}

// talking reports whether a chat changes the project.
func (h *Healing) talking() bool { return h.talk != nil && h.talk.busy }

// meant checks that a call is for the service that the healer is for.
func (h *Healing) meant(service string) error {
	switch d := h.declared; {
	case d == nil:
		return errtext.New("no service has a healer; add the lines healer: and llm: to the tend.yaml, and run tend up -d", process.ErrUnsupported)
	case service != "" && service != d.Service:
		return &process.InvalidError{Field: "service", Reason: fmt.Sprintf("is %.80q; the healer is for %s (healer.service in %s)",
			service, d.Service, filepath.Base(d.File))}
	}
	return nil
}

// current returns the chat that is meant; "": the one that there is.
func (h *Healing) current(service, id string) (*talk, error) {
	if err := h.meant(service); err != nil {
		return nil, err
	}
	if h.talk == nil || id != "" && h.talk.order.ID != id {
		return nil, noChat(id)
	}
	return h.talk, nil
}

// SendChat begins a turn. It returns the chat and the number of the message.
func (h *Healing) SendChat(ctx context.Context, service, text, id string) (name string, seq int64, err error) {
	ierr := h.in(ctx, func() {
		if err = h.meant(service); err != nil {
			return
		}
		switch d := h.declared; {
		case d.Healer.LLM == nil:
			err = errtext.New("no model is declared; add llm: to healer in the tend.yaml, and run tend up -d", process.ErrUnsupported)
		case d.Key == "":
			err = errtext.New("tend up found no key of the model in its environment; set it, and run tend up -d", process.ErrUnsupported)
		case h.talk == nil:
			h.talk, err = h.newTalk()
		}
		if err != nil {
			return
		}
		t := h.talk
		name = t.order.ID
		h.catchEnd()
		fresh := false
		err = t.journal.Append(h.alive, func(s *chat.State) ([]chat.Entry, error) {
			switch {
			case id != "" && s.LastID == id:
				return nil, nil // it is sent again
			case h.episode != nil:
				return nil, &refusedError{"the service is being repaired; wait, or stop that first"}
			case s.Phase == chat.Asking:
				return nil, &refusedError{"the chat waits for an answer to its question; answer it, or stop it"}
			case s.Phase != chat.Idle:
				return nil, &refusedError{"the model is still working; wait, or stop it"}
			}
			fresh = true
			return []chat.Entry{{Kind: chat.Said, Text: text, ID: id}}, nil
		})
		if errors.Is(err, chat.ErrFull) {
			err = &refusedError{err.Error()}
		}
		if seq = t.state().LastSaid; err == nil && fresh {
			h.goOn(t)
		}
	})
	return name, seq, errors.Join(err, ierr)
}

// newTalk makes a chat in which nothing was said.
func (h *Healing) newTalk() (*talk, error) {
	o, err := h.talkOrder(newID(time.Now()))
	if err != nil {
		return nil, err
	}
	for n, id := range h.store.chats() {
		if n >= keepChats {
			_ = h.forgetTalk(id) // else with the next one
		}
	}
	h.sweepTalks()
	return &talk{order: o, journal: chat.Open(o.Path(healer.JournalFile))}, nil
}

// talkOrder writes what a worker has to know, as it is declared now.
func (h *Healing) talkOrder(id string) (*healer.Order, error) {
	d := h.declared
	rules, err := h.rulesOf(d.Service)
	if err != nil {
		return nil, err
	}
	o := &healer.Order{
		ID: id, Dir: h.store.chat(id), StateDir: h.c.StateDir, Keys: h.store.path(declaredFile), URL: h.c.URL, File: d.File,
		Rules: rules.Rules, Healer: d.Healer, Service: d.Service, At: time.Now(),
		SandboxID: h.sandboxNow(rules.Rules),
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return o, atomicfile.Synced(o.Path(healer.OrderFile), data, 0o600)
}

// AnswerChat answers a question.
func (h *Healing) AnswerChat(ctx context.Context, service, id string, question int64, yes bool) (err error) {
	ierr := h.in(ctx, func() {
		var t *talk
		if t, err = h.current(service, id); err != nil {
			return
		}
		h.catchEnd()
		fresh := false
		err = t.journal.Append(h.alive, func(s *chat.State) ([]chat.Entry, error) {
			switch given, ok := s.Answers[question]; {
			case ok && given == yes:
				return nil, nil // it is answered again
			case s.Phase != chat.Asking || s.Question != question:
				return nil, &refusedError{fmt.Sprintf("nobody asks question %d any more", question)}
			case h.episode != nil && yes:
				return nil, &refusedError{"the service is being repaired; wait, or stop that first"}
			}
			fresh = true
			return []chat.Entry{{Kind: chat.Answer, Question: question, Yes: yes}}, nil
		})
		if err == nil && fresh {
			h.goOn(t)
		}
	})
	return errors.Join(err, ierr)
}

// StopChat ends the turn that is under way.
func (h *Healing) StopChat(ctx context.Context, service, id string) (err error) {
	ierr := h.in(ctx, func() {
		var t *talk
		if t, err = h.current(service, id); err != nil {
			return
		}
		err = t.journal.Append(h.alive, func(s *chat.State) ([]chat.Entry, error) {
			switch s.Phase {
			case chat.Working:
				return []chat.Entry{{Kind: chat.Stopped}}, nil
			case chat.Asking: // nobody works on it
				return []chat.Entry{{Kind: chat.Stopped}, {Kind: chat.End, Text: "stopped"}}, nil
			}
			return nil, nil
		})
	})
	return errors.Join(err, ierr)
}

// Chats lists all.
func (h *Healing) Chats(ctx context.Context) (all []*tendv1.Chat, err error) {
	for _, id := range h.store.chats() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if t, err := h.openTalk(id); err == nil { // else it is being made, or removed
			all = append(all, t.message())
		}
	}
	return all, nil
}

func (o *talk) message() *tendv1.Chat {
	s := o.state()
	m := &tendv1.Chat{
		Id: o.order.ID, Service: o.order.Service, State: tendv1.ChatState(s.Phase) + 1, Entries: s.Entries, At: stamp(s.At),
		TokensRead: s.Total.Input + s.Total.CacheRead + s.Total.CacheWrite, TokensWritten: s.Total.Output, Cost: s.Cost,
	}
	if s.Phase == chat.Asking {
		m.Question = s.Question
	}
	return m
}

// goOn has workers go on with the turn, one after the other, until it is over or waits for
// the person.
func (h *Healing) goOn(t *talk) {
	if t.busy {
		return // whoever does looks again before it ends
	}
	t.busy = true
	h.followed[t.order.ID] = t
	if h.declared != nil && h.declared.Service == t.order.Service {
		if o, err := h.talkOrder(t.order.ID); err == nil { // else with what was declared before
			t.order = o
		}
	}
	did := t.did()
	h.wg.Go(func() {
		for tries := 1; h.alive.Err() == nil; tries++ {
			_ = h.workOn(h.alive, t.order) // it counts as a try, too
			over := false
			if h.in(h.alive, func() {
				if now := t.did(); now != did {
					did, tries = now, 0
				}
				over = h.rest(t, tries)
			}) != nil || over {
				return
			}
			backoff.Wait(h.alive, again*time.Duration(max(tries, 1)))
		}
	})
}

// did identifies the last action of the person.
func (o *talk) did() [2]int64 { return [2]int64{o.state().LastSaid, o.state().Question} }

// rest checks a chat whose worker has ended, and reports whether no further worker is
// needed.
func (h *Healing) rest(t *talk, tries int) bool {
	if dir := t.order.Dir; !forgotten(dir) {
		err := t.journal.Append(h.alive, func(s *chat.State) ([]chat.Entry, error) {
			switch {
			case s.Phase == chat.Stopping && tries > 1:
				return []chat.Entry{{Kind: chat.End, Text: "stopped"}}, nil
			case s.Phase == chat.Working && (s.Workers >= chatWorkers || tries >= chatTries):
				return []chat.Entry{{Kind: chat.End, Text: "what works on it has ended again and again; tend doctor and the daemon's log may say why",
					Error: true}}, nil
			}
			return nil, nil
		})
		if err != nil && !forgotten(dir) { // else somebody has removed it
			h.c.Log.Error("a chat cannot be written", "chat", t.order.ID, "err", err)
			return false
		}
		if p := t.state().Phase; err == nil && (p == chat.Working || p == chat.Stopping) {
			return false
		}
	}
	t.busy = false
	delete(h.followed, t.order.ID)
	h.wg.Go(func() { h.catchUp(h.alive) })
	return true
}

// workOn starts a worker of a chat, or finds the one of a server before, and returns when it
// has ended. The error is why none could be started.
func (h *Healing) workOn(ctx context.Context, o *healer.Order) error {
	labels := map[string]string{LabelChat: o.ID, labelWorker: "1"}
	all, err := h.c.Manager.List(ctx, process.Filter{Live: true, Labels: labels})
	var p process.Process
	if err == nil && len(all) > 0 {
		p, err = h.c.Manager.Get(ctx, process.Selector{ID: all[0].ID})
	} else if err == nil {
		p, err = h.startOf(ctx, process.Spec{
			Name: "chat-" + o.Service, Argv: append(append([]string{}, h.c.Program...), "heal-chat", o.Dir), Dir: o.Dir, Labels: labels,
			Timeout: o.Healer.Wall.Std() + spare,
		})
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, process.ErrUnavailable) {
			h.c.Log.Error("a worker of a chat could not be started", "chat", o.ID, "err", err)
		}
		return err
	}
	for ctx.Err() == nil {
		if _, err := p.Wait(ctx, process.Until{}); err == nil || errors.Is(err, process.ErrNotFound) {
			break
		}
		backoff.Wait(ctx, again)
	}
	return nil
}

// startOf starts a worker with the bounds of one.
func (h *Healing) startOf(ctx context.Context, spec process.Spec) (process.Process, error) {
	spec.TimeoutScope, spec.Env = process.ScopeTree, map[string]string{"GOMEMLIMIT": goMemory}
	spec.Limits = process.Limits{MemoryMax: workerMemory, PidsMax: workerPids}
	spec.Retention = process.Retention{TTL: workerTTL, Limit: 1 << 20}
	for {
		p, err := h.c.Manager.Start(ctx, spec)
		taken := healer.Lessen(&spec.Limits, err)
		if taken == "" {
			return p, err
		}
		h.c.Log.Warn("a worker runs without a limit", "limit", taken, "err", err)
	}
}
