package exits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/onexit"
	"github.com/tend-run/tend/internal/lib/webhook"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/process"
)

// LabelOf is on the process of a command: whose exit it is for.
const LabelOf = "tend.exit-of"

const (
	commandTime   = 10 * time.Minute // and then a command is killed
	commandOutput = 1 << 20          // of which so many bytes are kept
	atOnce        = 16               // processes for which something is done at a time
	atOnceSent    = 1024             // messages under way at a time: each takes a descriptor
)

// Config of the part. Manager and Dir are needed.
type Config struct {
	Manager process.Manager
	// Dir is made if it is missing.
	Dir string
	// Secret signs messages; empty: they are not signed.
	Secret []byte
	HTTP   *http.Client // nil: one of its own
	// Sends is how many messages are under way at a time; 0: 1,024. Further ones wait
	// until one is taken, or for at most 15 s until one is not (then it is tried again).
	Sends int
	Log   *slog.Logger // nil: nothing is logged
}

// Exits is the part.
type Exits struct {
	c     Config
	slots chan struct{}
	sends chan struct{}
	wg    sync.WaitGroup

	mu    sync.Mutex
	under map[process.ID]bool // guarded by mu: those for which something is being done
}

var (
	_ module.Runner   = (*Exits)(nil)
	_ module.Reporter = (*Exits)(nil)
)

// Open returns the part. It does nothing before Run.
func Open(c Config) *Exits {
	if c.HTTP == nil {
		c.HTTP = webhook.Client()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Sends == 0 {
		c.Sends = atOnceSent
	}
	return &Exits{c: c, slots: make(chan struct{}, atOnce), sends: make(chan struct{}, c.Sends), under: map[process.ID]bool{}}
}

// Name implements module.Part.
func (*Exits) Name() string { return "exits" }

// Status implements module.Reporter.
func (x *Exits) Status() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return map[string]string{"deferred": strconv.Itoa(len(x.under))}
}

// Run implements module.Runner.
func (x *Exits) Run(ctx context.Context) error {
	defer x.wg.Wait()
	if err := os.MkdirAll(x.c.Dir, 0o700); err != nil {
		return err
	}
	unfinished, err := filepath.Glob(filepath.Join(x.c.Dir, ".*"))
	if err != nil {
		return err
	}
	for _, f := range unfinished { // of a server that was killed while it wrote
		_ = os.Remove(f)
	}
	for ctx.Err() == nil {
		if err := x.follow(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, process.ErrLagged) {
			x.c.Log.Warn("exits are not followed", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// follow performs the actions of processes that have already ended, and then of each
// process that ends.
func (x *Exits) follow(ctx context.Context) error {
	w, err := x.c.Manager.Watch(ctx) // before the list: nothing is between them
	if err != nil {
		return err
	}
	defer w.Close()
	all, err := x.c.Manager.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(all))
	for i := range all {
		known[string(all[i].ID)] = true
		x.begin(ctx, &all[i])
	}
	files, err := os.ReadDir(x.c.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue // what has begun above is writing it
		}
		if id := strings.TrimSuffix(strings.TrimSuffix(f.Name(), doneCommand), doneURL); !known[id] {
			_ = os.Remove(filepath.Join(x.c.Dir, f.Name()))
		}
	}
	for {
		ev, ok, err := w.Next()
		switch {
		case err != nil:
			return err
		case !ok:
			select {
			case <-ctx.Done():
				return nil
			case <-w.Ready():
			}
		case ev.Kind == process.EventExited:
			in, err := x.infoOf(ctx, ev.ID)
			switch {
			case err == nil:
				x.begin(ctx, &in)
			case !errors.Is(err, process.ErrNotFound): // else it was removed
				return err // it is in the list that is asked for then
			}
		case ev.Kind == process.EventRemoved:
			for _, what := range []string{doneCommand, doneURL} {
				_ = os.Remove(x.file(ev.ID, what))
			}
		}
	}
}

// infoOf returns the state of a process.
func (x *Exits) infoOf(ctx context.Context, id process.ID) (process.Info, error) {
	p, err := x.c.Manager.Get(ctx, process.Selector{ID: id})
	if err != nil {
		return process.Info{}, err
	}
	return p.Info(ctx)
}

// The files that record completed actions.
const (
	doneCommand = ".command"
	doneURL     = ".url"
)

func (x *Exits) file(id process.ID, what string) string {
	return filepath.Join(x.c.Dir, string(id)+what)
}

// done records a completed action of a process; why is its error, or nil.
func (x *Exits) done(id process.ID, what string, why error) {
	text := "done\n"
	if why != nil {
		text = why.Error() + "\n"
		x.c.Log.Warn("what was asked for at the end of a process was not done", "id", id, "what", what[1:], "err", why)
	}
	if err := atomicfile.Synced(x.file(id, what), []byte(text), 0o600); err != nil {
		x.c.Log.Warn("an exit was told, and will be told again", "id", id, "err", err)
	}
}

func (x *Exits) isDone(id process.ID, what string) bool {
	_, err := os.Lstat(x.file(id, what))
	return err == nil
}

// begin starts the pending actions of a process that has ended, if there are any.
func (x *Exits) begin(ctx context.Context, in *process.Info) {
	labels := in.Spec.Labels
	if in.Exit == nil || labels[onexit.LabelCommand] == "" && labels[onexit.LabelURL] == "" || labels[process.LabelSandbox] != "" {
		return
	}
	if !x.pending(in) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.under[in.ID] {
		return
	}
	x.under[in.ID] = true
	x.wg.Go(func() {
		defer func() {
			x.mu.Lock()
			delete(x.under, in.ID)
			x.mu.Unlock()
		}()
		select {
		case x.slots <- struct{}{}:
			x.command(ctx, in)
			<-x.slots // a URL that is down keeps no slot
			x.tell(ctx, in)
			x.release(ctx, in)
		case <-ctx.Done():
		}
	})
}

// pending reports whether something is still to be done for a process.
func (x *Exits) pending(in *process.Info) bool {
	return in.Spec.Labels[onexit.LabelCommand] != "" && !x.isDone(in.ID, doneCommand) || in.Spec.Labels[onexit.LabelURL] != "" &&
		!x.isDone(in.ID, doneURL)
}

// release unpins a process whose actions are all done. It retries while no keeper is
// available.
func (x *Exits) release(ctx context.Context, in *process.Info) {
	if x.pending(in) || in.Spec.Labels[onexit.LabelPin] != "" {
		return
	}
	var pause webhook.Pause
	for {
		p, err := x.c.Manager.Get(ctx, process.Selector{ID: in.ID})
		if err == nil {
			err = p.Pin(ctx, false) // else it is kept until somebody removes it
		}
		if !errors.Is(err, process.ErrUnavailable) || !x.sleep(ctx, in.ID, pause.Next()) {
			return
		}
	}
}

// command starts the command of a process.
func (x *Exits) command(ctx context.Context, in *process.Info) {
	line := in.Spec.Labels[onexit.LabelCommand]
	if line == "" || x.isDone(in.ID, doneCommand) {
		return
	}
	f := factsOf(in)
	spec := process.Spec{
		ID: commandID(in.ID), Shell: line, Env: maps.Clone(in.Spec.Env), Inherit: in.Spec.Inherit, Dir: in.Spec.Dir, User: in.Spec.User,
		Stdin: process.StdinNull, Timeout: commandTime, TimeoutScope: process.ScopeTree, Labels: map[string]string{LabelOf: string(in.ID)},
	}
	if in.Spec.Name != "" {
		spec.Name = in.Spec.Name + ".on-exit"
	}
	if spec.Env == nil {
		spec.Env = map[string]string{}
	}
	maps.Copy(spec.Env, f.environment())
	spec.Retention.Limit = commandOutput
	var pause webhook.Pause
	for {
		_, err := x.c.Manager.Start(process.EnvOf(ctx, in.ID), spec)
		switch {
		case err == nil, errors.Is(err, process.ErrExists): // by a server before this one
			x.done(in.ID, doneCommand, nil)
			return
		case ctx.Err() != nil:
			return
		case !errors.Is(err, process.ErrUnavailable) || time.Since(in.Exit.Time) > webhook.For:
			x.done(in.ID, doneCommand, err)
			return
		}
		if !x.sleep(ctx, in.ID, pause.Next()) {
			return
		}
	}
}

// commandID is the ID of the command for a process.
func commandID(id process.ID) process.ID {
	const suffix = "-on-exit"
	if len(id)+len(suffix) > process.MaxIDLen {
		sum := sha256.Sum256([]byte(id))
		id = id[:32] + "-" + process.ID(hex.EncodeToString(sum[:16]))
	}
	return id + suffix
}

// tell sends the facts to the URL of a process until they are accepted.
func (x *Exits) tell(ctx context.Context, in *process.Info) {
	to := in.Spec.Labels[onexit.LabelURL]
	if to == "" || x.isDone(in.ID, doneURL) {
		return
	}
	if onexit.CheckURL(to) != nil {
		x.done(in.ID, doneURL, fmt.Errorf("what %s has is no URL of http or https", onexit.LabelURL)) // without it: it may hold a secret
		return
	}
	f := factsOf(in)
	body, err := json.Marshal(f)
	if err != nil {
		x.done(in.ID, doneURL, err)
		return
	}
	m := &webhook.Message{URL: to, Body: body, ID: string(in.ID) + "." + strconv.FormatInt(f.Sequence, 10), Secret: x.c.Secret}
	var pause webhook.Pause
	for {
		err := x.send(ctx, m)
		switch {
		case err == nil:
			x.done(in.ID, doneURL, nil)
			return
		case ctx.Err() != nil:
			return
		case time.Since(in.Exit.Time) > webhook.For:
			x.done(in.ID, doneURL, fmt.Errorf("given up after %v: %w", webhook.For, err))
			return
		}
		wait := pause.Next()
		x.c.Log.Warn("an exit was not taken", "id", in.ID, "again in", wait, "err", err)
		if !x.sleep(ctx, in.ID, wait) {
			return
		}
	}
}

// send tries once, when it is the message's turn.
func (x *Exits) send(ctx context.Context, m *webhook.Message) error {
	select {
	case x.sends <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-x.sends }()
	return webhook.Send(ctx, x.c.HTTP, m)
}

// sleep waits, and reports whether to try again, which is the case unless the process
// was removed meanwhile.
func (x *Exits) sleep(ctx context.Context, id process.ID, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	}
	_, err := x.c.Manager.Get(ctx, process.Selector{ID: id})
	return !errors.Is(err, process.ErrNotFound)
}
