package cli

import (
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
