package native

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// Bounds of calls about chats, in bytes.
const (
	maxSaid   = 32 << 10
	maxSaidID = 64
)

// Chats are conversations between people and a model about a service. An empty service is
// the one with a healer, an empty ID its present chat.
type Chats interface {
	// SendChat returns the chat and the number of the message once it is written down.
	SendChat(ctx context.Context, service, text, id string) (chat string, seq int64, err error)
	// FollowChat sends a chat from after a number on, and what becomes of it; nil: nothing is
	// new at this look. It looks each second at least.
	FollowChat(ctx context.Context, service, chat string, after int64, send func(*tendv1.FollowChatResponse) error) error
	AnswerChat(ctx context.Context, service, chat string, question int64, yes bool) error
	StopChat(ctx context.Context, service, chat string) error
	ClearChat(ctx context.Context, service, chat string) error
	Chats(ctx context.Context) ([]*tendv1.Chat, error)
}

// chats implements the ChatService.
type chats struct {
	kept      Chats // nil: there are none
	heartbeat time.Duration
	stopping  <-chan struct{}
}

// check checks what names a chat.
func (c *chats) check(service, id string) error {
	if c.kept == nil {
		return fmt.Errorf("chats: %w", process.ErrUnsupported)
	}
	return errors.Join(checkWord("service", service, maxServiceName), checkWord("chat", id, maxEpisodeID))
}

func (c *chats) Send(ctx context.Context,
	req *connect.Request[tendv1.SendChatRequest]) (*connect.Response[tendv1.SendChatResponse], error) {
	m := req.Msg
	if err := c.check(m.GetService(), ""); err != nil {
		return nil, wireError(err)
	}
	text := m.GetText()
	switch {
	case len(text) > maxSaid:
		return nil, wireError(checkWord("text", text, maxSaid))
	case strings.TrimSpace(text) == "":
		return nil, wireError(&process.InvalidError{Field: "text", Reason: "is empty; say something"})
	case !utf8.ValidString(text):
		return nil, wireError(&process.InvalidError{Field: "text", Reason: "is not UTF-8"})
	}
	if err := checkWord("id", m.GetId(), maxSaidID); err != nil {
		return nil, wireError(err)
	}
	chat, seq, err := c.kept.SendChat(ctx, m.GetService(), text, m.GetId())
	return answer(&tendv1.SendChatResponse{Chat: chat, Seq: seq}, err)
}

func (c *chats) Follow(ctx context.Context, req *connect.Request[tendv1.FollowChatRequest],
	stream *connect.ServerStream[tendv1.FollowChatResponse]) error {
	m := req.Msg
	if err := c.check(m.GetService(), m.GetChat()); err != nil {
		return wireError(err)
	}
	if m.GetAfter() < 0 {
		return wireError(&process.InvalidError{Field: "after", Reason: fmt.Sprintf("is %d; it counts entries from 0", m.GetAfter())})
	}
	return looks[tendv1.FollowChatResponse]{
		every: c.heartbeat, heartbeat: &tendv1.FollowChatResponse{Heartbeat: true},
		stopping: c.stopping, away: &tendv1.FollowChatResponse{GoingAway: true},
	}.send(stream, func(send func(*tendv1.FollowChatResponse) error) error {
		return c.kept.FollowChat(ctx, m.GetService(), m.GetChat(), m.GetAfter(), send)
	})
}

func (c *chats) Answer(ctx context.Context,
	req *connect.Request[tendv1.AnswerChatRequest]) (*connect.Response[tendv1.AnswerChatResponse], error) {
	m := req.Msg
	if err := c.check(m.GetService(), m.GetChat()); err != nil {
		return nil, wireError(err)
	}
	if m.GetQuestion() <= 0 {
		return nil, wireError(&process.InvalidError{Field: "question", Reason: fmt.Sprintf("is %d; it is the number of an entry",
			m.GetQuestion())})
	}
	return answer(&tendv1.AnswerChatResponse{}, c.kept.AnswerChat(ctx, m.GetService(), m.GetChat(), m.GetQuestion(), m.GetYes()))
}

func (c *chats) Stop(ctx context.Context,
	req *connect.Request[tendv1.StopChatRequest]) (*connect.Response[tendv1.StopChatResponse], error) {
	if err := c.check(req.Msg.GetService(), req.Msg.GetChat()); err != nil {
		return nil, wireError(err)
	}
	return answer(&tendv1.StopChatResponse{}, c.kept.StopChat(ctx, req.Msg.GetService(), req.Msg.GetChat()))
}

func (c *chats) List(ctx context.Context,
	_ *connect.Request[tendv1.ListChatsRequest]) (*connect.Response[tendv1.ListChatsResponse], error) {
	if err := c.check("", ""); err != nil {
		return nil, wireError(err)
	}
	all, err := c.kept.Chats(ctx)
	return answer(&tendv1.ListChatsResponse{Chats: all}, err)
}

func (c *chats) Clear(ctx context.Context,
	req *connect.Request[tendv1.ClearChatRequest]) (*connect.Response[tendv1.ClearChatResponse], error) {
	if err := c.check(req.Msg.GetService(), req.Msg.GetChat()); err != nil {
		return nil, wireError(err)
	}
	return answer(&tendv1.ClearChatResponse{}, c.kept.ClearChat(ctx, req.Msg.GetService(), req.Msg.GetChat()))
}
