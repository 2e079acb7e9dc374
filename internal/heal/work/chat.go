package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/backoff"
)

// talkContext bounds a conversation, in bytes: it is read anew with each request of a turn.
const talkContext = 200_000

// talker works on one turn of a chat.
type talker struct {
	*worker
	chat  *chat.Journal
	start chat.State // when this worker began
	hands *talkHands
	cost  float64 // of the replies that are in the journal, of this worker
	words *words
	kept  int // the newest call, as chat.State.Made has it, that this worker has kept something of

	mu     sync.Mutex // of unkept
	unkept error      // why the journal, or what the turn can be taken back by, could not be written
	end    context.CancelCauseFunc
}

// errStopped: the person wants the turn to end.
var errStopped = errors.New("stopped")

// Chat works on the turn of the chat in a directory that is under way, until it is over or
// waits for the person; without one it only removes what workers before have left. An error
// is one after which another worker may have more luck.
func Chat(ctx context.Context, dir string, environ []string, out io.Writer) error {
	w, unlock, err := newWorker(ctx, dir, environ, out)
	if err != nil {
		return err
	}
	defer unlock()
	t := &talker{worker: w, chat: chat.Open(w.order.Path(healer.JournalFile))}
	if _, err := t.chat.Read(); err != nil {
		return err
	}
	_ = os.Remove(w.order.Path(healer.WordsFile)) // of a worker that died while it asked
	secrets, err := w.reach(ctx)
	if err != nil {
		return err
	}
	defer w.client.Close()
	w.says = func(text string) { t.put(chat.Entry{Kind: chat.Note, Text: text}) }
	if why, err := w.away(ctx); err != nil || why != "" {
		return errors.Join(err, t.over(ctx, why, true))
	}
	if err := w.killCommands(ctx); err != nil {
		return err
	}
	defer w.close()
	if err := w.prepare(ctx, secrets); err != nil {
		return err
	}
	if w.project == nil {
		return t.over(ctx, w.failed, true)
	}
	if err := t.turn(ctx); err != nil {
		return err
	}
	return w.lost()
}

// put writes an entry, with secrets hidden. If that is not possible, the turn ends.
func (t *talker) put(e chat.Entry) {
	e.Text, e.Diff = t.redact.Text(e.Text), t.redact.Text(e.Diff)
	err := t.chat.Append(context.Background(), func(*chat.State) ([]chat.Entry, error) { return []chat.Entry{e}, nil })
	if err != nil {
		t.fail(err)
	}
	fmt.Fprintln(t.out, e.Kind) // for whoever waits for news
}

// fail ends the turn, since what must be kept could not be written.
func (t *talker) fail(err error) {
	t.mu.Lock()
	t.unkept = errors.Join(t.unkept, err)
	t.mu.Unlock()
	if t.end != nil {
		t.end(err)
	}
}

func (t *talker) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unkept
}

// over ends the turn, if one is under way.
func (t *talker) over(ctx context.Context, why string, failed bool) error {
	return t.chat.Append(ctx, func(s *chat.State) ([]chat.Entry, error) {
		if s.Phase != chat.Working && s.Phase != chat.Stopping {
			return nil, nil
		}
		return []chat.Entry{{Kind: chat.End, Text: t.redact.Text(why), Error: failed}}, nil
	})
}

// begin says that this worker works on the turn; false: there is nothing to do.
func (t *talker) begin(ctx context.Context) (yes bool, err error) {
	err = t.chat.Append(ctx, func(s *chat.State) ([]chat.Entry, error) {
		t.start = *s
		if yes = s.Phase == chat.Working; !yes {
			return nil, nil
		}
		return []chat.Entry{{Kind: chat.Began}}, nil
	})
	return yes, err
}

// turn goes on with the turn.
func (t *talker) turn(ctx context.Context) error {
	t.hands = &talkHands{hands: &hands{ctx: ctx, w: t.worker}}
	broken, err := t.broken(ctx)
	if err != nil {
		return err
	}
	yes, err := t.begin(ctx)
	if err != nil {
		return err
	}
	if !yes {
		return t.over(ctx, errStopped.Error(), false)
	}
	for _, e := range broken {
		t.put(e)
	}
	if t.model == nil {
		return t.over(ctx, "no model is asked: "+t.unasked, true)
	}
	turn, end := context.WithCancelCause(ctx)
	defer end(nil)
	t.end, t.endTurn, t.hands.ctx = end, func() { end(context.Canceled) }, turn
	var wg sync.WaitGroup
	wg.Go(func() { t.awaitStop(turn) })
	done, err := t.ask(turn)
	stopped := errors.Is(context.Cause(turn), errStopped)
	end(nil)
	wg.Wait()
	failed := t.failed()
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // another worker goes on
	case t.lost() != nil:
		return t.lost() // so it does
	case errors.Is(failed, chat.ErrFull):
		return t.over(ctx, failed.Error(), true)
	case failed != nil:
		return failed
	case stopped:
		return t.over(ctx, errStopped.Error(), false)
	case err != nil:
		return t.over(ctx, err.Error(), true)
	case done.Asked():
		return nil
	}
	why, bad := ended(done.Why)
	return t.over(ctx, why, bad)
}

// ask has the model go on.
func (t *talker) ask(ctx context.Context) (agent.Outcome, error) {
	s, h := t.chat.State(), t.order.Healer
	left := agent.Budget{
		Steps: h.Steps - s.Steps, InputTokens: int64(h.Tokens) - s.Used.Input - s.Used.CacheRead - s.Used.CacheWrite,
		OutputTokens: int64(h.Tokens) - s.Used.Output, Wall: h.Wall.Std(), Context: talkContext,
	}
	if left.Steps <= 0 && len(s.Pending) == 0 {
		return agent.Outcome{Why: "budget: steps"}, nil
	}
	if left.InputTokens <= 0 || left.OutputTokens <= 0 {
		return agent.Outcome{Why: "budget: tokens"}, nil
	}
	left.Steps = max(left.Steps, 1)
	line, dir := t.shown()
	topic := agent.Topic{Service: t.order.Service, Command: line, Dir: dir, Protected: h.Protected,
		Outside: "on the machine, with the rights of its user"}
	if t.sandbox != nil {
		topic.Outside = "in the sandbox of the service"
	}
	t.words = &words{path: t.order.Path(healer.WordsFile), redact: t.redact}
	defer t.words.over()
	return agent.Continue(ctx, t.model, agent.Talk{
		System: topic.System(t.redact.Text), Messages: s.Messages, Results: s.Results, Cut: s.Cut,
		Tools: agent.TalkTools(t.hands, t.redact.Text), Budget: left, Prices: pricesOf(h.LLM),
		Redact: t.redact.Text, Record: t.record, Live: t.words.take, Act: t.act,
	})
}

// record writes down what becomes of the turn.
func (t *talker) record(e agent.Event) {
	switch e.Kind {
	case "reply":
		defer t.words.over()
		t.put(chat.Entry{Kind: chat.Reply, Text: e.Text, Message: e.Message, Stop: e.Stop, Usage: *e.Usage, Cost: e.Cost - t.cost})
		t.cost = e.Cost
	case "call":
		if !t.chat.State().Begun[e.Call] {
			t.put(chat.Entry{Kind: chat.Call, Tool: e.Tool, Call: e.Call, Input: e.Input})
		}
	case "result":
		if t.failed() != nil {
			return // what the call has changed may not be kept: another worker does it
		}
		if err := t.keepUnmade(); err != nil {
			t.fail(err)
			return
		}
		t.put(chat.Entry{Kind: chat.Result, Tool: e.Tool, Call: e.Call, Text: e.Text, Error: e.Error, Diff: t.hands.diff})
		t.hands.diff = ""
	case "note":
		kind := chat.Note
		if e.Told {
			kind = chat.Told
		}
		t.put(chat.Entry{Kind: kind, Text: e.Text, Error: e.Error})
	}
}

// ended is why a turn has ended, for people; "": the model has answered.
func ended(why string) (text string, failed bool) {
	switch kind, what, _ := strings.Cut(why, ": "); {
	case why == "end_turn" || why == "finished":
		return "", false
	case why == "refusal":
		return "the model refuses to go on", true
	case kind == "budget":
		return "it has used up what one turn may use (" + what + "); say something, and it goes on", true
	case kind == "loop":
		return "it got nowhere: " + what, true
	case kind == "model":
		return what, true
	}
	return why, true
}

// awaitStop ends the turn when the person wants it to end.
func (t *talker) awaitStop(ctx context.Context) {
	for j := chat.Open(t.order.Path(healer.JournalFile)); ; {
		if _, err := j.Read(); err == nil && j.State().Phase == chat.Stopping {
			t.end(errStopped)
			return
		}
		if !backoff.Wait(ctx, inboxEvery) {
			return
		}
	}
}

// broken are the results of calls that a worker before this one was making when it ended,
// with what they have changed. Of calls that only look there are none: they are made again.
func (t *talker) broken(ctx context.Context) ([]chat.Entry, error) {
	s := t.chat.State()
	var all []chat.Entry
	for _, id := range s.Pending {
		if !s.BrokenOff(id) {
			continue
		}
		e := chat.Entry{Kind: chat.Result, Call: id, Error: true,
			Text: "it was broken off: the process that made this call has ended. It is not made again by itself; look at what it has done, and go on from there"}
		var err error
		if e.Diff, err = t.salvage(ctx, s.Made); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, t.tidy(ctx)
}

// salvage keeps what a call has changed that a worker before this one was making.
func (t *talker) salvage(ctx context.Context, n int) (diff string, err error) {
	if !t.hasPoint(n) { // it had not begun
		return "", t.keep(n, nil, "")
	}
	if err = t.takePoint(ctx, n); err == nil {
		err = t.project.Mark(ctx)
	}
	if err == nil {
		diff, err = t.changed(ctx, n)
	}
	if err == nil || ctx.Err() != nil || t.lost() != nil { // another worker does it
		return diff, err
	}
	return diff, t.keep(n, nil, "what a call that was broken off has changed is not known: "+err.Error())
}

func (t *talker) hasPoint(n int) bool {
	_, err := os.Lstat(filepath.Join(t.order.Path(healer.PointsDir), strconv.Itoa(n)))
	return err == nil
}

// changed is what was changed since a checkpoint, which is removed. What the turn can be taken
// back by is kept first.
func (t *talker) changed(ctx context.Context, n int) (diff string, err error) {
	if r, err := t.project.Review(ctx, n); err == nil {
		diff = r.Diff
	}
	done, err := t.project.Commit(ctx, n, nil)
	if err != nil {
		return diff, err
	}
	for _, k := range done.Kept {
		t.note(k.Path + ": your uncommitted version, before a command changed it, is in " + t.where(k.Copy))
	}
	if err := t.keep(n, done.Undo, done.NoUndo); err != nil {
		return diff, err
	}
	t.drop(ctx, n)
	return diff, nil
}

// keep keeps what a call has changed.
func (t *talker) keep(n int, u *checkpoint.Undo, why string) error {
	err := chat.KeepCall(t.order.Dir, t.project.Root(), t.sandboxID, t.chat.State().LastSaid, n, u, why)
	if err == nil {
		t.kept = max(t.kept, n)
	}
	return err
}

// keepUnmade notes of a call that has a result without being made, for instance since the
// reply was cut off within it or the turn was stopped, that it has changed nothing: else it
// would look like one that was broken off, and the turn could not be taken back.
func (t *talker) keepUnmade() error {
	s := t.chat.State()
	if n := s.Changing[s.LastSaid]; n > t.kept {
		return t.keep(n, nil, "")
	}
	return nil
}

// tidy removes the checkpoints that workers before this one have left.
func (t *talker) tidy(ctx context.Context) error {
	left, err := os.ReadDir(t.order.Path(healer.PointsDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range left {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			t.drop(ctx, n)
		}
	}
	return err
}
