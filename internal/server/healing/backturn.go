package healing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/process"
)

// errEnding: the turn is over, and its worker about to end.
var errEnding = errors.New("what works on the chat is about to end")

// turnName names a turn, as RollBack takes it, by the message that it began with.
func turnName(chat string, said int64) string { return chat + "/" + strconv.FormatInt(said, 10) }

// turnOf is the opposite of turnName.
func turnOf(name string) (chat string, said int64, ok bool) {
	chat, number, ok := strings.Cut(name, "/")
	said, err := strconv.ParseInt(number, 10, 64)
	return chat, said, ok && err == nil && said > 0 && turnName(chat, said) == name
}

// openBackTurn starts to take a turn of a chat back, or finds the episode that does so,
// or did.
func (h *Healing) openBackTurn(name, id string, said int64) (string, error) {
	t, err := h.current("", id)
	if err != nil {
		return "", err
	}
	if _, err := t.journal.Read(); err != nil {
		return "", err
	}
	s, why := t.state(), h.occupied()
	if f := h.episode; f != nil && f.order.Back != nil && f.order.Back.Episode == name {
		return f.order.ID, nil
	}
	if done := s.TakenBack[said]; done != "" {
		if _, err := h.message(done); err == nil {
			return done, nil
		}
		return "", &refusedError{"it was taken back already, by " + done}
	}
	switch {
	case s.Phase != chat.Idle:
		return "", &refusedError{"a turn of the chat is under way: wait, or stop that first"}
	case h.episode == nil && h.talking():
		return "", errEnding
	case why != "":
		return "", &refusedError{why}
	}
	if err := canTakeBack(t, said); err != nil {
		return "", err
	}
	sandbox, err := h.sandboxOfTurn(t.order, chat.TurnFile(t.order.Dir, said))
	if err != nil {
		return "", err
	}
	return h.launchBack(t.order, sandbox, &healer.Back{Episode: name, Turn: said, Undo: chat.TurnFile(t.order.Dir, said)},
		fmt.Sprintf("what turn %d of the chat %s has changed", said, id))
}

// canTakeBack says why there is nothing to take a turn back by; nil: there is.
func canTakeBack(t *talk, said int64) error {
	s := t.state()
	nothing := func(why string) error { return errtext.New(why, process.ErrUnsupported) }
	call, made := s.Changing[said]
	if said > s.Entries {
		return errtext.New(fmt.Sprintf("the chat has no turn %d", said), process.ErrNotFound)
	}
	if !made {
		return nothing("there is nothing to go back to: no turn that began with message " + strconv.FormatInt(said, 10) + " has changed anything")
	}
	kept, err := chat.ReadTurn(chat.TurnFile(t.order.Dir, said))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nothing("what the turn has changed is not kept any more: the newest 20 turns are, up to 64 MiB")
	case err != nil:
		return err
	case kept.Call < call:
		return nothing("the turn cannot be taken back: a call of it was broken off, and what that has changed is not known; see what it has shown, and git")
	case kept.Why != "":
		return nothing("the turn cannot be taken back: " + kept.Why)
	case kept.Sandbox != nil && hasMoved(t.order, *kept.Sandbox):
		return nothing("the turn cannot be taken back: its service has moved to another sandbox since, or to the machine, or from it")
	case kept.Undo == nil:
		return nothing("there is nothing to go back to: the turn has changed nothing")
	}
	return nil
}

// hasMoved reports whether a turn was elsewhere than the newest one, whose order it is: in the
// sandbox with an ID, or, "", on the machine.
func hasMoved(o *healer.Order, id string) bool {
	return (id == "") != (o.Rules.Sandbox == "") || o.SandboxID != "" && o.SandboxID != id
}

// sandboxOfTurn is the ID of the sandbox that a turn has worked in, by its file; "": it was on the
// machine. The order is that of the newest turn.
func (h *Healing) sandboxOfTurn(o *healer.Order, file string) (string, error) {
	kept, err := chat.ReadTurn(file)
	if err != nil {
		return "", err
	}
	if kept.Sandbox != nil {
		return *kept.Sandbox, nil
	}
	info, err := os.Lstat(file)
	if err != nil {
		return "", err
	}
	return h.sandboxThen(o, "", info.ModTime())
}

// tookTurnBack records in the chat, once, that a turn was taken back, and removes the
// data that was needed for it.
func (h *Healing) tookTurnBack(f *follower) {
	id, said, _ := turnOf(f.order.Back.Episode)
	t := h.talk
	if t == nil || t.order.ID != id {
		var err error
		if t, err = h.openTalk(id); err != nil {
			return // it was cleared
		}
	}
	err := t.journal.Append(h.alive, func(s *chat.State) ([]chat.Entry, error) {
		if s.TakenBack[said] != "" {
			return nil, nil
		}
		return []chat.Entry{{
			Kind: chat.Back, Turn: said, Episode: f.order.ID,
			Text: "[The person has taken back what you have changed since their message number " + strconv.FormatInt(said, 10) +
				" of this conversation: those files are as they were before it. Read them anew before you change them.]",
		}}, nil
	})
	if err != nil {
		h.c.Log.Error("that a turn was taken back could not be stored", "chat", id, "turn", said, "err", err)
		return
	}
	_ = os.Remove(chat.TurnFile(t.order.Dir, said)) // else with the chat
}
