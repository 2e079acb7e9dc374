package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

type upCmd struct {
	projectFlag
	Detach bool `short:"d" help:"Request the services and return; they keep running."`
	TUI    bool `name:"tui" help:"Show the services as tend top does, in place of their output; who leaves it ends them, but with -d."`
	Wait   bool `help:"With -d: return once all of them are ready or have completed; exit status 1 if one has failed."`
	// It ends the wait alone: the services keep running.
	WaitTimeout time.Duration `name:"wait-timeout" placeholder:"30s" help:"With --wait: give up after this long, with exit status 124; the services keep running. Default: no limit, and a service with restart.max 0 never fails."`
	Config      string        `short:"f" default:"tend.yaml" placeholder:"FILE" help:"The file that declares the services: a tend.yaml, or an ecosystem file of pm2, a Procfile or a file of process-compose. Default: the tend.yaml of this directory, or of the nearest above."`
	Names       []string      `arg:"" name:"service" optional:"" complete:"service" help:"Only these services and their dependencies. Default: all that are not disabled."`
}

// Run declares the services of a file and starts them. In the foreground it shows what
// they write, and ends on ctrl-c what it has started.
func (c *upCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Wait && !c.Detach {
		return usageError("--wait is for -d; without it tend up shows what becomes of the services")
	}
	if c.WaitTimeout != 0 && !c.Wait {
		return usageError("--wait-timeout is for --wait")
	}
	if _, ok := terminalOf(inv.out); c.TUI && (!ok || c.Wait || inv.flags.JSON) {
		return usageError("--tui is for a terminal, and goes without --wait and --json")
	}
	if c.WaitTimeout < 0 {
		return usageError("--wait-timeout is negative; leave it out to wait for ever")
	}
	file, err := inv.aboveHere(c.Config)
	if err != nil {
		return err
	}
	src, declared, err := inv.loadConfig(ctx, file)
	if err != nil {
		return err
	}
	for _, name := range c.Names {
		if declared.Services[name] == nil {
			return usageError(fmt.Sprintf("%s declares no service %s; it has %s", c.Config, name, listed(declared.Names())))
		}
	}
	signals := catchSignals()
	asked, stop := signal.NotifyContext(ctx, endSignals()...)
	defer stop()
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return err
	}
	k, err := c.declare(ctx, d, src.Dir)
	if err != nil {
		return err
	}
	before, err := k.list(ctx)
	if err != nil {
		return err
	}
	if d.started {
		// Those of an earlier life are running because of this command, too. One that names
		// services ends no others for that, but as the first process of a container, which
		// all end with.
		before = slices.DeleteFunc(before, func(s tend.Service) bool {
			return len(c.Names) == 0 || slices.Contains(c.Names, s.Name) || os.Getpid() == 1
		})
	}
	for _, name := range declared.Names() {
		if image := declared.Services[name].Image; image != "" {
			if _, err := inv.present(asked, d, image); err != nil {
				return about("service "+name, err)
			}
		}
	}
	err = d.ApplyServices(ctx, tend.ServiceFile{Name: src.Name, Dir: src.Dir, Text: src.Text, EnvFiles: src.EnvFiles,
		Env: inheritedEnv(inv.environ()), Project: k.project})
	if err == nil {
		err = d.StartProject(ctx, k.project, c.Names...)
	}
	if err != nil {
		return serviceError(err)
	}
	v := newUpView(inv, k, before)
	if c.TUI {
		return v.tui(ctx, asked, signals, c.Detach)
	}
	if !c.Detach {
		defer collectOrphans()()
		return v.foreground(ctx, signals)
	}
	ctx = asked // to end
	within, late := ctx, context.CancelFunc(func() {})
	if c.WaitTimeout > 0 {
		within, late = context.WithTimeout(ctx, c.WaitTimeout)
	}
	defer late()
	if c.Wait {
		err = v.until(within, ready)
	}
	all, lerr := k.list(ctx)
	if lerr != nil {
		return lerr
	}
	if err != nil && errors.Is(within.Err(), context.DeadlineExceeded) {
		err = notReadyError(all, c.WaitTimeout)
	}
	if perr := inv.printServices(wantedServices(all), false); perr != nil {
		return perr
	}
	return err
}

// loadConfig reads a file of services. What is wrong in it is printed, each with its
// place.
func (inv *invocation) loadConfig(ctx context.Context, path string) (*config.Source, *config.Config, error) {
	src, err := inv.openSource(ctx, path)
	if errors.Is(err, fs.ErrNotExist) && path == config.FileName {
		return nil, nil, fmt.Errorf("there is no %s here or above; tend init writes one for a project, and -f FILE names another file", path)
	}
	if err != nil {
		return nil, nil, err
	}
	c, err := src.Config()
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return nil, nil, inv.showProblems(problems)
	}
	return src, c, err
}

// openSource reads a tend.yaml, or a file of another supervisor as if it were one: it notes
// what has no equivalent.
func (inv *invocation) openSource(ctx context.Context, path string) (*config.Source, error) {
	f, err := inv.readForeign(ctx, path)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return config.Open(path)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for _, n := range f.Notes() {
		inv.note("%s: %s", path, printable(n))
	}
	return config.OpenText(path, filepath.Dir(full), f.YAML()), nil
}

// problemFacts is one problem of a file as JSON.
type problemFacts struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // from 1; 0: the file as a whole
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Problem string `json:"problem"`
}

// showProblems prints what is wrong with a file on stderr: FILE:LINE:COL: text, as
// compilers do, and the line below it.
func (inv *invocation) showProblems(problems config.Problems) error {
	for _, p := range problems {
		if inv.json {
			_ = printJSONLine(inv.errs, problemFacts{p.File, p.Line, p.Column, p.Path, p.Text}) // if it fails, no reader is left
			continue
		}
		for i, line := range strings.Split(p.Show(), "\n") {
			if i == 0 || !strings.Contains(line, "\x1b") {
				line = strings.TrimRight(line, "\r")
			}
			fmt.Fprintln(inv.errs, printable(line))
		}
	}
	return statusError(1)
}

// volatileEnv are variables of a terminal or of one shell alone. A service that had them
// would be another one from each terminal, and restarted for it.
var volatileEnv = []string{"_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "TMUX",
	"TMUX_PANE", "STY", "GPG_TTY", "TEND_TOKEN", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"}

// inheritedEnv is what services inherit of this program's environment.
func inheritedEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, e := range environ {
		k, v, ok := strings.Cut(e, "=")
		if !ok || k == "" || slices.Contains(volatileEnv, k) || strings.HasPrefix(k, "TERM_") || strings.HasPrefix(k, "SSH_") ||
			strings.HasPrefix(k, "XDG_SESSION_") {
			continue
		}
		env[k] = v
	}
	if runtime.GOOS == "windows" {
		return nil // it has nothing that helps on the daemon's machine
	}
	return env
}

// serviceError is an error about services, or their repairs, that says what to do.
func serviceError(err error) error {
	if errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrRunning) {
		return &keyError{err.Error(), err}
	}
	return err
}

// upView shows what becomes of services.
type upView struct {
	inv    *invocation
	k      *keptServices
	d      *daemon
	before map[string]tend.Service

	together sync.Mutex // of those who print lines
	wg       sync.WaitGroup
	shown    map[string]tend.Service // as they were noted last
	read     map[string]process.ID   // whose output is read
	names    []string                // of all
}

func newUpView(inv *invocation, k *keptServices, before []tend.Service) *upView {
	v := &upView{inv: inv, k: k, d: k.d, before: map[string]tend.Service{}, shown: map[string]tend.Service{}, read: map[string]process.ID{}}
	for _, s := range before {
		v.before[s.Name] = s
	}
	return v
}

func wantedServices(all []tend.Service) []tend.Service {
	return slices.DeleteFunc(slices.Clone(all), func(s tend.Service) bool { return !s.Up })
}

// ready reports whether all that are wanted can be used, and which of them has failed.
func ready(all []tend.Service) (done bool, failed []string) {
	done = true
	for _, s := range wantedServices(all) {
		switch {
		case s.Phase == tend.ServiceFailed, needsHelp(s):
			failed = append(failed, s.Name)
		case s.Ready, s.Phase == tend.ServiceCompleted, s.Phase == tend.ServiceWaiting && s.Runs > 0, s.Phase == tend.ServiceWaiting &&
			s.Why == "for its time":
		default:
			done = false
		}
	}
	return done || len(failed) > 0, failed
}

// notReadyError says what was waited for in vain.
func notReadyError(all []tend.Service, within time.Duration) error {
	var names []string
	for _, s := range wantedServices(all) {
		if done, _ := ready([]tend.Service{s}); !done {
			names = append(names, fmt.Sprintf("%s (%s)", printable(s.Name), printable(cmp.Or(s.Why, s.Phase.String()))))
		}
	}
	return &runError{status: 124, err: lateError(fmt.Sprintf("not ready within %v: %s; they keep running (see tend services)",
		within, cmp.Or(strings.Join(names, ", "), "a service")))}
}

// away reports whether a service can do nothing because of its sandbox.
func away(s tend.Service) bool { return strings.HasPrefix(s.Why, "its sandbox ") }

// needsHelp reports whether it is so until somebody does what its Why says behind a
// semicolon; a sandbox that has ended is started by the daemon.
func needsHelp(s tend.Service) bool { return away(s) && strings.Contains(s.Why, "; ") }

// over reports whether nothing happens any more by itself.
func over(all []tend.Service) (done bool, failed []string) {
	for _, s := range wantedServices(all) {
		switch {
		case s.Phase == tend.ServiceFailed && s.Next == 0:
			failed = append(failed, s.Name)
		case s.Phase == tend.ServiceCompleted:
		default:
			return false, nil
		}
	}
	return true, failed
}

func failedError(failed []string) error {
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("failed: %s (tend services says why, tend logs %s shows what it wrote)", listed(failed), printable(failed[0]))
}

// until waits until the services are so.
func (v *upView) until(ctx context.Context, so func([]tend.Service) (bool, []string)) error {
	for all, err := range v.k.watch(ctx) {
		if err != nil {
			return serviceError(err)
		}
		v.say(all)
		if done, failed := so(all); done {
			return failedError(failed)
		}
	}
	return context.Cause(ctx)
}

// say notes what people want to know of a service.
func (v *upView) say(all []tend.Service) {
	for _, s := range all {
		was, known := v.shown[s.Name]
		v.shown[s.Name] = s
		if !known { // it may have died already
			was.Restarts = v.before[s.Name].Restarts
		}
		if !s.Up && !known {
			continue
		}
		same := known && was.Phase == s.Phase && was.Runs == s.Runs
		switch {
		case s.Phase == tend.ServiceFailed && !same:
			v.note("%s has failed: %s%s", s.Name, s.Why, again(s))
		case s.Phase == tend.ServiceCompleted && !same:
			v.note("%s has completed", s.Name)
		case away(s) && was.Why != s.Why:
			v.note("%s waits: %s", s.Name, s.Why)
		case s.Ready && !(was.Ready && same):
			v.note("%s is ready", s.Name)
		case s.Restarts > was.Restarts:
			v.note("%s starts again: %s", s.Name, s.Why)
		}
	}
}

func again(s tend.Service) string {
	if s.Next <= 0 {
		return ""
	}
	return fmt.Sprintf("; it is tried again in %v", s.Next.Round(time.Second))
}

func (v *upView) note(format string, args ...any) {
	v.together.Lock()
	defer v.together.Unlock()
	v.inv.note(format, args...)
}

// foreground shows what services write until they are over, or a signal ends what this
// command has started.
func (v *upView) foreground(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	news, broken := make(chan []tend.Service), make(chan error, 1)
	var watch sync.WaitGroup
	watch.Go(func() {
		for all, err := range v.k.watch(ctx) {
			if err != nil {
				broken <- err
				return
			}
			select {
			case news <- all:
			case <-ctx.Done():
				return
			}
		}
	})
	defer func() { cancel(); watch.Wait(); v.wg.Wait() }()
	ending := false
	for {
		select {
		case err := <-broken:
			return serviceError(err)
		case all := <-news:
			v.say(all)
			if v.names == nil { // fixed, so that the lines of one look alike
				v.names = mapped(wantedServices(all), func(s *tend.Service) string { return s.Name })
			}
			v.readNew(ctx, all)
			if done, failed := over(all); done && !ending {
				v.rest()
				return failedError(failed)
			}
			if ending && v.ended(all) {
				v.rest()
				return nil
			}
		case s := <-signals:
			switch {
			case slices.Contains(resizeSignals(), s):
			case s == syscall.SIGHUP:
				return statusError(128 + int(syscall.SIGHUP)) // the services keep running
			case ending:
				v.note("left; the services are still being ended (tend services)")
				return statusError(128 + int(syscall.SIGINT))
			default:
				ending = true
				some, err := v.end(ctx)
				if err != nil || !some {
					return serviceError(err)
				}
			}
		}
	}
}

// tui shows the services on the terminal until the person leaves, and then ends what this command has
// started, unless it is to stay.
func (v *upView) tui(ctx, asked context.Context, signals <-chan os.Signal, stay bool) error {
	defer collectOrphans()()
	b := dashboard{inv: v.inv, d: v.d, services: true, project: v.k.project, interval: time.Second}
	if err := b.run(asked); err != nil || stay {
		return err
	}
	for len(signals) > 0 {
		if <-signals == syscall.SIGHUP {
			return statusError(128 + int(syscall.SIGHUP)) // the services keep running
		}
	}
	if some, err := v.end(ctx); err != nil || !some {
		return serviceError(err)
	}
	return v.until(ctx, func(all []tend.Service) (bool, []string) { return v.ended(all), nil })
}

// ours are the services that were not wanted before this command.
func (v *upView) ours(all []tend.Service) (names []string) {
	for _, s := range all {
		if s.Up && !v.before[s.Name].Up {
			names = append(names, s.Name)
		}
	}
	return names
}

// end asks what this command has started to end; false: it has started nothing.
func (v *upView) end(ctx context.Context) (some bool, err error) {
	all, err := v.k.list(ctx)
	if err != nil {
		return false, err
	}
	names := v.ours(all)
	if len(names) == 0 {
		return false, nil
	}
	v.note("ending %s; ctrl-c again leaves", listed(names))
	return true, v.d.StopProject(ctx, v.k.project, names...)
}

// ended: nothing of what this command has started is wanted or lives.
func (v *upView) ended(all []tend.Service) bool {
	return !slices.ContainsFunc(all, func(s tend.Service) bool {
		return !v.before[s.Name].Up && (s.Up || s.Phase.Alive())
	})
}

// restTime bounds how long the last output is waited for.
const restTime = 2 * time.Second

// rest waits for the output of processes that have ended.
func (v *upView) rest() {
	done := make(chan struct{})
	go func() { v.wg.Wait(); close(done) }() // foreground waits for them, too
	select {
	case <-done:
	case <-time.After(restTime):
	}
}

// readNew reads the output of runs that are new.
func (v *upView) readNew(ctx context.Context, all []tend.Service) {
	for _, s := range all {
		// While it starts there may be no process of that ID yet.
		if s.Process == "" || s.Phase == tend.ServiceStarting || v.read[s.Name] == s.Process || !s.Up && v.read[s.Name] == "" {
			continue
		}
		opts := process.ReadOptions{}
		if v.before[s.Name].Process == s.Process { // what it wrote before is in the logs
			if !s.Phase.Alive() {
				continue
			}
			opts.From = [4]int64{0, -1, -1, -1}
		}
		v.read[s.Name] = s.Process
		v.wg.Go(func() {
			if err := v.follow(ctx, s, opts); err != nil && ctx.Err() == nil && !errors.Is(err, process.ErrNotFound) {
				v.note("%s: its output is not shown any more: %v", s.Name, err)
			}
		})
	}
}

func (v *upView) follow(ctx context.Context, s tend.Service, opts process.ReadOptions) error {
	p, err := v.d.Get(ctx, process.Selector{ID: s.Process})
	if err != nil {
		return err
	}
	own := *v.inv
	own.lines = &lineWriter{inv: v.inv, id: p.ID(), name: v.inv.prefix(s.Name, v.names), together: &v.together}
	for ev, err := range process.Events(ctx, p, opts) {
		if err != nil {
			return errors.Join(err, own.lines.flush())
		}
		if ev.Kind == process.EventGap {
			v.note("%s: %s", s.Name, gapText(ev.Gap))
			continue
		}
		if err := own.printOutput(ev); err != nil {
			return err
		}
	}
	return own.lines.flush()
}
