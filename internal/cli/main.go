package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tend-run/tend/internal/cli/role"
	"github.com/tend-run/tend/internal/service/sockets"
)

// version is that of a release, as the linker set it; empty for other builds.
var version string

// Main runs the command line of this process, or the role that its name or its first argument
// asks for, and returns the exit status. release is the version of a release, or empty.
func Main(release string) int {
	version = release
	if role.Called() { // built without the small binary, tend plays the roles itself
		return role.Main()
	}
	if sockets.Called(os.Args) {
		return sockets.Main(os.Args[1:], os.Environ())
	}
	inv := &invocation{
		in: os.Stdin, out: os.Stdout, errs: os.Stderr,
		getenv: os.Getenv, environ: os.Environ,
	}
	_, inv.terminal = terminalOf(inv.in)
	return execute(context.Background(), inv, os.Args[1:])
}

// invocation is one use of the command line: its streams, its environment
// and the global flags.
type invocation struct {
	in *os.File
	// terminal: in was one when the program began.
	terminal bool
	out      io.Writer
	errs     io.Writer
	getenv   func(string) string
	// environ is the whole environment, as os.Environ has it.
	environ func() []string
	flags   *globals
	model   *node
	json    bool // stderr is JSON, too
	dialed  []*daemon
	// sandbox is whose processes the command is for; "": the machine's.
	sandbox string
	// leftRunning: the person left the process that was followed, and it keeps running.
	leftRunning bool
	// stderr is where that of processes goes; nil: errs.
	stderr io.Writer
	// lines is how the output of processes is written whose lines begin with
	// something of ours; nil: as it is.
	lines *lineWriter
}

// statusError ends the program with a status and without a message.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a wrong command line found after parsing.
type usageError string

func (e usageError) Error() string { return string(e) }

// execute runs one command line and returns the exit status.
func execute(ctx context.Context, inv *invocation, args []string) int {
	g := new(grammar)
	inv.flags, inv.model, inv.json = &g.globals, program(g), asksForJSON(args)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	r := &reading{node: inv.model}
	err := r.read(args)
	switch {
	case err != nil:
	case g.ShowHelp:
		return inv.report(inv.help(r.node))
	case g.ShowVersion:
		return inv.report(new(versionCmd).Run(ctx, inv))
	default:
		err = r.finish(inv.getenv)
	}
	if err != nil {
		return inv.misunderstood(r.node, err)
	}
	inv.json = inv.flags.JSON
	if why := r.node.withoutJSON(); why != "" && inv.json {
		return inv.report(usageError(fmt.Sprintf("%s has no JSON form: %s", r.node.path(), why)))
	}
	if err := inv.chooseSandbox(r.node); err != nil {
		return inv.report(err)
	}
	defer inv.hangUp()
	if ends := r.node.signals(); ends != nil {
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, ends...)
		defer stop()
	}
	switch verb := r.node.value.Addr().Interface().(type) {
	case runner:
		err = verb.Run(ctx, inv)
	case asker:
		var d *daemon
		if d, err = inv.connect(ctx); err == nil {
			err = verb.Ask(ctx, inv, d)
		}
	}
	return inv.report(err)
}

// A verb of the grammar with none below it is a runner, or an asker, which does nothing
// before it has a daemon.
type (
	runner interface {
		Run(context.Context, *invocation) error
	}
	asker interface {
		Ask(context.Context, *invocation, *daemon) error
	}
)

// report prints the error of a command, if it has something to say, and
// returns the exit status for it.
func (inv *invocation) report(err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) { // commands are cancelled by signals alone
		return 128 + int(syscall.SIGINT)
	}
	if each, ok := err.(interface{ Unwrap() []error }); ok { // of several processes, each with its own reason
		status := 0
		for _, err := range each.Unwrap() {
			status = max(status, inv.report(err))
		}
		return status
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	status := 1
	if _, ok := errors.AsType[usageError](err); ok {
		status = 2
	}
	if failed, ok := errors.AsType[*runError](err); ok {
		status = failed.status
	}
	inv.complain(err, inv.diagnosed(err), status)
	return status
}
