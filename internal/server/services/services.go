package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// Limits of an applied file, in bytes, beside those of package config.
const (
	MaxEnv  = 1 << 20  // of the environment of a service
	MaxEnvs = 64 << 20 // of those of all
	maxPath = 4096
)

// Config of the services. Manager and Dir are needed; the others are as in run.Config.
type Config struct {
	Manager    process.Manager
	Dir        string
	InShutdown func(time.Time) bool
	Roles      func() []int
	Moving     func(context.Context) error
	Driver     driver.Driver
	Program    []string
	Log        *slog.Logger
	// Healer repairs services; nil: there are no repairs.
	Healer Healer
}

// Healer repairs services.
type Healer interface {
	// Saw receives the notices of services. It must not block.
	Saw(service string, e supervisor.Effect)
	// Service is the one that is repaired; "": none is.
	Service() string
	// Declare receives each applied file, with the environment of the caller that applied
	// it.
	Declare(ctx context.Context, c *config.Config, file string, env map[string]string) error
	// Of returns the healer's state of a service; false: none.
	Of(service string) (st healer.Status, episode string, ok bool)
	// List, Get, Watch, Heal, Held, RollBack and Cancel are those of the ServiceService.
	List(ctx context.Context, service string) ([]*tendv1.Episode, error)
	Get(ctx context.Context, id string) (*tendv1.GetEpisodeResponse, error)
	Watch(ctx context.Context, id string, from int64, send func(*tendv1.WatchEpisodeResponse) error) error
	Heal(ctx context.Context, service string, dry bool) (id string, err error)
	Held(ctx context.Context, hash string, discard bool) (id string, err error)
	RollBack(ctx context.Context, id string) (back string, err error)
	Cancel(ctx context.Context, id string) error
}

// Services is the part.
type Services struct {
	c       Config
	sup     *run.Supervisor
	trouble error // why there is no sup

	applied chan struct{} // has a value after an Apply, for clean

	mu       sync.Mutex
	projects []project // guarded by mu
}

var (
	_ module.Runner   = (*Services)(nil)
	_ module.Reporter = (*Services)(nil)
)

// Open reads the stored state. Services are supervised while Run runs.
func Open(c Config) *Services {
	s := &Services{c: c, applied: make(chan struct{}, 1)}
	if c.Log == nil {
		s.c.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	rc := run.Config{Manager: c.Manager, Dir: c.Dir, Log: c.Log, InShutdown: c.InShutdown, Roles: c.Roles, Moving: c.Moving,
		Driver: c.Driver, Program: c.Program}
	if c.Healer != nil {
		rc.Notice = c.Healer.Saw
	}
	if s.sup, err = run.Open(rc); err == nil {
		err = s.loadProjects()
	}
	if err != nil {
		s.trouble = errtext.New("services are not looked after: "+err.Error(), process.ErrDamaged)
		s.c.Log.Error("services are not looked after", "err", err)
	}
	return s
}

// Name implements [module.Part].
func (s *Services) Name() string { return "services" }

// Run implements [module.Runner].
func (s *Services) Run(ctx context.Context) error {
	if s.trouble != nil {
		<-ctx.Done()
		return nil
	}
	var cleaning sync.WaitGroup
	defer cleaning.Wait()
	if s.c.Driver != nil {
		cleaning.Go(func() { s.clean(ctx) })
	}
	return s.sup.Run(ctx)
}

// statusTime bounds how long the status waits for the services.
const statusTime = time.Second

// Status implements [module.Reporter].
func (s *Services) Status() map[string]string {
	if s.trouble != nil {
		return map[string]string{"trouble": s.trouble.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	all, err := s.sup.List(ctx)
	if err != nil {
		return map[string]string{"declared": "not known: " + err.Error()}
	}
	ready, failed := 0, 0
	for i := range all {
		switch {
		case all[i].State.Ready:
			ready++
		case all[i].State.Phase == supervisor.Failed:
			failed++
		}
	}
	return map[string]string{"declared": strconv.Itoa(len(all)), "ready": strconv.Itoa(ready), "failed": strconv.Itoa(failed)}
}

// File is a declaration with all that it needs.
type File struct {
	config.Source
	// Project is the name of the project; "": the one whose services have no prefix.
	Project string
	// Env is the environment of the declaring caller.
	Env map[string]string
}

// sizeOf is what an environment takes, in bytes.
func sizeOf(env map[string]string) (size int) {
	for k, v := range env {
		size += len(k) + len(v) + 2
	}
	return size
}

// Apply applies a declaration. An error in it is a process.InvalidError.
func (s *Services) Apply(ctx context.Context, f *File) error {
	if s.trouble != nil {
		return s.trouble
	}
	if f.Project != "" && len(f.Text) == 0 {
		return s.forget(ctx, f.Project)
	}
	if !filepath.IsAbs(f.Dir) || len(f.Dir) > maxPath/2 || strings.ContainsRune(f.Dir, 0) {
		return invalid("dir", "is %.80q; an absolute path of at most %d bytes is needed", f.Dir, maxPath/2)
	}
	f.Name = cmp.Or(f.Name, config.FileName)
	base := filepath.Base(f.Name)
	if len(base) > 255 || strings.ContainsAny(f.Name, "\x00\n") {
		return invalid("name", "is %.80q, which is no name of a file", f.Name)
	}
	declared, err := f.Config()
	if err != nil {
		return invalid("text", "is not accepted:\n%s", err.Error())
	}
	inherited, total := sizeOf(f.Env), 0
	for _, name := range declared.Names() {
		one := declared.Services[name]
		size := sizeOf(one.Env)
		if one.Inherit == "all" {
			size += inherited
			for k := range one.Env {
				if v, ok := f.Env[k]; ok {
					size -= len(k) + len(v) + 2
				}
			}
		}
		if total += size; size > MaxEnv || total > MaxEnvs {
			return invalid("services."+name+".env",
				"has %d bytes with what it inherits, %d so far; %d are allowed, and %d for all services (inherit: none leaves out what tend up has)",
				size, total, MaxEnv, MaxEnvs)
		}
	}
	declared = run.WithEnv(declared, f.Env)
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(f.Dir, base)
	all, to, err := s.target(ctx, f.Project, path)
	if err != nil {
		return err
	}
	declared = declared.Within(to.Prefix)
	healed := s.healedElsewhere(to.Prefix)
	if healed != "" && declared.Healer != nil {
		return invalid("healer", "is for one service of a daemon, and %s has it; tend down --forget in its project lets go of it", healed)
	}
	if !slices.Equal(all, s.projects) {
		if err := s.keepProjects(all); err != nil {
			return err
		}
	}
	if err := s.place(ctx, declared); err != nil {
		return err
	}
	defer s.hasApplied()
	if err := s.sup.Apply(ctx, declared); err != nil {
		return away(err)
	}
	if s.c.Healer == nil || healed != "" {
		return nil
	}
	return s.c.Healer.Declare(ctx, declared, path, f.Env)
}

func (s *Services) hasApplied() {
	select {
	case s.applied <- struct{}{}:
	default:
	}
}

// List returns all services.
func (s *Services) List(ctx context.Context) ([]run.Status, error) {
	if s.trouble != nil {
		return nil, s.trouble
	}
	all, err := s.sup.List(ctx)
	return all, away(err)
}

// Touch notifies the watchers of services that a service has news.
func (s *Services) Touch(ctx context.Context) {
	if s.trouble == nil {
		s.sup.Touch(ctx)
	}
}

func invalid(field, format string, args ...any) error {
	return &process.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// away: a supervisor that has ended is followed by that of the next server.
func away(err error) error {
	if errors.Is(err, run.ErrEnded) {
		return fmt.Errorf("the server ends: %w", process.ErrUnavailable)
	}
	return err
}

// Start, Stop and Restart are Up, Down and Restart of run.Supervisor.
func (s *Services) Start(ctx context.Context, project string, names []string) error {
	return s.wish(ctx, project, names, true, s.sup.Up)
}

// wish does something to services as a caller within a project names them.
func (s *Services) wish(ctx context.Context, project string, names []string, start bool,
	do func(context.Context, ...string) error) error {
	if s.trouble != nil {
		return s.trouble
	}
	names, err := s.full(ctx, project, names, start)
	if err != nil {
		return err
	}
	return away(do(ctx, names...))
}

// Adopt has a service be a process that tend did not start.
func (s *Services) Adopt(ctx context.Context, name string, pid int) error {
	if s.trouble != nil {
		return s.trouble
	}
	return away(s.sup.Adopt(ctx, name, pid))
}

// Stop ends services.
func (s *Services) Stop(ctx context.Context, project string, names []string) error {
	return s.wish(ctx, project, names, false, s.sup.Down)
}

// Restart ends services and starts them again.
func (s *Services) Restart(ctx context.Context, project string, names []string) error {
	return s.wish(ctx, project, names, false, s.sup.Restart)
}
