package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
	tend "github.com/tend-run/tend/sdk/go"
)

// runForms are the verbs that run a command and have more than flags before it.
var runForms = map[string]string{"sandbox exec": "sandbox exec SANDBOX"}

type sandboxExecCmd struct {
	runFlags

	Sandbox string   `arg:"" complete:"sandbox" help:"The sandbox."`
	Cmd     []string `arg:"" passthrough:"" optional:"" name:"cmd" help:"The program and its arguments, after --."`
}

func (c *sandboxExecCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Sandbox == "" {
		return usageError("the name of the sandbox is empty; give a name or an ID")
	}
	inv.sandbox = c.Sandbox
	return c.run(ctx, inv, "sandbox exec", c.Cmd)
}

// accountShell runs the shell that the account inside has, as a login shell.
const accountShell = `s=; u=$(id -u)
while IFS=: read -r _ _ n _ _ _ sh; do if [ "$n" = "$u" ]; then s=$sh; break; fi; done </etc/passwd
case $s in *nologin|*false) s=; esac
for s in "$s" /bin/bash /bin/sh; do if [ -x "$s" ]; then exec "$s" -l; fi; done
exec sh`

type sandboxShellCmd struct {
	Cwd string `short:"w" aliases:"workdir" placeholder:"DIR" help:"Working directory inside."`
	envFlags
	User  string `short:"u" placeholder:"USER" help:"Run as this user: a name, uid or uid:gid."`
	Shell string `short:"s" placeholder:"PROGRAM" help:"This shell. Default: that of the user."`

	Sandbox string `arg:"" complete:"sandbox" help:"The sandbox."`
}

func (c *sandboxShellCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Sandbox == "" {
		return usageError("the name of the sandbox is empty; give a name or an ID")
	}
	inv.sandbox = c.Sandbox
	_, person := terminalOf(inv.in) // else the shell reads a script
	f := runFlags{Name: "shell", TTY: person, Input: true, Remove: true, Cwd: c.Cwd, envFlags: c.envFlags, User: c.User, Fsync: "default"}
	words := []string{"sh", "-c", accountShell}
	if c.Shell != "" {
		words = []string{c.Shell}
	}
	return f.run(ctx, inv, "sandbox shell", append([]string{"--"}, words...))
}

// A sandbox of run --rm ends by itself if nobody is left to remove it: when nothing
// has run in it for strayIdle, and strayEnd after that.
const (
	strayIdle = 30 * time.Second
	strayEnd  = time.Second
)

type sandboxRunCmd struct {
	creationFlags

	Name    string        `placeholder:"NAME" help:"The name of the sandbox. Default: a generated one."`
	TTY     bool          `short:"t" name:"tty" help:"Give the command a terminal."`
	Input   bool          `short:"i" name:"interactive" help:"Connect stdin."`
	Detach  bool          `short:"d" help:"Print the name of the sandbox and return."`
	Shell   bool          `short:"c" help:"CMD is a command line for /bin/sh."`
	Entry   string        `name:"entrypoint" placeholder:"PROGRAM" help:"Start this program in the place of the image's own entrypoint; needs --image."`
	Publish []string      `short:"p" placeholder:"[[IP:]PORT:]PORT" help:"A port of this machine, at the loopback unless IP says otherwise, that leads to one inside for as long as this command follows the process. Repeatable."`
	Remove  bool          `name:"rm" help:"Remove the sandbox when the command has ended, however this program ends."`
	Timeout time.Duration `placeholder:"30s" help:"Kill the command, with all descendants, after this long (exit status 124)."`

	Cmd []string `arg:"" passthrough:"" optional:"" name:"cmd" help:"The program and its arguments, after --."`

	// What tend run --image asks for beside.
	process runFlags
	verb    string
}

func (c *sandboxRunCmd) Run(ctx context.Context, inv *invocation) error {
	if c.TTY && !c.Detach && inv.flags.JSON {
		return usageError("a terminal has no JSON form: leave --tty or --json out, or add -d")
	}
	verb, f := "sandbox run", c.process
	if c.verb != "" {
		verb = c.verb + " --image"
	}
	f.TTY, f.Input, f.Shell, f.Timeout, f.Fsync = c.TTY, c.Input, c.Shell, c.Timeout, cmp.Or(f.Fsync, "default")
	// Checked before anything is made.
	inv.sandbox = cmp.Or(c.Name, "new")
	if c.Entry != "" && c.Image == "" {
		return usageError("--entrypoint is for a sandbox of an image: give --image, or the program after --")
	}
	ports, err := c.ports(inv)
	if err != nil {
		return err
	}
	defer func() {
		for i := range ports {
			ports[i].l.Close()
		}
	}()
	var spec process.Spec
	if c.Image == "" {
		if spec, err = f.spec(inv, verb, c.Cmd); err != nil {
			return err
		}
	}
	signals := catchSignals()
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return runFailure(err)
	}
	if c.Image != "" {
		words, err := c.words(ctx, inv, d)
		if err != nil {
			return runFailure(err)
		}
		if spec, err = f.spec(inv, verb, words); err != nil {
			return err
		}
	}
	place, err := c.creationFlags.spec(inv, d.local)
	if err != nil {
		return err
	}
	if place.Name = c.Name; c.Remove {
		place.IdleTTL, place.DeleteAfterStop = strayIdle, strayEnd
	}
	sandbox, err := d.CreateSandbox(ctx, place)
	if err != nil {
		return runFailure(c.unmade(err))
	}
	info, err := sandbox.Info(ctx)
	if err != nil {
		return runFailure(err)
	}
	inv.sandbox = nameOfSandbox(&info)
	inside, err := inv.within(ctx, d, true)
	if err != nil {
		return runFailure(err)
	}
	if c.Detach {
		p, err := inside.Start(ctx, spec)
		if err != nil {
			return runFailure(c.undone(ctx, inv, sandbox, f.meant(spec, err)))
		}
		if inv.flags.JSON {
			return inv.announce(ctx, p)
		}
		return inv.announceSandbox(&info)
	}
	serving, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range ports {
		wg.Go(func() {
			if err := ports[i].serve(serving, inv, sandbox); err != nil {
				inv.note("port %d is not served any more: %v", ports[i].to, err)
			}
		})
	}
	err = f.follow(ctx, inv, inside, spec, signals)
	end()
	wg.Wait()
	if c.Remove && !inv.leftRunning {
		return c.undone(ctx, inv, sandbox, err)
	}
	if !c.Remove && !inv.json {
		inv.note("the sandbox %s stays; tend sandbox rm %s removes it", inv.sandbox, inv.sandbox)
	}
	return err
}

// ports takes those of --publish on this machine.
func (c *sandboxRunCmd) ports(inv *invocation) (all []publication, err error) {
	if c.Detach && len(c.Publish) > 0 {
		return nil, usageError("--publish serves a port for as long as this command follows the process, which -d does not; " +
			"tend serves ports of sandboxes at http://PORT-NAME.localhost at its own port (tend status)")
	}
	for _, text := range c.Publish {
		p, err := publicationOf("--publish ", text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for i := range all {
		if err := all[i].listen(); err != nil {
			for k := range i {
				all[k].l.Close()
			}
			return nil, fmt.Errorf("--publish: %w", err)
		}
		if p := &all[i]; p.port == 0 {
			inv.note("port %d of the sandbox is at %v", p.to, p.l.Addr())
		}
	}
	return all, nil
}

// words are the command line in a sandbox of an image, as a container engine has it.
func (c *sandboxRunCmd) words(ctx context.Context, inv *invocation, d *daemon) ([]string, error) {
	image, err := inv.present(ctx, d, c.Image)
	if err != nil {
		return nil, err
	}
	given := c.Cmd
	if len(given) > 0 && given[0] == "--" {
		given = given[1:]
	} else if len(given) > 0 && strings.HasPrefix(given[0], "-") || c.Shell {
		return given, nil
	}
	words := append([]string{"--"}, image.Entrypoint...)
	switch {
	case c.Entry != "":
		words = append([]string{"--", c.Entry}, given...)
	case len(given) > 0:
		words = append(words, given...)
	default:
		words = append(words, image.Cmd...)
	}
	if len(words) == 1 {
		return nil, usageError(fmt.Sprintf("the image %.100s says nothing of what to start; give a command after --", c.Image))
	}
	return words, nil
}

// undone removes the sandbox of --rm after what was done in it, and returns how that
// ended.
func (c *sandboxRunCmd) undone(ctx context.Context, inv *invocation, sandbox *tend.Sandbox, err error) error {
	if !c.Remove {
		return err
	}
	if rerr := sandbox.Destroy(ctx); rerr != nil && !errors.Is(rerr, process.ErrNotFound) {
		inv.note("remove the sandbox %s: %s", inv.sandbox, explain(rerr))
	}
	return err
}

type sandboxLogsCmd struct {
	logsFlags

	Sandbox string   `arg:"" complete:"sandbox" help:"The sandbox."`
	IDs     []string `arg:"" name:"id" optional:"" help:"Only output of these processes. Default: of all."`
}

func (c *sandboxLogsCmd) Run(ctx context.Context, inv *invocation) error {
	if inv.sandbox = c.Sandbox; inv.sandbox == "" {
		return usageError("the name of the sandbox is empty; give a name or an ID")
	}
	return c.run(ctx, inv, func(ctx context.Context, d *daemon) ([]string, error) {
		if len(c.IDs) > 0 {
			return c.IDs, nil
		}
		all, err := d.List(ctx, process.Filter{})
		if err == nil && len(all) == 0 {
			inv.note("nothing has run in %s", c.Sandbox)
		}
		return mapped(all, idOf), err
	})
}
