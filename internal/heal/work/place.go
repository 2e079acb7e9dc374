package work

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// Verb is the argument with which this program is [project.Serve].
const Verb = "heal-project"

const (
	// insidePath is that of commands in a sandbox, for a service that has none.
	insidePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// goMemory is how much memory the program that works on a project uses before it
	// collects more often.
	goMemory = "1GiB"
	// placeEvery is how often it is looked whether a sandbox is there.
	placeEvery = 250 * time.Millisecond
	// remoteFile is in the directory of a checkpoint that is where the project is.
	remoteFile = "remote.json"
)

// findPlace finds where the service runs. There is no place if its sandbox is gone.
func (w *worker) findPlace(ctx context.Context) error {
	w.there = w.client
	key := w.order.SandboxKey()
	if key == "" {
		return nil
	}
	sandbox, err := w.client.Sandbox(ctx, key)
	var in tend.SandboxInfo
	if err == nil {
		in, err = sandbox.Info(ctx)
	}
	if errors.Is(err, process.ErrNotFound) || err == nil && w.isAnother(&in) {
		w.gone = true
		return nil
	}
	if err != nil {
		return err
	}
	if w.sandbox, err = sandbox.Passive(ctx); err != nil {
		return err
	}
	w.sandboxID = in.ID
	w.there, err = w.sandbox.Look(ctx)
	return err
}

// isAnother reports whether a sandbox that was found is not that of the order: it was made later,
// and has the name now, or even the ID for a name.
func (w *worker) isAnother(in *tend.SandboxInfo) bool {
	if w.order.SandboxID != "" {
		return in.ID != w.order.SandboxID
	}
	return in.Created.After(w.order.At)
}

// away says why nothing can be done in the sandbox of the service; "": it can. A sandbox that
// is not there any more stays away.
func (w *worker) away(ctx context.Context) (string, error) {
	key := w.order.Rules.Sandbox
	if w.gone {
		return fmt.Sprintf("its sandbox %s is not there any more", key), nil
	}
	if w.sandbox == nil {
		return "", nil
	}
	in, err := w.sandbox.Info(ctx)
	switch {
	case errors.Is(err, process.ErrNotFound):
		w.gone = true
		return w.away(ctx)
	case err != nil:
		return "", err
	case in.State == tend.SandboxReady:
		return "", nil
	}
	return fmt.Sprintf("its sandbox %s is %v", key, in.State), nil
}

// awaitPlace waits until something can be done where the service runs, until a time, or until
// somebody wants the repair to end. It does not wait for a sandbox that is gone.
func (w *worker) awaitPlace(ctx context.Context, until time.Time) error {
	for said := false; ; said = true {
		why, err := w.away(ctx)
		if err != nil {
			return err
		}
		if why == "" || w.gone {
			return nil
		}
		if !said {
			w.note("it waits: " + why)
		}
		if !until.IsZero() && (time.Now().After(until) || slices.ContainsFunc(w.inboxLines(), isCancel)) {
			return nil
		}
		if !backoff.Wait(ctx, placeEvery) {
			return ctx.Err()
		}
	}
}

func isCancel(e healer.Entry) bool { return e.Kind == healer.Cancelled }

// remote reports whether another process works on the project.
func (w *worker) remote() bool {
	_, yes := w.project.(*project.Remote)
	return yes
}

// lost returns why the process that works on the project is lost; nil: it is not.
func (w *worker) lost() error {
	if r, ok := w.project.(*project.Remote); ok {
		return r.Broken()
	}
	return nil
}

// where is a path of the project's place, for people.
func (w *worker) where(path string) string {
	if w.sandbox == nil {
		return path
	}
	return path + " in the sandbox " + w.order.Rules.Sandbox
}

// openProject opens the project where it is: in this process, in one of another user, or in
// one inside a sandbox.
func (w *worker) openProject(ctx context.Context) (project.Project, project.Opened, error) {
	o := w.order
	c := project.Config{
		ID: o.ID, Root: o.Healer.Root, Cwd: o.Rules.Cwd, Env: o.Rules.Env, Path: w.commandPath(),
		Protected: o.Healer.Protected, Data: o.Healer.Data,
	}
	if w.sandbox != nil {
		in, err := w.sandbox.Info(ctx)
		if err != nil {
			return nil, project.Opened{}, inSandbox("nothing can be done", err)
		}
		c.Copied = true
		if in.Isolation != tend.IsolationNone {
			return w.dial(ctx, c, w.startInside)
		}
		c.Home = in.Dir // it sees the machine, and commands are confined as they are there
	}
	c.StateDir, c.Files = o.StateDir, []string{o.File, o.StateDir}
	c.Hide = []string{o.StateDir, o.Dir}
	if o.Keys != "" {
		c.Hide = append(c.Hide, o.Keys)
	}
	if socket, ok := strings.CutPrefix(o.URL, "unix://"); ok {
		c.Hide = append(c.Hide, socket)
	}
	if w.sandbox != nil {
		return w.dial(ctx, c, w.startInside)
	}
	other, err := isOther(o.Rules.User)
	if err != nil {
		return nil, project.Opened{}, fmt.Errorf("the service runs as %s: %w", o.Rules.User, err)
	}
	if other {
		return w.dial(ctx, c, w.startAs)
	}
	c.Dir, c.Redact = o.Dir, w.redact
	l, opened, err := project.Open(c)
	if err != nil {
		return nil, opened, err
	}
	return l, opened, nil
}

// dial opens the project in a process that start starts.
func (w *worker) dial(ctx context.Context, c project.Config, start func(context.Context) (project.Conn,
	error)) (project.Project, project.Opened, error) {
	conn, err := start(ctx)
	if err != nil {
		return nil, project.Opened{}, err
	}
	turn, cancel := context.WithTimeout(ctx, lastTime)
	defer cancel()
	r, opened, err := project.Dial(turn, conn, c)
	if err != nil && turn.Err() != nil && ctx.Err() == nil {
		// Somebody has stopped it, or one before it: another worker may have more luck.
		return nil, opened, &project.BrokenError{Why: fmt.Sprintf("it did not open the project within %v: %v", lastTime, err)}
	}
	if err != nil {
		return nil, opened, err
	}
	if w.sandbox != nil {
		r.Still = func() bool {
			ctx, cancel := context.WithTimeout(ctx, soonTime)
			defer cancel()
			why, err := w.away(ctx)
			return why != "" || err != nil
		}
	}
	r.OnBroken = func() {
		if w.endTurn != nil {
			w.endTurn()
		}
	}
	return r, opened, nil
}

// commandPath is the PATH of commands.
func (w *worker) commandPath() string {
	switch at := w.order.Rules.Env["PATH"]; {
	case at != "":
		return at
	case w.order.Rules.Sandbox != "":
		return insidePath
	}
	return w.path
}

// takePoint keeps the tree as it is. Where another process does, a file of the episode says
// that there is something to remove.
func (w *worker) takePoint(ctx context.Context, try int) error {
	if w.remote() {
		if err := os.MkdirAll(filepath.Dir(w.remoteMark(try)), 0o700); err != nil {
			return err
		}
		if err := atomicfile.Synced(w.remoteMark(try), []byte("{}\n"), 0o600); err != nil {
			return err
		}
	}
	return w.project.Take(ctx, try)
}

func (w *worker) remoteMark(try int) string {
	return filepath.Join(w.order.Path(healer.PointsDir), fmt.Sprint(try), remoteFile)
}

// drop removes the checkpoint of a remedy. What is left is removed with the episode.
func (w *worker) drop(ctx context.Context, try int) {
	if w.project.Drop(ctx, try) == nil && w.remote() {
		_ = os.Remove(w.remoteMark(try))
	}
}

// managed are the pids of all that this daemon has started where the service runs, as they
// are there, and of this process. What they have started is found there.
func (w *worker) managed(ctx context.Context) ([]int, error) {
	all, err := w.there.List(ctx, process.Filter{Live: true})
	if err != nil {
		return nil, err
	}
	var pids []int
	if w.sandbox == nil {
		pids = append(pids, os.Getpid())
	}
	for _, in := range all {
		pids = append(pids, in.PID)
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == 0 }), nil
}

// toolPath is where this program is in a sandbox.
func (w *worker) toolPath() string {
	return path.Join(w.order.Healer.Root, ".tend/heal", w.order.ID, "tend")
}

// startInside starts the process that works on the project in its sandbox. Its program is a
// copy of this one, which removes itself.
func (w *worker) startInside(ctx context.Context) (project.Conn, error) {
	user := w.order.Rules.User
	if user == "" { // the sandbox's own may be another one later
		in, err := w.sandbox.Info(ctx)
		if err != nil {
			return nil, inSandbox("nothing can be done", err)
		}
		user = in.User
	}
	w.inside = user
	f, err := os.Open(w.self)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := w.toolPath()
	if err := w.sandbox.Files().As(user).WriteFile(ctx, path.Join(path.Dir(path.Dir(at)), ".gitignore"), []byte("*\n")); err != nil {
		return nil, inSandbox("the project's directory cannot be written by the user of the service", err)
	}
	if err := w.sandbox.Files().As(user).Remove(ctx, at); err != nil { // its owner may be another one
		return nil, inSandbox("the project's directory cannot be written by the user of the service", err)
	}
	if _, err := w.sandbox.Files().As(user).Write(ctx, at, f); err != nil {
		return nil, inSandbox("the project's directory cannot be written by the user of the service", err)
	}
	spec := process.Spec{
		Argv: []string{"/bin/sh", "-c", `chmod 700 "$1" && exec "$@"`, "sh", at, Verb}, User: user, Dir: "/", Stdin: process.StdinPipe,
		Inherit: process.InheritNone,
		Env:     map[string]string{"PATH": w.commandPath(), "GOMEMLIMIT": goMemory},
		Limits:  process.Limits{MemoryMax: commandMemory, PidsMax: commandPids},
		Name:    "heal-project", Labels: map[string]string{labelEpisode: w.order.ID, labelCommand: "1"},
		Retention: process.Retention{Limit: 256 << 20, TTL: time.Hour},
	}
	p, err := w.start(ctx, spec)
	if err != nil {
		_ = w.sandbox.Files().As(user).Remove(ctx, at) // else it does so itself
		return nil, inSandbox("no program can be started", err)
	}
	w.ours = p.ID()
	return newConn(w, p), nil
}

func inSandbox(what string, err error) error {
	if errors.Is(err, process.ErrUnavailable) || errors.Is(err, tend.ErrSandboxPaused) || errors.Is(err, tend.ErrSandboxStopped) ||
		errors.Is(err, process.ErrNotFound) {
		return &project.BrokenError{Why: err.Error()} // another worker waits for it
	}
	return fmt.Errorf("in the sandbox of the service %s: %w", what, err)
}

// dialInside connects to a port of the sandbox.
func (w *worker) dialInside(ctx context.Context, _, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return w.sandbox.Dial(ctx, int(at.Port()))
}
