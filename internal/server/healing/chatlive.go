package healing

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

// FollowChat sends the chat of a service, from after a number on, and what becomes of it. While
// nothing is new it sends nil, at each look; an error of send ends it.
func (h *Healing) FollowChat(ctx context.Context, service, id string, after int64, send func(*tendv1.FollowChatResponse) error) error {
	l := &liveChat{h: h, service: service, id: id, after: after}
	for {
		m, more, err := l.poll(ctx)
		if err != nil {
			return err
		}
		if err := send(m); err != nil {
			return err
		}
		if !more && !backoff.Wait(ctx, liveEvery) {
			return ctx.Err()
		}
	}
}

// liveChat is the state of a chat that one watcher has received.
type liveChat struct {
	h           *Healing
	service, id string
	after       int64
	talk        *talk // nil: none was looked at
	told        bool  // what there is
	print       print // of the journal
	words       print
	said        int64 // the newest message of the person
	waiting     []*tendv1.ChatEntry
}

// poll returns what is new, or nil, and whether there is more.
func (l *liveChat) poll(ctx context.Context) (m *tendv1.FollowChatResponse, more bool, err error) {
	now, err := l.h.newestChat(ctx, l.service)
	if err != nil {
		return nil, false, err
	}
	m = &tendv1.FollowChatResponse{}
	if now != l.id || l.talk == nil && now != "" {
		if err := l.begin(now); err != nil {
			return nil, false, err
		}
		l.told = false
	}
	if l.talk == nil {
		if !l.told {
			l.told, m.Chat, m.Words = true, &tendv1.Chat{}, &tendv1.ChatWords{}
			return m, false, nil
		}
		return nil, false, nil
	}
	of := &live{dir: l.talk.order.Dir}
	if p := of.print(healer.JournalFile); p != l.print {
		entries, err := l.talk.journal.Read()
		if errors.Is(err, os.ErrNotExist) {
			return nil, false, nil // it was cleared at this moment
		}
		if err != nil {
			return nil, false, err
		}
		l.print = p
		l.add(entries)
		l.told = false
	}
	if !l.told {
		l.told, m.Chat = true, l.talk.message()
	}
	size := 0
	for len(l.waiting) > 0 && (size == 0 || size+proto.Size(l.waiting[0]) <= livePiece) {
		size += proto.Size(l.waiting[0])
		m.Entries, l.waiting = append(m.Entries, l.waiting[0]), l.waiting[1:]
	}
	if p := of.print(healer.WordsFile); p != l.words {
		l.words = p
		w := of.saying()
		m.Words = &tendv1.ChatWords{Text: w.GetText(), Tool: w.GetTool()}
	}
	if proto.Size(m) == 0 && m.Words == nil {
		return nil, false, nil
	}
	return m, len(l.waiting) > 0, nil
}

// begin begins with another chat than before, or with the first one.
func (l *liveChat) begin(id string) error {
	after := int64(0)
	if id == l.id {
		after = l.after
	}
	l.id, l.after, l.said, l.talk, l.waiting = id, after, 0, nil, nil
	if id == "" {
		return nil
	}
	t, err := l.h.openTalk(id)
	if errors.Is(err, process.ErrNotFound) {
		l.id = "" // it is being made, or was cleared at this moment
		return nil
	}
	if err != nil {
		return err
	}
	if end := t.state().Entries; after > end {
		return &process.InvalidError{Field: "after", Reason: fmt.Sprintf("is %d; the chat has %d entries", after, end)}
	}
	t.journal = chat.Open(t.order.Path(healer.JournalFile)) // from its beginning
	l.talk, l.print, l.words = t, print{size: -2}, print{size: -2}
	return nil
}

// add makes messages of what is new.
func (l *liveChat) add(entries []chat.Entry) {
	for _, e := range entries {
		if e.Kind == chat.Said {
			l.said = e.Seq
		}
		if e.Seq <= l.after {
			continue
		}
		kind := e.Kind
		switch kind {
		case chat.Began, chat.Again, chat.Told:
			kind = "" // of no interest; but numbers have no gaps
		}
		one := &tendv1.ChatEntry{Seq: e.Seq, At: stamp(e.At), Kind: kind, Tool: e.Tool, Call: e.Call, Input: e.Input, Error: e.Error,
			Diff: []byte(e.Diff), Question: e.Question, Yes: e.Yes}
		switch kind {
		case "":
		case chat.Back:
			one.Turn, one.Episode = e.Turn, e.Episode // the text is for the model
		case chat.End:
			one.Text, one.Turn = e.Text, l.said
			one.CanRollBack = l.talk.state().TakenBack[l.said] == "" && canTakeBack(l.talk, l.said) == nil
		default:
			one.Text = e.Text
		}
		l.waiting = append(l.waiting, one)
	}
}

// newestChat returns the ID of the chat of a service; "": there is none.
func (h *Healing) newestChat(ctx context.Context, service string) (id string, err error) {
	h.mu.Lock()
	id, of := h.shown.chat, h.shown.service
	h.mu.Unlock()
	if service != "" && of != service {
		return "", nil
	}
	return id, ctx.Err()
}
