package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
)

// maxAsked bounds the input of a call that a person is asked for, in bytes: all of it is
// shown.
const maxAsked = 32 << 10

// act carries out a call. One that changes something is between a checkpoint and its removal,
// by which its diff is known.
func (t *talker) act(ctx context.Context, tool agent.Tool, call agent.Block) (string, error) {
	s := t.chat.State()
	h := t.hands
	h.allowed, h.path = false, ""
	yes, answered := s.Answers[s.Question]
	if q := s.Asked[call.ID]; q != nil && q.Seq == s.Question && answered {
		if !yes {
			return "", errors.New("the person has not allowed it. Do not try it in another way; go on without it, or say what is needed")
		}
		if !t.start.Allowed[call.ID] {
			t.put(chat.Entry{Kind: chat.Again, Call: call.ID})
		}
		h.allowed, h.path = true, q.Path
	}
	text, err := t.made(ctx, tool, call)
	if h.allowed || !errors.Is(err, guard.ErrAsk) && !errors.Is(err, project.ErrNoCommands) {
		return text, err
	}
	return text, t.question(ctx, tool, call, err)
}

// made makes a call, with its diff.
func (t *talker) made(ctx context.Context, tool agent.Tool, call agent.Block) (string, error) {
	if !tool.Changes {
		return tool.Run(ctx, call.Input)
	}
	n := t.chat.State().Made
	if err := t.takePoint(ctx, n); err != nil {
		return "", err
	}
	text, err := tool.Run(ctx, call.Input)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	var kept error
	if t.hands.diff, kept = t.changed(last, n); kept != nil && t.lost() == nil { // else another worker keeps it
		kept = t.keep(n, nil, "what one of its calls has changed is not known: "+kept.Error())
		t.drop(last, n)
	}
	if kept != nil {
		t.fail(kept)
	}
	return text, err
}

// question asks the person whether a call may be made, which the guards have refused.
func (t *talker) question(ctx context.Context, tool agent.Tool, call agent.Block, why error) error {
	if len(call.Input) > maxAsked {
		return fmt.Errorf("%w. The person could be asked, but not for a call of more than %d bytes: make a smaller one, with old and new",
			why, maxAsked)
	}
	var in struct{ Path, Command string }
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return why
	}
	q := chat.Entry{Kind: chat.Question, Call: call.ID, Tool: tool.Name}
	switch tool.Name {
	case "exec":
		where := "on this machine"
		if t.sandbox != nil {
			where = "in the sandbox of the service"
		}
		q.Text = "run this command " + where + ", outside of its confinement: with the network, and all rights of the service"
	case "read", "list", "edit":
		var err error
		if q.Path, err = t.project.Where(ctx, in.Path); err != nil {
			return fmt.Errorf("%w (%w)", why, err)
		}
		verb := map[string]string{"read": "read", "list": "list", "edit": "change"}[tool.Name]
		q.Text = fmt.Sprintf("%s %s", verb, q.Path)
		var denied *guard.DeniedError
		if errors.As(why, &denied) {
			reason, _, _ := strings.Cut(denied.Reason, ";") // the rest is for the model
			q.Text += ": " + reason
		}
	default:
		return why
	}
	if t.redact.Text(q.Path) != q.Path {
		return why // what is allowed would be another path than the one that is shown
	}
	t.put(q)
	return agent.ErrAsked
}

// talkHands are what a model acts with in a chat.
type talkHands struct {
	*hands
	// allowed: the person has allowed the call that is being made; path is what it is about.
	allowed bool
	path    string
	diff    string // of the call that was made last
}

var _ agent.TalkHands = (*talkHands)(nil)

func (h *talkHands) ReadFile(name string, off, most int64) ([]byte, int64, error) {
	if h.allowed && h.path != "" {
		return h.w.project.Allowed().ReadFile(h.ctx, h.path, off, most)
	}
	return h.hands.ReadFile(name, off, most)
}

func (h *talkHands) WriteFile(name string, data []byte) error {
	if h.allowed && h.path != "" {
		return h.w.own(h.ctx, func() error { return h.w.project.Allowed().WriteFile(h.ctx, h.path, data) })
	}
	return h.hands.WriteFile(name, data)
}

func (h *talkHands) List(dir string, most int) ([]agent.File, bool, error) {
	if !h.allowed || h.path == "" {
		return h.hands.List(dir, most)
	}
	all, more, err := h.w.project.Allowed().List(h.ctx, h.path, most)
	files := make([]agent.File, len(all))
	for i, e := range all {
		files[i] = agent.File{Path: path.Join(filepath.ToSlash(h.path), e.Name), Dir: e.Kind == "directory", Size: e.Size}
	}
	return files, more, err
}

func (h *talkHands) Exec(ctx context.Context, line string) (agent.Exec, error) {
	if h.allowed {
		return h.ExecOutside(ctx, line)
	}
	return h.hands.Exec(ctx, line)
}

func (h *talkHands) ExecOutside(ctx context.Context, line string) (out agent.Exec, err error) {
	if !h.allowed {
		return out, fmt.Errorf("it would run outside of its confinement: %w", guard.ErrAsk)
	}
	w := h.w
	var res view.Ran
	err = h.w.own(ctx, func() (err error) {
		res, err = w.run(ctx, command{argv: []string{"/bin/sh", "-c", line}, dir: w.project.Root(), env: w.bareEnviron(),
			time: installTime, bare: true})
		return err
	})
	return execOf(res), err
}

func (h *talkHands) Log(ctx context.Context) (string, error) {
	text, exit, err := h.w.log(ctx)
	if err == nil && exit != nil {
		text = strings.TrimRight(text, "\n") + "\n[it ended: " + exit.String() + "]"
	}
	return text, err
}
