package healing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// Services are those that may be repaired.
type Services interface {
	// List returns all of them.
	List(ctx context.Context) ([]run.Status, error)
	// Restart restarts some.
	Restart(ctx context.Context, project string, names []string) error
	// Touch notifies the watchers of services that a service has news.
	Touch(ctx context.Context)
}

// Config of the part. Manager, Dir, StateDir, Program and URL are needed.
type Config struct {
	Manager process.Manager
	// Dir keeps what the package comment says; StateDir is that of the daemon.
	Dir, StateDir string
	// Program is tend, and its arguments before those of the worker.
	Program []string
	// URL at which a worker reaches this daemon, and the Token that it must show there.
	URL, Token string
	HTTP       *http.Client // for reports; nil: one of its own
	// Away reports whether a sandbox is there, and is not ready; nil: there are none.
	Away func(ctx context.Context, sandbox string) bool
	// Sandbox returns the ID of the sandbox with a name or ID, and its creation time; "":
	// there is none, or it is unknown. Nil: there are no sandboxes.
	Sandbox func(ctx context.Context, sandbox string) (id string, made time.Time)
	// Watch calls changed with the path of what changes below a directory, of a sandbox if
	// one is named, with the rights of a user there, until ctx ends. Needed with Away.
	Watch func(ctx context.Context, sandbox, user, dir string, changed func(path string)) error
	Log   *slog.Logger // nil: nothing is logged
}

// Healing is the part.
type Healing struct {
	c     Config
	store store
	kept  Services

	calls chan func() // carried out by the loop
	ended chan struct{}

	mu      sync.Mutex
	seen    []notice      // guarded by mu: what the loop has not looked at yet
	news    chan struct{} // receives after seen has grown
	shown   shown         // guarded by mu
	trouble error         // guarded by mu: why nothing is repaired
	damaged error         // guarded by mu: why nothing is, until a file is declared

	// The rest belongs to the loop.
	declared *declaration
	state    state
	sense    healer.Sense
	episode  *follower // nil: none is under way
	talk     *talk     // the chat of the service; nil: there is none
	// followed are the chats that are busy, by ID; that of a service that was declared before, too.
	followed map[string]*talk
	watch    *watcher // nil: files are not looked at
	// ignored are the directories that git ignores in the project of ignoredOf; see learnIgnored.
	ignored   func() map[string]bool
	ignoredOf *declaration
	settle    *time.Timer
	started   time.Time // when the service started last
	report    *reporter
	pruning   sync.Mutex // of those who remove old episodes
	sweeping  sync.Mutex // of those who remove chats
	// comparing is held while the stored data of changes is read.
	comparing sync.Mutex
	wg        sync.WaitGroup
	alive     context.Context
}

type notice struct {
	service string
	effect  supervisor.Effect
	at      time.Time
}

// shown is what others ask for without the loop.
type shown struct {
	service, episode string
	status           healer.Status
	chat             string // its ID
	followed         string // the ID of the episode that is under way
}

var (
	_ module.Runner   = (*Healing)(nil)
	_ module.Reporter = (*Healing)(nil)
)

// Open reads the stored state. Nothing happens until Run.
func Open(c Config) *Healing {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := &Healing{c: c, store: store{c.Dir}, calls: make(chan func()), ended: make(chan struct{}), news: make(chan struct{}, 1),
		followed: map[string]*talk{}}
	h.settle = time.NewTimer(time.Hour)
	h.settle.Stop()
	err := h.load()
	if err != nil {
		h.trouble = fmt.Errorf("nothing is repaired: %w: %w", process.ErrDamaged, err)
		c.Log.Error("nothing is repaired", "err", err)
	}
	return h
}

func (h *Healing) load() error {
	if err := os.MkdirAll(h.c.Dir, 0o700); err != nil {
		return err
	}
	d := new(declaration)
	if ok, err := h.store.load(declaredFile, d); err != nil {
		h.damaged = fmt.Errorf("nothing is repaired until tend up is run, which writes %s anew: %w: %w", h.store.path(declaredFile),
			process.ErrDamaged, err)
		h.c.Log.Error("nothing is repaired until tend up is run", "err", h.damaged)
	} else if ok && d.Healer != nil {
		h.declared = d
	}
	if _, err := h.store.load(stateFile, &h.state); err != nil {
		return fmt.Errorf("%s: %w", h.store.path(stateFile), err)
	}
	h.report = newReporter(h.store, h.c.HTTP, h.c.Log)
	return h.report.load()
}

// Over sets the services that are repaired, before Run.
func (h *Healing) Over(s Services) { h.kept = s }

// Name implements [module.Part].
func (h *Healing) Name() string { return "healer" }

// Status implements [module.Reporter].
func (h *Healing) Status() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts := map[string]string{}
	if err := cmp.Or(h.trouble, h.damaged); err != nil {
		facts["trouble"] = err.Error()
	}
	if h.shown.service != "" {
		facts["service"], facts["status"] = h.shown.service, h.shown.status.String()
	}
	return facts
}

// Saw takes a notice of the supervisor. It does not block.
func (h *Healing) Saw(service string, e supervisor.Effect) {
	h.mu.Lock()
	if h.trouble == nil { // else nobody looks
		h.seen = append(h.seen, notice{service, e, time.Now()})
	}
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// Service is the one that is repaired; "": none is.
func (h *Healing) Service() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown.service
}

// Of returns the healer's state of a service; false: the service is not repaired.
func (h *Healing) Of(service string) (st healer.Status, episode string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shown.service == "" || h.shown.service != service {
		return 0, "", false
	}
	return h.shown.status, h.shown.episode, true
}

// Run works until ctx ends. A worker that is under way continues.
func (h *Healing) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		close(h.ended)
		h.settle.Stop()
		h.wg.Wait()
	}()
	h.alive = ctx
	h.mu.Lock()
	trouble := h.trouble
	h.mu.Unlock()
	if trouble != nil || h.kept == nil {
		<-ctx.Done()
		return nil
	}
	h.wg.Go(func() { h.report.run(ctx) })
	h.declare()
	h.findTalk()
	h.sweepTalks()
	if id := h.state.Episode; id != "" {
		h.follow(id)
	} else if h.state.Breaker.Broken {
		h.passive()
	}
	h.show()
	h.wg.Go(func() { h.catchUp(ctx) })
	h.wg.Go(func() { h.tidyAll(ctx) })
	for {
		var files <-chan struct{}
		if h.watch != nil {
			files = h.watch.changed
		}
		select {
		case <-ctx.Done():
			return nil
		case f := <-h.calls:
			f()
		case <-h.news:
			h.noticeAll()
		case <-files:
			h.filesChanged()
		case <-h.settle.C:
			h.settled()
		}
		h.show()
	}
}

// in has the loop carry out f.
func (h *Healing) in(ctx context.Context, f func()) error {
	h.mu.Lock()
	trouble := h.trouble
	h.mu.Unlock()
	if trouble != nil {
		return trouble
	}
	done := make(chan struct{})
	select {
	case h.calls <- func() { f(); close(done) }:
	case <-h.ended:
		return fmt.Errorf("the server ends: %w", process.ErrUnavailable)
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// status is what others see.
func (h *Healing) status() healer.Status {
	switch {
	case h.declared == nil:
		return healer.Running
	case h.episode != nil && h.isDeclared(h.episode) && !h.episode.order.DryRun && h.episode.order.Back == nil:
		if st := h.episode.state.Status; st != healer.Running {
			return st
		}
		return healer.Suspected
	case h.state.Breaker.Broken:
		return healer.Broken
	case h.sense.Status != healer.Running:
		return h.sense.Status
	case h.state.Newest != "" && h.state.Ended == healer.Ready:
		return healer.Ready
	}
	return healer.Running
}

// show publishes the changes to all watchers.
func (h *Healing) show() {
	now := shown{status: h.status(), episode: h.state.Newest}
	if h.declared != nil {
		now.service = h.declared.Service
	}
	if h.talk != nil {
		now.chat = h.talk.order.ID
	}
	if h.episode != nil {
		now.followed = h.episode.order.ID
	}
	h.mu.Lock()
	was := h.shown
	h.shown = now
	h.mu.Unlock()
	h.reportOf(now.status)
	was.chat, was.followed = now.chat, now.followed // nobody else is told
	if was == now || h.kept == nil {
		return
	}
	h.c.Log.Info("healer "+now.status.String(), "service", now.service, "episode", now.episode)
	h.kept.Touch(h.alive)
}

// reportOf reports what others should know. A service may become ready without another
// status: at the start, and after a person's repair.
func (h *Healing) reportOf(st healer.Status) {
	switch {
	case st == healer.Broken:
		h.report.tell(h.declared, "broken", h.state.Breaker.Why)
	case st == healer.Ready, st == healer.Running && !h.sense.Ready.IsZero():
		h.report.tell(h.declared, "ready", "")
	case st != healer.Running && h.episode != nil && h.isDeclared(h.episode):
		h.report.tell(h.declared, "healing", "")
	}
}

func (h *Healing) keep() {
	if err := h.store.save(stateFile, h.state); err != nil {
		h.c.Log.Error("the healer's state could not be stored", "err", err)
	}
}

// passive looks at files from now on; active does not any more.
func (h *Healing) passive() {
	if h.watch == nil && h.declared != nil {
		h.watch = h.watchFiles()
	}
}

func (h *Healing) active() {
	if h.watch != nil {
		h.watch.end()
		h.watch = nil
	}
}
