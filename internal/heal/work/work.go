package work

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const (
	maxFile = 4 << 20 // that the server writes
	// patience is how long the daemon may be away: an upgrade, a death of all roles.
	patience = 2 * time.Minute
	// lastTime bounds a commit or a rollback, which nothing else ends.
	lastTime = 4 * time.Minute
	// inboxEvery is how often the inbox is looked at.
	inboxEvery = 200 * time.Millisecond
	lockFile   = "lock"
)

// worker works on one episode, or on one turn of a chat.
type worker struct {
	order   *healer.Order
	client  *tend.Client
	out     io.Writer
	journal *healer.Journal
	state   healer.State
	redact  *guard.Redactor
	model   agent.Model // nil: none is asked
	review  agent.Model
	due     *healer.Effect
	// inbox is how many of its lines are in the journal.
	inbox int
	// plans are those that matched when the remedies were looked for.
	plans     []playbook.Plan
	project   project.Project // nil: it cannot be opened
	there     *tend.Client    // processes where the service runs
	sandbox   *tend.Sandbox   // that it runs in; nil: it runs on the machine
	sandboxID string          // of sandbox
	gone      bool            // its sandbox is
	ours      process.ID      // of the process that works on the project in a sandbox
	inside    string          // user of that process, as process.Spec has it; "": root
	endTurn   func()          // ends what is being done
	view      *view.View      // nil: nobody needed it
	trial     trial           // of the service in it
	applied   heldSet         // what the attempt of a model has made the project's
	judged    bool            // that was, by rules and the second model, which has said verdict
	verdict   string
	erred     string // the log before the attempt of a model
	failed    string // why there is no project
	unasked   string // why there is no model
	self      string // path of this program
	path      string // PATH of this process
	// environment of this process, of which installs have what package managers read
	environment []string
	says        func(string) // takes notes for people; nil: they are in the journal
	// unbounded are the bounds of which was said that commands do not have them.
	unbounded map[string]bool
	lived     time.Duration // the longest life of the service that ended by its fault; see seeLives

	record sync.Mutex // of those who write the transcript
}

// Run works on the episode in a directory until it is over. What becomes of it is in its
// journal; each entry is also a line on out, for whoever waits for news. environ is this process's
// environment: its PATH is that of commands for a service that has none. An error is one after which another worker may
// have more luck.
func Run(ctx context.Context, dir string, environ []string, out io.Writer) error {
	w, unlock, err := newWorker(ctx, dir, environ, out)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := w.open()
	if err != nil {
		return err
	}
	defer w.journal.Close()
	w.state = healer.Fold(entries)
	if w.state.Doing == healer.Nothing {
		return fmt.Errorf("the journal of %s cannot be read: it has no beginning", w.order.ID)
	}
	for _, e := range entries {
		if e.Kind == healer.Signalled || e.Kind == healer.Cancelled {
			w.inbox++
		}
	}
	secrets, err := w.reach(ctx)
	if err != nil {
		return err
	}
	defer w.client.Close()
	if err := w.awaitPlace(ctx, time.Time{}); err != nil {
		return err
	}
	if err := w.killCommands(ctx); err != nil { // of a worker before this one
		return err
	}
	defer w.close()
	if err := w.prepare(ctx, secrets); err != nil {
		return err
	}
	if w.state.Done() {
		w.finish() // the one before this one may have died in it
		return w.lost()
	}
	return w.work(ctx)
}

// newWorker returns the worker of a directory once no other one works there, until unlock.
func newWorker(ctx context.Context, dir string, environ []string, out io.Writer) (w *worker, unlock func(), err error) {
	o, err := healer.ReadOrder(dir)
	if err == nil && o.Dir != filepath.Clean(dir) {
		err = fmt.Errorf("%s is not that of %s", healer.OrderFile, dir)
	}
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if unlock, err = atomicfile.Lock(ctx, o.Path(lockFile)); err != nil {
		return nil, nil, err
	}
	w = &worker{order: o, out: out, environment: environ, self: self}
	for _, one := range environ {
		if path, ok := strings.CutPrefix(one, "PATH="); ok {
			w.path = path
		}
	}
	return w, unlock, nil
}

// reach finds the daemon, and where the service runs. The caller closes the client.
func (w *worker) reach(ctx context.Context) (healer.Secrets, error) {
	secrets, err := w.secrets()
	if err != nil {
		return secrets, err
	}
	if w.client, err = tend.Dial(ctx, w.order.URL, tend.Options{Token: secrets.Token, Patience: patience}); err != nil {
		return secrets, err
	}
	w.redact = guard.NewRedactor() // until more is known
	if err := w.findPlace(ctx); err != nil {
		w.client.Close()
		return secrets, err
	}
	return secrets, nil
}

func (w *worker) open() (entries []healer.Entry, err error) {
	w.journal, entries, err = healer.OpenJournal(w.order.Path(healer.JournalFile))
	return entries, err
}

// secrets reads the keys, which are in no other file of the episode.
func (w *worker) secrets() (s healer.Secrets, err error) {
	if w.order.Keys == "" {
		return s, nil
	}
	data, err := atomicfile.Read(w.order.Keys, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// work does what is due until the episode is over.
func (w *worker) work(ctx context.Context) error {
	clock, boot := time.Duration(procfs.BootTime()), procfs.BootID()
	if err := w.put(healer.Entry{Kind: healer.Began, Worker: w.state.Workers + 1, Clock: clock, Boot: boot}); err != nil {
		return err
	}
	_ = os.Remove(w.order.Path(healer.WordsFile)) // of a worker that died while it asked
	_ = os.Remove(w.order.Path(healer.RunningFile))
	deadline := time.Now().Add(timeLeft(&w.state, w.order.Healer.Wall.Std(), clock, boot))
	for !w.state.Done() {
		last := comesToItsEnd(w.due)
		if err := w.inPlace(ctx, deadline, last); err != nil {
			return err
		}
		if w.state.Done() {
			break
		}
		e := *w.due
		last = comesToItsEnd(&e)
		until := deadline
		if last {
			until = time.Now().Add(lastTime)
		}
		turn, cancel := context.WithDeadline(ctx, until)
		w.endTurn = cancel
		var wg sync.WaitGroup
		if !last {
			wg.Go(func() { w.awaitCancel(turn, cancel) })
		}
		answer := w.do(turn, e)
		expired := errors.Is(turn.Err(), context.DeadlineExceeded)
		cancel()
		wg.Wait()
		if ctx.Err() != nil {
			return ctx.Err() // another worker goes on
		}
		answer.Kind, answer.Did, answer.Seq = healer.Answered, e.Do, e.Seq
		if err := w.takeInbox(); err != nil {
			return err
		}
		if expired && !last {
			if err := w.put(healer.Entry{Kind: healer.Expired}); err != nil {
				return err
			}
		}
		if err := w.lost(); err != nil {
			return err // another worker goes on
		}
		// If what was asked for is another thing by now, the answer changes nothing.
		if err := w.put(answer); err != nil {
			return err
		}
	}
	w.finish()
	return w.lost()
}

// timeLeft is how much of its time an episode has left, at a time of the machine's clock since
// its boot. The clock that somebody may set says it of one from before the boot alone.
func timeLeft(s *healer.State, wall, clock time.Duration, boot string) time.Duration {
	used := clock - s.Clock
	if s.Boot != boot || boot == "" {
		used = time.Since(s.Opened)
	}
	return min(wall, wall-used)
}

// comesToItsEnd reports whether what is begun is not ended by its time, or by anybody.
func comesToItsEnd(e *healer.Effect) bool {
	return e.Do == healer.Commit || e.Do == healer.Rollback || e.Do == healer.Act && e.Remedy.Kind == healer.Undo
}

// inPlace waits until what is due can be done where the service runs. What is only tried ends
// with its time; what must be done waits for a sandbox that is paused or stopped. One that is
// gone ends the episode: its project is gone, too.
func (w *worker) inPlace(ctx context.Context, deadline time.Time, last bool) error {
	if last {
		deadline = time.Time{}
	}
	if err := w.awaitPlace(ctx, deadline); err != nil {
		return err
	}
	if err := w.takeInbox(); err != nil {
		return err
	}
	why, err := w.away(ctx)
	switch {
	case err != nil || why == "" || w.state.Done():
		return err
	case w.gone && w.state.Last == "":
		return w.put(healer.Entry{Kind: healer.Cancelled, Text: why})
	case !w.gone && !last && time.Now().After(deadline):
		if err := w.put(healer.Entry{Kind: healer.Expired}); err != nil {
			return err
		}
		return w.inPlace(ctx, deadline, w.state.Open)
	}
	return nil
}

// put writes an entry, with secrets hidden, and takes what it leads to.
func (w *worker) put(e healer.Entry) error {
	e.At = time.Now()
	e.Text, e.Cause, e.Proposal = w.redact.Text(e.Text), w.redact.Text(e.Cause), w.redact.Text(e.Proposal)
	if e.Signal != nil {
		s := *e.Signal
		s.Text = w.redact.Text(s.Text)
		e.Signal = &s
	}
	for i := range e.Left {
		e.Left[i] = w.redact.Text(e.Left[i])
	}
	if err := w.journal.Append(e); err != nil {
		return err
	}
	next, effect := healer.Step(w.state, e)
	if w.state = next; effect != nil {
		w.due = effect
	}
	_, err := fmt.Fprintf(w.out, "%s %s %s\n", w.state.Status, w.state.Doing, e.Kind)
	return err
}

// inboxLines returns what the server has said beyond what is in the journal.
func (w *worker) inboxLines() (all []healer.Entry) {
	data, err := atomicfile.Read(w.order.Path(healer.InboxFile), maxFile)
	if err != nil {
		return nil
	}
	r := bufio.NewReader(bytes.NewReader(data))
	for n := 0; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return all // the last line may be half
		}
		var e healer.Entry
		if n >= w.inbox && json.Unmarshal(line, &e) == nil && (e.Kind == healer.Signalled || e.Kind == healer.Cancelled) {
			all = append(all, e)
		}
	}
}

func (w *worker) takeInbox() error {
	for _, e := range w.inboxLines() {
		w.inbox++
		if err := w.put(e); err != nil {
			return err
		}
	}
	return nil
}

// awaitCancel ends what is being done when somebody wants it to end.
func (w *worker) awaitCancel(ctx context.Context, cancel context.CancelFunc) {
	for {
		for _, e := range w.inboxLines() {
			if e.Kind == healer.Cancelled {
				cancel()
				return
			}
		}
		if !backoff.Wait(ctx, inboxEvery) {
			return
		}
	}
}

// do does one thing.
func (w *worker) do(ctx context.Context, e healer.Effect) healer.Entry {
	var out healer.Entry
	var err error
	if w.project == nil && e.Do != healer.Look {
		if w.gone && e.Do == healer.Rollback {
			return healer.Entry{OK: true, Text: "its sandbox is gone, and the project with it"}
		}
		return healer.Entry{Text: w.failed}
	}
	switch e.Do {
	case healer.Look:
		switch {
		case w.order.Back != nil:
			out, err = w.lookBack(ctx)
		case w.order.Apply != "":
			out, err = w.lookHeld(ctx)
		default:
			out, err = w.look(ctx)
		}
	case healer.Checkpoint:
		err = w.takePoint(ctx, e.Try)
	case healer.Act:
		if out, err = w.act(ctx, e); err == nil && e.Remedy.Tree {
			w.keepLive(ctx, e.Try)
		}
	case healer.Verify:
		out.Text, err = w.verify(ctx)
	case healer.Review:
		out.Text, err = w.reviewed(ctx, e)
	case healer.Commit:
		out, err = w.commit(ctx, e)
	case healer.Rollback:
		out.Text, err = w.rollback(ctx, e)
	}
	if out.OK = err == nil; err != nil {
		out.Text = strings.TrimSpace(out.Text + "\n" + err.Error())
	}
	return out
}

// finish leaves nothing behind but what people may want to read.
func (w *worker) finish() {
	_ = os.Remove(w.order.Path(healer.LiveFile))
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	if _, err := os.Lstat(w.order.Path(healer.ForgetFile)); w.state.Dirty && err != nil {
		return // what is needed to take it back is kept
	}
	for n := range w.state.Tries {
		switch {
		case w.project != nil:
			w.drop(ctx, n+1)
		case w.gone:
			_ = os.Remove(w.remoteMark(n + 1))
		}
	}
}
