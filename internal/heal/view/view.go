package view

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

const (
	// label is the metadata of a view's sandbox, with what it is for.
	label = "tend.heal"
	// lives is how long a sandbox lives without its owner.
	lives = 15 * time.Minute
	// patience is how long the daemon may be away: an upgrade, a death of all roles.
	patience = 2 * time.Minute
	// Bounds of what a command changes.
	maxChanges = 2000
	maxBytes   = 32 << 20
)

// Dropped are directories of which a command keeps nothing: git's and tend's own, and what package
// managers install.
var Dropped = []string{".git", ".tend", "node_modules", ".venv", "venv", "__pycache__", ".cache", ".pnpm-store"}

// Config says of what there is to be a view.
type Config struct {
	Client *tend.Client
	ID     string // what it is for, such as an episode
	Root   string // of the project, without links
	Rules  *config.Service
	// Of is the sandbox of the service; nil: the machine.
	Of *tend.Sandbox
	// User that its programs run as: a name or UID:GID there. "": root.
	User string
	// Path is that of its commands, and Show are paths of the machine that they see besides.
	Path string
	Show []string
	// Limits of each program.
	Limits process.Limits
	// Pass is what runs of the service reach, and Installs too of what is elsewhere. Dial connects to what is
	// on the loopback; Self is this program, which does so in a view.
	Pass []config.Pass
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Self string
}

// View is of one project. Its methods are called one at a time.
type View struct {
	Config
	base string // the snapshot of the sandbox of the service
}

// Open finds out whether there can be a view; an error says why not.
func Open(ctx context.Context, c Config) (*View, error) {
	v := &View{Config: c}
	err := v.again(ctx, func() error {
		if c.Of != nil && v.base == "" {
			kept, err := c.Of.Snapshot(ctx, v.name())
			if err != nil {
				return fmt.Errorf("a snapshot of the sandbox of the service: %w", err)
			}
			v.base = kept.ID
		}
		p, err := v.enter(ctx, &Set{}, nil)
		if err != nil {
			return err
		}
		return p.leave(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, v.Close(ctx))
	}
	return v, nil
}

// again does what is thrown away anyway once more, if a role of the daemon has died meanwhile.
func (v *View) again(ctx context.Context, do func() error) error {
	for until := time.Now().Add(patience); ; {
		err := do()
		if !errors.Is(err, process.ErrUnavailable) || time.Now().After(until) || !backoff.Wait(ctx, pace) {
			return err
		}
		if err := sweep(ctx, v.Client, v.ID); err != nil && !errors.Is(err, process.ErrUnavailable) {
			return err
		}
	}
}

func (v *View) name() string { return "heal-" + v.ID }

// Close removes what there is of the view.
func (v *View) Close(ctx context.Context) error {
	if v.base == "" {
		return nil
	}
	return v.Client.DeleteSandboxSnapshot(ctx, v.base)
}

// Sweep removes what a killed owner has left.
func Sweep(ctx context.Context, c *tend.Client, id string) error {
	gates, _ := filepath.Glob(filepath.Join(os.TempDir(), gateDir+id+"-*")) // an error is of the pattern
	for _, dir := range gates {
		_ = os.RemoveAll(dir)
	}
	if err := sweep(ctx, c, id); err != nil {
		return err
	}
	if err := c.DeleteSandboxSnapshot(ctx, "heal-"+id); err != nil && !errors.Is(err, process.ErrUnsupported) {
		return err
	}
	return nil
}

// sweep removes sandboxes that are left.
func sweep(ctx context.Context, c *tend.Client, id string) error {
	all, err := c.Sandboxes(ctx, tend.SandboxFilter{Metadata: map[string]string{label: id}})
	if errors.Is(err, process.ErrUnsupported) {
		return nil
	}
	for _, in := range all {
		s, ferr := c.Sandbox(ctx, in.ID)
		if ferr == nil {
			ferr = s.Destroy(ctx)
		}
		if !errors.Is(ferr, process.ErrNotFound) {
			err = errors.Join(err, ferr)
		}
	}
	return err
}

// ErrNone: there can be no view.
var ErrNone = errors.New("no view of the project can be had")

// place is a sandbox with the project in it.
type place struct {
	v       *View
	sandbox *tend.Sandbox
	inside  *tend.Client
}

// enter makes a sandbox, and writes a set into it.
//
// add adds to its description.
func (v *View) enter(ctx context.Context, s *Set, add func(*tend.SandboxSpec)) (_ *place, err error) {
	spec := tend.SandboxSpec{
		Isolation: tend.IsolationFull, Disposable: true, Timeout: lives, Network: tend.SandboxNetwork{Mode: tend.NetworkOwn, Deny: []string{"*"}},
		Metadata: map[string]string{label: v.ID}, Snapshot: v.base, User: cmp.Or(v.User, "root"), Dir: v.Root,
	}
	if v.Of == nil {
		spec.Shares = v.shares()
	} else {
		of, err := v.Of.Info(ctx)
		if err != nil {
			return nil, err
		}
		spec.Size, spec.Env = of.Size, of.Env
		for _, one := range of.Shares { // what the sandbox has of the machine
			one.Copy = !one.ReadOnly
			spec.Shares = append(spec.Shares, one)
		}
	}
	if add != nil {
		add(&spec)
	}
	made, err := v.Client.CreateSandbox(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	p := &place{v: v, sandbox: made}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.leave(ctx))
		}
	}()
	if p.inside, err = made.Client(ctx); err != nil {
		return nil, err
	}
	return p, p.write(ctx, s)
}

// leave throws the sandbox away.
func (p *place) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return p.sandbox.Destroy(ctx)
}

// files are those of the sandbox, with all rights there: what is written belongs to whom the directory
// belongs that it is in.
func (p *place) files() *tend.Files { return p.sandbox.Files().As("root") }

func (p *place) at(name string) string { return path.Join(p.v.Root, name) }

// write makes the changes of a set.
func (p *place) write(ctx context.Context, s *Set) error {
	user := p.sandbox.Files()
	for _, c := range s.Changes() {
		var err error
		switch c.Kind {
		case Gone:
			err = p.files().Remove(ctx, p.at(c.Path))
		case Directory:
			if err = user.Mkdir(ctx, p.at(c.Path)); errors.Is(err, process.ErrExists) {
				err = nil
			}
		case File:
			// A file that the service's user may not write is written by root, and keeps its owner.
			var e tend.FileEntry
			if e, err = user.Write(ctx, p.at(c.Path), bytes.NewReader(c.Data)); errors.Is(err, process.ErrPermission) {
				e, err = p.files().Write(ctx, p.at(c.Path), bytes.NewReader(c.Data))
			}
			if err == nil && c.Mode != 0 && c.Mode != fs.FileMode(e.Mode).Perm() {
				_, err = p.run(ctx, process.Spec{Argv: []string{"chmod", fmt.Sprintf("%o", c.Mode.Perm()), p.at(c.Path)}, Timeout: time.Minute})
			}
		}
		if err != nil {
			return fmt.Errorf("write %s into a view: %w", c.Path, err)
		}
	}
	for _, one := range s.Env {
		old, err := p.files().ReadFile(ctx, p.at(one.File))
		if err != nil && !errors.Is(err, process.ErrNotFound) {
			return err
		}
		text, err := guard.WithVariable(string(old), one.Name, one.Value)
		if err == nil {
			err = p.files().WriteFile(ctx, p.at(one.File), []byte(text))
		}
		if err != nil {
			return fmt.Errorf("set %s in a view: %w", one.Name, err)
		}
	}
	return nil
}

// Ran is how a program in a view has ended.
type Ran struct {
	Output   string
	Exit     *process.Exit
	TimedOut bool
}

// run runs a program to its end.
func (p *place) run(ctx context.Context, spec process.Spec) (Ran, error) {
	spec.TimeoutScope = process.ScopeTree
	proc, err := p.start(ctx, spec)
	if err != nil {
		return Ran{}, err
	}
	res, err := proc.Wait(ctx, process.Until{})
	if err != nil {
		return Ran{}, err
	}
	if _, err := proc.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) {
		return Ran{}, err
	}
	text, err := Output(ctx, proc, maxOutput)
	return Ran{text, res.Exit, res.Exit != nil && res.Exit.Cause == process.CauseTimeout}, err
}

// start starts a program, with those limits for which there are control groups.
func (p *place) start(ctx context.Context, spec process.Spec) (process.Process, error) {
	spec.User, spec.Limits = cmp.Or(p.v.User, "root"), p.v.Limits
	if spec.Dir == "" {
		spec.Dir = p.v.Root
	}
	for {
		proc, err := p.inside.Start(ctx, spec)
		if healer.Lessen(&spec.Limits, err) == "" {
			return proc, err
		}
	}
}

// Exec runs a command of nobody that is trusted, and returns what it has changed beside the set. It
// does not see what is in hide, paths below the root.
func (v *View) Exec(ctx context.Context, s *Set, hide []string, spec process.Spec) (ran Ran, changed []Change, err error) {
	err = v.again(ctx, func() (err error) {
		ran, changed, err = v.exec(ctx, s, hide, spec)
		return err
	})
	return ran, changed, err
}

func (v *View) exec(ctx context.Context, s *Set, hide []string, spec process.Spec) (ran Ran, changed []Change, err error) {
	p, err := v.enter(ctx, s, nil)
	if err != nil {
		return ran, nil, err
	}
	defer func() { err = errors.Join(err, p.leave(ctx)) }()
	for _, name := range hide {
		if err := p.files().Remove(ctx, p.at(name)); err != nil {
			return ran, nil, err
		}
	}
	if v.Of != nil {
		if err := p.bare(ctx); err != nil {
			return ran, nil, err
		}
	}
	if ran, err = p.run(ctx, spec); err != nil {
		return ran, nil, err
	}
	all, err := p.sandbox.Files().Changes(ctx, v.Root, Dropped...)
	if errors.Is(err, process.ErrLimit) || len(all) > maxChanges {
		return ran, nil, tooMuch("it has changed more than %d files", maxChanges)
	}
	if err != nil {
		return ran, nil, err
	}
	bytes := 0
	for _, one := range all {
		hidden := func(h string) bool {
			return one.Path == h || one.Kind == tend.ChangeGone && strings.HasPrefix(h, one.Path+"/")
		}
		if slices.ContainsFunc(hide, hidden) {
			continue
		}
		c := Change{Path: one.Path, Kind: Other}
		switch one.Kind {
		case tend.ChangeGone:
			c.Kind = Gone
		case tend.ChangeFile:
			c.Kind = File
		case tend.ChangeDir:
			c.Kind = Directory
		}
		if c.Kind == File {
			if c, err = p.read(ctx, c); err != nil {
				return ran, nil, err
			}
			if bytes += len(c.Data); bytes > maxBytes {
				return ran, nil, tooMuch("it has changed more than %d MiB", maxBytes>>20)
			}
		}
		changed = append(changed, c)
	}
	return ran, changed, nil
}

func tooMuch(format string, n int) error {
	return fmt.Errorf("nothing of what it has changed was taken over: "+format+": %w", n, process.ErrLimit)
}

// bare removes what else there is in a sandbox of the service: homes, data, other projects.
func (p *place) bare(ctx context.Context) error {
	for dir := p.v.Root; dir != "/"; dir = path.Dir(dir) {
		all, err := p.files().List(ctx, path.Dir(dir), 1)
		if err != nil {
			return err
		}
		for _, e := range all {
			at := path.Join(path.Dir(dir), e.Name)
			if at == dir || public(at) || slices.Contains([]string{"/tmp", "/nix", "/gnu"}, at) ||
				slices.Contains([]string{"node_modules", "package.json"}, e.Name) {
				continue
			}
			if err := p.files().Remove(ctx, at); err != nil {
				return fmt.Errorf("leave %s out of a view: %w", at, err)
			}
		}
	}
	return nil
}

// read reads a file that was changed.
func (p *place) read(ctx context.Context, c Change) (Change, error) {
	e, err := p.files().Stat(ctx, p.at(c.Path))
	if err == nil && e.Size > maxBytes {
		return c, tooMuch("it has changed more than %d MiB", maxBytes>>20)
	}
	if err == nil {
		c.Mode = fs.FileMode(e.Mode).Perm()
		// What is read is given to whom the command ran as: it may have moved another's.
		if c.Data, err = p.sandbox.Files().ReadFile(ctx, p.at(c.Path)); errors.Is(err, process.ErrPermission) {
			c.Kind, err = Closed, nil
		}
	}
	return c, err
}

// shares are the project, and what its programs need of the machine besides what all sandboxes see.
func (v *View) shares() (all []tend.SandboxShare) {
	all = append(all, tend.SandboxShare{Source: v.Root, Copy: true})
	cwd := v.Rules.Cwd
	if real, err := filepath.EvalSymlinks(cwd); err == nil && !inside(real, v.Root) && real != "/" {
		all = append(all, tend.SandboxShare{Source: real, Target: cwd, Copy: true})
	}
	add := func(dir string) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(dir) || real == "/" || len(all) == mostShares || inside(v.Root, real) {
			return
		}
		for _, at := range []string{dir, real} {
			if public(at) || slices.ContainsFunc(all, func(s tend.SandboxShare) bool { return inside(at, cmp.Or(s.Target, s.Source)) }) {
				continue
			}
			all = append(all, tend.SandboxShare{Source: real, Target: at, ReadOnly: true})
		}
	}
	dirs := filepath.SplitList(v.Path)
	for _, venv := range []string{".venv", "venv"} { // an interpreter that lies elsewhere
		dirs = append(dirs, filepath.Join(v.Root, venv, "bin"))
	}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		if inside(dir, v.Root) {
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, "python")); err == nil {
				add(prefix(filepath.Dir(real)))
			}
			continue
		}
		add(prefix(dir))
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			add(prefix(real))
		}
	}
	if argv := v.Rules.Command.Argv; len(argv) > 0 && filepath.IsAbs(argv[0]) {
		if real, err := filepath.EvalSymlinks(argv[0]); err == nil && !inside(real, v.Root) {
			add(prefix(filepath.Dir(real)))
		}
	}
	for _, path := range v.Show {
		add(path)
	}
	return all
}

const mostShares = 24

// prefix is the directory of what is installed as a whole, such as a version of Node, for one with
// its programs.
func prefix(dir string) string {
	up := filepath.Dir(dir)
	if base := filepath.Base(dir); base == "shims" {
		return up
	} else if _, err := os.Lstat(filepath.Join(up, "lib")); err == nil && base == "bin" && filepath.Base(up) != ".local" {
		return up
	}
	return dir
}

// public reports whether all sandboxes see a path.
func public(p string) bool {
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys", "/dev", "/run", "/etc"} {
		if inside(p, dir) {
			return true
		}
	}
	return false
}

// inside reports whether a path is another, or below it.
func inside(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
