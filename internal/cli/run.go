package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/onexit"
	"github.com/tend-run/tend/process"
)

type runCmd struct {
	inSandbox
	runFlags

	Image   string   `placeholder:"NAME" complete:"image" help:"In a new sandbox of this image, such as python:3, as tend sandbox run --image does; then --rm, --name, --memory and the like are the sandbox's."`
	Entry   string   `name:"entrypoint" placeholder:"PROGRAM" help:"With --image: start this program in the place of the image's own entrypoint."`
	Share   []string `short:"v" aliases:"volume" placeholder:"SRC[:DST[:ro]]" help:"With --image: a directory of the daemon's machine that is visible inside. Repeatable."`
	Publish []string `short:"p" placeholder:"[[IP:]PORT:]PORT" help:"With --image: a port of this machine that leads to one inside for as long as this command follows the process. Repeatable."`

	Cmd []string `arg:"" passthrough:"" optional:"" name:"cmd" help:"The program and its arguments, after --."`
}

// runFlags are those of a process that is started and followed.
type runFlags struct {
	TTY     bool   `short:"t" name:"tty" help:"Give it a terminal."`
	Detach  bool   `short:"d" help:"Print its ID and return."`
	Input   bool   `short:"i" name:"interactive" help:"Connect stdin."`
	Remove  bool   `name:"rm" help:"Forget it and its output when it has ended."`
	ID      string `name:"id" placeholder:"ID" help:"An ID of your choice: if you run the same command with it again, no second process starts."`
	Name    string `placeholder:"NAME" help:"A name to find it by. Two processes that run have different names."`
	Replace bool   `help:"First end the process that runs with this name, as tend stop does."`
	Tag     string `placeholder:"TAG" complete:"tag" help:"A tag to find it by."`

	Cwd string `short:"w" aliases:"dir,workdir" placeholder:"DIR" help:"Working directory. Default: this one, if the daemon is on this machine."`
	envFlags
	CleanEnv bool              `name:"clean-env" help:"Pass no variables of this shell but PATH."`
	User     string            `short:"u" placeholder:"USER" help:"Run as this user: a name, uid or uid:gid."`
	Timeout  time.Duration     `placeholder:"30s" help:"Kill it, with all descendants, after this long (exit status 124)."`
	Shell    bool              `short:"c" help:"CMD is a command line for /bin/sh."`
	Label    map[string]string `placeholder:"K=V" help:"A label. Repeatable."`

	Keep      string        `placeholder:"SIZE" help:"Keep this much of each output stream, such as 64MiB; the oldest is freed first."`
	Pin       bool          `help:"Keep it and its output when it has finished, until tend unpin or tend rm."`
	Fsync     string        `enum:"default,none,exit,interval" default:"default" placeholder:"WHEN" help:"When its output is synced to the disk: none, exit or interval, as in tend serve. Default: the daemon's."`
	Memory    string        `placeholder:"SIZE" help:"Memory limit for the process and its descendants."`
	Pids      int64         `placeholder:"N" help:"Limit of tasks for the process and its descendants."`
	CPUs      float64       `name:"cpus" placeholder:"N" help:"Limit of CPU time for the process and its descendants; 0.5 is half of one CPU."`
	Nice      int           `placeholder:"N" help:"Priority, -20 to 19."`
	OnExit    string        `name:"on-exit" placeholder:"LINE" help:"When it has ended, run this shell line as its user, with TEND_EXIT_STATUS and others set: at least once, whichever role of tend dies. The process is kept until then."`
	OnExitURL string        `name:"on-exit-url" placeholder:"URL" help:"When it has ended, send the same facts as JSON to this URL, repeatedly until the answer is 2xx, for a day."`
	Orphan    time.Duration `name:"kill-without-readers" placeholder:"1m" help:"Kill it when nobody has followed its output for this long."`
}

// removeAfter is how long a process of run -d --rm is kept once it has finished,
// and a daemon that looks around every few seconds may take longer. Nobody waits
// for the end to forget it then, as run --rm does.
const removeAfter = time.Second

func (c *runCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Image != "" {
		return c.runImage(ctx, inv)
	}
	switch {
	case c.Entry != "":
		return usageError("--entrypoint is for a sandbox of an image: give --image, or the program after --")
	case len(c.Share) > 0:
		return usageError("-v is no flag of tend run without --image: " + runHints["-v"])
	case len(c.Publish) > 0:
		return usageError("-p is no flag of tend run without --image: " + runHints["-p"])
	}
	return c.run(ctx, inv, "run", c.Cmd)
}

// runImage is tend sandbox run with the same flags.
func (c *runCmd) runImage(ctx context.Context, inv *invocation) error {
	for flag, given := range map[string]bool{"--sandbox": inv.sandbox != "", "--id": c.ID != "", "--replace": c.Replace,
		"--on-exit": c.hasExit(), "--pin": c.Pin} {
		if given {
			return usageError(flag + " does not go with --image, which makes a new sandbox; tend sandbox exec has it")
		}
	}
	own := c.runFlags
	own.ID, own.Name, own.Remove, own.Cwd, own.User, own.envFlags, own.Memory, own.Pids, own.CPUs, own.Label = "", "", false, "", "",
		envFlags{}, "", 0, 0, nil
	return (&sandboxRunCmd{
		creationFlags: creationFlags{Image: c.Image, Isolation: "full", Network: "default", Cwd: c.Cwd, envFlags: c.envFlags, User: c.User,
			Memory: c.Memory, CPUs: c.CPUs, Pids: c.Pids, Share: c.Share, Label: c.Label},
		Name: c.Name, TTY: c.TTY, Input: c.Input, Detach: c.Detach, Shell: c.Shell, Entry: c.Entry, Publish: c.Publish, Remove: c.Remove,
		Timeout: c.Timeout, Cmd: c.Cmd, process: own, verb: "run",
	}).Run(ctx, inv)
}

// run starts a command and follows it. In a sandbox that is named, which is started
// if it has to be.
func (c *runFlags) run(ctx context.Context, inv *invocation, verb string, words []string) error {
	spec, err := c.spec(inv, verb, words)
	if err != nil {
		return err
	}
	if c.TTY && !c.Detach && inv.flags.JSON {
		return usageError("a terminal has no JSON form: leave -t or --json out, or add -d to print the facts of the start alone")
	}
	// From here on a signal belongs to the process, even one that arrives
	// before it has started.
	signals := catchSignals()

	d, err := inv.connectOrStart(ctx)
	if err == nil {
		d, err = inv.within(ctx, d, true)
	}
	if err != nil {
		return runFailure(err)
	}
	return c.follow(ctx, inv, d, spec, signals)
}

// follow starts a process and connects it with this program until one of them goes.
func (c *runFlags) follow(ctx context.Context, inv *invocation, d *daemon, spec process.Spec, signals <-chan os.Signal) error {
	if d.local {
		c.likeHere(inv, d, &spec)
	}
	p, err := c.start(ctx, inv, d, spec)
	if err != nil {
		return runFailure(c.meant(spec, err))
	}
	if c.Detach {
		if err := inv.announce(ctx, p); err != nil || spec.Stdin != process.StdinPipe || c.Input {
			return err
		}
		return about(string(p.ID()), pass(ctx, p, inv.in))
	}

	f := &foreground{
		inv: inv, proc: p, tty: c.TTY, input: c.wantsInput(inv), eof: true,
		forward: true, signals: signals, detachable: true,
	}
	if inv.flags.JSON {
		f.show = func(ev process.Event) error { return inv.printStep(p.ID(), ev, spec.Command()) }
	}
	exit, err := f.run(ctx)
	inv.leftRunning = errors.Is(err, errDetached)
	switch {
	case errors.Is(err, errHungUp):
		// The process keeps running; what a script would do next is not done.
		return statusError(128 + int(syscall.SIGHUP))
	case errors.Is(err, errDetached):
		back := inv.where() + cmp.Or(spec.Name, shortID(p.ID(), 14))
		if c.TTY || spec.Stdin == process.StdinPipe {
			inv.note("detached; the process goes on, tend attach %s comes back", back)
		} else {
			inv.note("detached; the process goes on, tend logs -f %s follows it, tend attach %s comes back", back, back)
		}
		return nil
	case err != nil:
		return runFailure(err)
	}
	if c.Remove && !c.hasExit() { // that is done first, and then the daemon forgets it
		if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
			inv.note("remove %s: %s", p.ID(), explain(err))
		}
	}
	return inv.exitAs(exit)
}

// start starts the process, as the only one of its name, if it has one.
func (c *runFlags) start(ctx context.Context, inv *invocation, d *daemon, spec process.Spec) (process.Process, error) {
	if spec.Name == "" {
		return d.Start(ctx, spec)
	}
	if c.Replace {
		if err := d.replaced(ctx, inv, spec.Name); err != nil {
			return nil, err
		}
	}
	p, err := d.StartUnique(ctx, spec)
	if errors.Is(err, process.ErrExists) && strings.Contains(err.Error(), "taken by") { // and not the ID
		err = fmt.Errorf("%w; --replace ends that first, or choose another name", err)
		if strings.Contains(err.Error(), "taken by the service") {
			err = fmt.Errorf("%w; choose another name, or end the service: tend down %s", errors.Unwrap(err), printable(spec.Name))
		}
	}
	return p, err
}

// replaced ends the processes that run with a name, but for a service's.
func (d *daemon) replaced(ctx context.Context, inv *invocation, name string) error {
	infos, err := d.List(ctx, process.Filter{Live: true})
	if err != nil {
		return err
	}
	for i := range infos {
		labels := infos[i].Spec.Labels
		if infos[i].Spec.Name != name || labels[process.LabelService] != "" || inv.sandbox == "" && labels[process.LabelSandbox] != "" {
			continue
		}
		p, err := d.Get(ctx, process.Selector{ID: infos[i].ID})
		if err == nil {
			_, err = inv.stop(ctx, p, name, &grace{Time: usualGrace}, int(syscall.SIGTERM))
		}
		if err != nil && !errors.Is(err, process.ErrNotFound) {
			return err
		}
	}
	return nil
}

// meant adds what a person has most likely meant by a program that is not there.
func (c *runFlags) meant(s process.Spec, err error) error {
	start, ok := errors.AsType[*process.StartError](err)
	if !ok || start.Reason != process.StartNotFound || len(s.Argv) != 1 || !strings.ContainsAny(s.Argv[0], " \t|&;<>$") {
		return err
	}
	return fmt.Errorf("%w (it is one word; for a command line use -c: tend run -c '%s')", err, strings.ReplaceAll(s.Argv[0], "'", `'\''`))
}

// announce prints what a person or a script needs to come back.
func (inv *invocation) announce(ctx context.Context, p process.Process) error {
	if !inv.flags.JSON {
		_, err := fmt.Fprintln(inv.out, printable(string(p.ID())))
		return err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return err
	}
	return printJSON(inv.out, factsOf(&info))
}

func (c *runFlags) spec(inv *invocation, verb string, words []string) (process.Spec, error) {
	s := process.Spec{
		ID: process.ID(c.ID), Name: c.Name, Tag: c.Tag, Dir: c.Cwd, User: c.User,
		Timeout: c.Timeout, KillWithoutReaders: c.Orphan, Labels: c.Label, Retention: process.Retention{Sync: syncOf(c.Fsync), Pin: c.Pin},
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	} else if len(words) > 0 && len(words[0]) > 1 && words[0][0] == '-' {
		// A flag with a typing error, far more likely than a program.
		flag, _, _ := strings.Cut(words[0], "=")
		hints := runHints
		if verb == "sandbox run" || strings.HasSuffix(verb, " --image") {
			hints = sandboxHints
		}
		if hint := cmp.Or(hints[flag], hints[flag[:min(2, len(flag))]]); hint != "" {
			return s, usageError(fmt.Sprintf("%s is no flag of tend %s: %s", flag, verb, hint))
		}
		return s, usageError(fmt.Sprintf("unknown flag %s; see tend %s --help (a program of that name comes after --)", words[0], verb))
	}
	if len(words) == 0 {
		return s, usageError(fmt.Sprintf("no command is given: tend %s [flags] -- CMD ARG…", cmp.Or(runForms[verb], verb)))
	}
	if s.Argv = words; c.Shell {
		s.Argv, s.Shell = nil, strings.Join(words, " ")
	}
	var err error
	if err = c.onExit(inv, &s); err != nil {
		return s, err
	}
	if s.Env, err = c.environment(inv); err != nil {
		return s, err
	}
	if c.Cwd != "" && !filepath.IsAbs(c.Cwd) && inv.sandbox != "" {
		return s, usageError(fmt.Sprintf("--cwd %s: give an absolute path, as it is inside the sandbox", c.Cwd))
	}
	if c.Cwd != "" && !filepath.IsAbs(c.Cwd) {
		if s.Dir, err = filepath.Abs(c.Cwd); err != nil {
			return s, err
		}
	}
	if c.wantsInput(inv) {
		s.Stdin = process.StdinPipe
	}
	if c.TTY {
		size, ok := terminalSize(inv.out)
		if !ok {
			size = fallbackSize
		}
		s.PTY, s.Stdin = &size, process.StdinNull
		for _, k := range []string{"TERM", "COLORTERM", "LANG"} {
			if v := inv.getenv(k); v != "" {
				s.Env = withDefault(s.Env, k, v)
			}
		}
		s.Env = withDefault(s.Env, "TERM", "xterm-256color")
	}
	s.Limits.PidsMax, s.Limits.CPUs, s.Limits.Nice = c.Pids, c.CPUs, c.Nice
	switch {
	case c.Remove && c.Pin:
		return s, usageError("--rm forgets it at its end and --pin keeps it; give one of them")
	case c.Remove && (c.Detach || c.hasExit()):
		s.Retention.TTL = removeAfter
	}
	if s.Retention.Limit, err = sizeOf("--keep", c.Keep); err != nil {
		return s, err
	}
	if s.Limits.MemoryMax, err = sizeOf("--memory", c.Memory); err != nil {
		return s, err
	}
	if c.Replace && c.Name == "" {
		return s, usageError("--replace goes with --name: it ends the process that has that name")
	}
	if err := s.Validate(); err != nil {
		return s, usageError(err.Error())
	}
	return s, nil
}

// runHints are flags of docker run that have no equal, and what does it.
var runHints = map[string]string{
	"-p":        "a process of this machine listens on the machine's ports; in a sandbox, tend sandbox --help says how they are reached",
	"--publish": "a process of this machine listens on the machine's ports; in a sandbox, tend sandbox --help says how they are reached",
	"-v":        "a process of this machine has the machine's files; tend sandbox create --share gives a sandbox some",
	"--volume":  "a process of this machine has the machine's files; tend sandbox create --share gives a sandbox some",
	"--mount":   "a process of this machine has the machine's files; tend sandbox create --share gives a sandbox some",
	"--restart": "a service of a tend.yaml is restarted (restart: always, on-failure or never); tend up -d starts it",
	"--network": "a process of this machine has the machine's network; tend sandbox create --help has the rules of a sandbox's",
	"--init":    "tend reaps the children of what it runs in any case",
}

// boxHints are flags of docker run that tend sandbox run has not, nor tend run --image.
var sandboxHints = map[string]string{
	"--mount":      "-v SOURCE:TARGET[:ro] shows a directory of the machine inside",
	"--restart":    "a service with image: in a tend.yaml is restarted; tend up -d starts it",
	"--network":    "tend sandbox run --network has none, host and own",
	"--net":        "tend sandbox run --network has none, host and own",
	"--init":       "the first process of a sandbox is tend's own, and reaps what is left",
	"--privileged": "no program of a sandbox has rights over the machine; --isolation none runs it on the machine itself",
	"--cap-add":    "programs of a sandbox have the capabilities of its own user namespace, and no others",
	"--cap-drop":   "programs of a sandbox have the capabilities of its own user namespace, and no others",
	"--device":     "a sandbox has the usual devices without hardware, and no others",
	"--gpus":       "a sandbox has the usual devices without hardware, and no others",
	"--hostname":   "the host name of a sandbox is its name: --name",
	"-h":           "the host name of a sandbox is its name: --name",
	"--platform":   "images are of this machine's own platform",
	"--pull":       "tend image pull NAME fetches an image anew",
	"--read-only":  "the files of a sandbox are its own; --rm removes them with it",
	"--tmpfs":      "/tmp and /dev/shm of a sandbox are its own",
	"--add-host":   "write it into /etc/hosts of the sandbox: tend sandbox exec NAME",
	"-P":           "-p PORT publishes one port at any that is free",
}

// hasExit reports whether something is to be done when the process has ended.
func (c *runFlags) hasExit() bool { return c.OnExit != "" || c.OnExitURL != "" }

// onExit asks the daemon for it.
func (c *runFlags) onExit(inv *invocation, s *process.Spec) error {
	if !c.hasExit() {
		return nil
	}
	if inv.sandbox != "" {
		return usageError("--on-exit and --on-exit-url are for processes of the machine, not for those of a sandbox; tend wait waits for their end")
	}
	if err := onexit.Ask(s, c.OnExit, c.OnExitURL); err != nil {
		return usageError(fmt.Sprintf("--on-exit-url %.200s is no URL of http or https", c.OnExitURL))
	}
	return nil
}

// syncOf reads the value of --fsync.
func syncOf(text string) process.Sync { return valueOf(text, process.SyncInterval) }

// valueOf is the value of an enumeration, up to last, that a word of a flag names; 0 if none.
func valueOf[T interface {
	~uint8
	String() string
}](text string, last T) T {
	for v := T(0); v <= last; v++ {
		if v.String() == text {
			return v
		}
	}
	return 0
}

// exitAs turns the end of a process into the end of this program.
func (inv *invocation) exitAs(exit *process.Exit) error {
	if exit == nil {
		return errors.New("the output ended and the exit status is unknown; tend ps -a shows what is known")
	}
	if exit.Lost() {
		return errors.New("the daemon did not see the end of the process: its exit status is unknown")
	}
	if exit.Cause == process.CauseTimeout {
		inv.note("the timeout ended it")
	}
	if status := exit.ShellStatus(); status != 0 {
		return statusError(status)
	}
	return nil
}
