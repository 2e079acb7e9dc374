package healing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/part"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor"
	"github.com/tend-run/tend/supervisor/config"
	"github.com/tend-run/tend/supervisor/run"
)

// Services are those that may be repaired.
type Services interface {
	// List returns all of them.
	List(ctx context.Context) ([]run.Status, error)
	// Restart restarts some.
	Restart(ctx context.Context, names []string) error
	// Touch tells those who watch services that something is to be said of one.
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
	Log        *slog.Logger // nil: nothing is logged
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

	// The rest belongs to the loop.
	declared *declaration
	state    state
	sense    healer.Sense
	episode  *follower // nil: none is under way
	watch    *watcher  // nil: files are not looked at
	settle   *time.Timer
	started  time.Time // when the service started last
	report   *reporter
	wg       sync.WaitGroup
	alive    context.Context
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
}

var (
	_ part.Runner   = (*Healing)(nil)
	_ part.Reporter = (*Healing)(nil)
)

// Open reads what is stored. Nothing happens until Run.
func Open(c Config) *Healing {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := &Healing{c: c, store: store{c.Dir}, calls: make(chan func()), ended: make(chan struct{}), news: make(chan struct{}, 1)}
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
		return fmt.Errorf("%s (tend up writes it anew): %w", h.store.path(declaredFile), err)
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

// Name implements [part.Part].
func (h *Healing) Name() string { return "healer" }

// Status implements [part.Reporter].
func (h *Healing) Status() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts := map[string]string{}
	if h.trouble != nil {
		facts["trouble"] = h.trouble.Error()
	}
	if h.shown.service != "" {
		facts["service"], facts["status"] = h.shown.service, h.shown.status.String()
	}
	return facts
}

// Saw takes a notice of the supervisor. It does not block.
func (h *Healing) Saw(service string, e supervisor.Effect) {
	h.mu.Lock()
	h.seen = append(h.seen, notice{service, e, time.Now()})
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// Of returns what is known of a service; false: nothing is repaired of it.
func (h *Healing) Of(service string) (st healer.Status, episode string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shown.service == "" || h.shown.service != service {
		return 0, "", false
	}
	return h.shown.status, h.shown.episode, true
}

// Run works until ctx ends. A worker that is under way goes on.
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
	if id := h.state.Episode; id != "" {
		h.follow(id)
	} else if h.state.Breaker.Broken {
		h.passive()
	}
	h.show()
	h.wg.Go(func() { h.catchUp(ctx) })
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
			h.look()
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
	case h.episode != nil && !h.episode.order.DryRun:
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

// show tells everybody what has changed.
func (h *Healing) show() {
	now := shown{status: h.status(), episode: h.state.Newest}
	if h.declared != nil {
		now.service = h.declared.Service
	}
	h.mu.Lock()
	was := h.shown
	h.shown = now
	h.mu.Unlock()
	if was == now || h.kept == nil {
		return
	}
	h.c.Log.Info("healer "+now.status.String(), "service", now.service, "episode", now.episode)
	h.kept.Touch(h.alive)
	switch now.status {
	case healer.Healing, healer.Verifying, healer.Suspected:
		if h.episode != nil {
			h.report.tell(h.declared, "healing", "")
		}
	case healer.Broken:
		h.report.tell(h.declared, "broken", h.state.Breaker.Why)
	case healer.Ready:
		h.report.tell(h.declared, "ready", "")
	case healer.Running:
		if !h.sense.Ready.IsZero() {
			h.report.tell(h.declared, "ready", "")
		}
	}
}

// Declare takes a file that was applied. Env is the environment of whoever did.
func (h *Healing) Declare(ctx context.Context, c *config.Config, file string, env map[string]string) error {
	d := &declaration{File: file}
	if c.Healer != nil {
		d.Healer, d.Service = c.Healer, c.Target()
		d.Secrets = secretsOf(c.Healer.LLM, env)
		d.Token = h.c.Token
		if r := c.Healer.Report; r != nil {
			d.ReportKey = env[r.KeyEnv]
		}
	}
	var err error
	if ierr := h.in(ctx, func() {
		if h.declared == nil && d.Healer == nil {
			return
		}
		if err = h.store.save(declaredFile, d); err != nil {
			return
		}
		other := h.declared == nil || h.declared.Service != d.Service || h.declared.File != d.File
		if h.declared = d; d.Healer == nil {
			h.declared = nil
		}
		if other {
			h.sense = healer.Sense{}
			if h.state.Episode == "" {
				h.state = state{}
				err = h.store.save(stateFile, h.state)
			}
		} else if h.state.Breaker.Broken { // whoever applies a file has changed something
			h.rearm("the services were declared anew", false)
		}
		h.declare()
		h.show()
	}); ierr != nil {
		return ierr
	}
	return err
}

// secretsOf takes the key of a model from an environment.
func secretsOf(m *config.LLM, env map[string]string) (s healer.Secrets) {
	if m == nil {
		return s
	}
	prefix := "ANTHROPIC"
	if m.Provider == "openai" {
		prefix = "OPENAI"
	}
	name := m.KeyEnv
	if name == "" {
		name = prefix + "_API_KEY"
	}
	s.Key, s.BaseURL = env[name], m.BaseURL
	if s.BaseURL == "" {
		s.BaseURL = env[prefix+"_BASE_URL"]
	}
	return s
}

// declare tells the reporter where to.
func (h *Healing) declare() { h.report.to(h.declared) }

// look takes what was seen.
func (h *Healing) look() {
	h.mu.Lock()
	seen := h.seen
	h.seen = nil
	h.mu.Unlock()
	for _, n := range seen {
		if h.declared == nil || n.service != h.declared.Service {
			continue
		}
		signal := h.sense.Saw(n.effect.Notice, n.effect.Run, n.effect.Text, n.at)
		switch {
		case h.episode != nil && n.effect.Notice != supervisor.NoticeStarted && n.effect.Notice != supervisor.NoticeReady:
			_ = h.episode.tell(healer.Entry{Kind: healer.Signalled, At: n.at, Signal: &healer.Signal{Kind: n.effect.Notice.String(), Text: n.effect.Text, Run: n.effect.Run, At: n.at}}) // else the worker sees it by itself
		case h.episode == nil && signal != nil:
			if h.state.Breaker.Broken {
				break // nothing has changed
			}
			if _, err := h.open(*signal, false, false); err != nil {
				h.c.Log.Warn("nothing is repaired", "service", n.service, "signal", signal.Kind, "err", err)
			}
		case h.watch != nil && n.effect.Notice == supervisor.NoticeStarted && n.at.Sub(h.started) > calm:
			h.watch.notOurs() // what it writes itself is no change that helps
		}
		if n.effect.Notice == supervisor.NoticeStarted {
			h.started = n.at
		}
		switch {
		case h.sense.Ready.IsZero():
		case h.state.Breaker.Broken:
			h.settle.Reset(max(recovered, h.declared.Healer.Hold.Std()))
		case h.sense.Status != healer.Running:
			h.settle.Reset(healer.Settled)
		}
	}
}

// catchUp finds out what became of the service while there was no server.
func (h *Healing) catchUp(ctx context.Context) {
	all, err := h.kept.List(ctx)
	if err != nil {
		return // this server ends, too
	}
	_ = h.in(ctx, func() {
		for _, s := range all {
			if h.declared == nil || s.Name != h.declared.Service {
				continue
			}
			switch {
			case s.State.Ready && h.sense.Ready.IsZero():
				h.Saw(s.Name, supervisor.Effect{Notice: supervisor.NoticeReady, Run: s.State.Run})
			case s.State.Phase == supervisor.Failed && s.State.Up && h.episode == nil && !h.state.Breaker.Broken:
				h.Saw(s.Name, supervisor.Effect{Notice: supervisor.NoticeFailed, Run: s.State.Run, Text: s.State.Why})
			}
		}
	})
}

// calm is how long a service must have left alone its files until those that change at its
// next start are its own. While it starts again and again, a change is somebody's.
const calm = 10 * time.Second

// recovered is how long a service that is broken must be ready to count as well.
const recovered = 10 * time.Second

// settled: a service that was broken, or suspected, has been ready for a while.
func (h *Healing) settled() {
	h.sense.Settle(time.Now())
	if h.state.Breaker.Broken && h.episode == nil && !h.sense.Ready.IsZero() {
		h.rearm("it has recovered", true)
	}
}

// filesChanged: somebody has changed the project of a service that is broken.
func (h *Healing) filesChanged() {
	if !h.state.Breaker.Broken || h.episode != nil || h.declared == nil {
		return
	}
	h.rearm("a file of the project has changed", false)
	if err := h.kept.Restart(h.alive, []string{h.declared.Service}); err != nil && h.alive.Err() == nil {
		h.c.Log.Warn("a service could not be restarted after a change", "service", h.declared.Service, "err", err)
	}
}

// rearm lets the next fault open an episode.
func (h *Healing) rearm(why string, well bool) {
	h.c.Log.Info("the healer is armed again", "why", why)
	h.state.Breaker.Rearm(well)
	h.sense.Forget()
	h.active()
	h.keep()
}

func (h *Healing) keep() {
	if err := h.store.save(stateFile, h.state); err != nil {
		h.c.Log.Error("the healer's state could not be stored", "err", err)
	}
}

// passive looks at files from now on; active does not any more.
func (h *Healing) passive() {
	if h.watch == nil && h.declared != nil {
		h.watch = watchFiles(h.alive, &h.wg, h.declared.Healer, h.c.StateDir, h.c.Log)
	}
}

func (h *Healing) active() {
	if h.watch != nil {
		h.watch.end()
		h.watch = nil
	}
}

// dirOf is where an episode is kept.
func (h *Healing) dirOf(id string) string { return filepath.Join(h.c.Dir, episodesDir, id) }
