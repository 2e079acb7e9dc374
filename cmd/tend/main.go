package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/tend-run/tend/cmd/internal/role"
)

// version is set by the linker in release builds: -X main.version=v1.2.3.
var version = ""

func main() {
	if role.Called() { // built without the small binary, tend plays the roles itself
		os.Exit(role.Main())
	}
	inv := &invocation{
		in: os.Stdin, out: os.Stdout, errs: os.Stderr,
		getenv: os.Getenv,
	}
	os.Exit(execute(context.Background(), inv, os.Args[1:]))
}

// grammar is the whole command line; kong reads it by its tags.
type grammar struct {
	globals

	Run    runCmd    `cmd:"" help:"Start a process and follow it."`
	Ps     psCmd     `cmd:"" help:"List processes."`
	Logs   logsCmd   `cmd:"" help:"Print the output of a process."`
	Grep   grepCmd   `cmd:"" help:"Print the lines of a process's output that match."`
	Attach attachCmd `cmd:"" help:"Connect this terminal to a process (detach: ctrl-])."`
	Input  inputCmd  `cmd:"" help:"Write to the input of a process."`
	Signal signalCmd `cmd:"" help:"Send a signal to a process."`
	Kill   killCmd   `cmd:"" help:"End a process and all its descendants."`
	Wait   waitCmd   `cmd:"" help:"Wait for a process to end, or for something about it."`
	Rm     rmCmd     `cmd:"" help:"Forget finished processes and free their output."`
	Pin    pinCmd    `cmd:"" help:"Keep processes and their output when they have finished, until they are unpinned or removed."`
	Unpin  unpinCmd  `cmd:"" help:"Let pinned processes go when their time or the space is up."`
	Events eventsCmd `cmd:"" help:"Print what happened to processes."`
	Top    topCmd    `cmd:"" help:"Show the running processes, refreshed."`

	Serve    serveCmd    `cmd:"" help:"Run the daemon in the foreground."`
	Status   statusCmd   `cmd:"" help:"Show the daemon: its roles and what this machine allows."`
	Upgrade  upgradeCmd  `cmd:"" help:"Replace the parts of a running daemon; nothing is lost."`
	Shutdown shutdownCmd `cmd:"" help:"End the daemon and its processes."`
	Torture  tortureCmd  `cmd:"" help:"Prove on this machine and filesystem that nothing is lost: kill the roles of a daemon of its own."`

	Distant distantCmd `cmd:"" help:"Serve distant's protocol: JSON lines, or encrypted for the distant command line."`

	Completion completionCmd `cmd:"" help:"Print a completion script for a shell."`
	Version    versionCmd    `cmd:"" help:"Print the version."`

	Server      serverCmd      `cmd:"" hidden:"" help:"The server role; tend serve starts it."`
	Payload     payloadCmd     `cmd:"" hidden:"" help:"Write the keeper's program to stdout."`
	TortureWork tortureWorkCmd `cmd:"" hidden:"" help:"A program that runs under torture."`
}

// roleGrammar is the part of the grammar that the server role needs. To build
// the whole takes 2 ms, and clients wait while a server starts.
type roleGrammar struct {
	globals

	Server serverCmd `cmd:"" hidden:""`
}

// globals are the flags of every command.
type globals struct {
	URL      string `name:"url" env:"TEND_URL" placeholder:"URL" help:"The daemon: http://host:port or unix:///path. Default: the daemon of the current user."`
	Token    string `name:"token" env:"TEND_TOKEN" placeholder:"TOKEN" help:"Token of the daemon; better given as TEND_TOKEN, which ps(1) does not show."`
	StateDir string `name:"state-dir" env:"TEND_STATE_DIR" placeholder:"DIR" help:"State directory of one's own daemon. Default: /var/lib/tend for root, else ~/.local/state/tend."`
	JSON     bool   `name:"json" help:"Print facts as JSON."`
}

// invocation is one use of the command line: its streams, its environment
// and the global flags.
type invocation struct {
	in     *os.File
	out    io.Writer
	errs   io.Writer
	getenv func(string) string
	flags  *globals
	model  *kong.Application
}

// statusError ends the program with a status and without a message.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageError is a wrong command line found after parsing.
type usageError string

func (e usageError) Error() string { return string(e) }

// execute runs one command line and returns the exit status.
func execute(ctx context.Context, inv *invocation, args []string) int {
	var g any
	if len(args) > 0 && args[0] == "server" {
		role := new(roleGrammar)
		g, inv.flags = role, &role.globals
	} else {
		whole := new(grammar)
		g, inv.flags = whole, &whole.globals
	}
	exited := -1
	parser, err := kong.New(g,
		kong.Name("tend"),
		kong.Description(description),
		kong.Writers(inv.out, inv.errs),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.ShortUsageOnError(),
		kong.Exit(func(code int) { exited = code }),
	)
	if err != nil {
		fmt.Fprintln(inv.errs, "tend:", err)
		return 2
	}
	inv.model = parser.Model
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if exited >= 0 { // --help was printed
		return exited
	}
	if _, ok := errors.AsType[*os.PathError](err); ok { // or could not be
		return inv.report(err)
	}
	if err != nil {
		fmt.Fprintf(inv.errs, "tend: %v\n", err)
		if kctx := parseContext(err); kctx != nil {
			fmt.Fprintf(inv.errs, "tend: see %s --help\n", commandPath(kctx))
		}
		return 2
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	kctx.Bind(inv)
	return inv.report(kctx.Run())
}

// parseContext returns what was understood of a command line before err.
func parseContext(err error) *kong.Context {
	var perr *kong.ParseError
	if errors.As(err, &perr) {
		return perr.Context
	}
	return nil
}

func commandPath(kctx *kong.Context) string {
	path := "tend"
	for _, p := range kctx.Path {
		if p.Command != nil {
			path += " " + p.Command.Name
		}
	}
	return path
}

// report prints the error of a command, if it has something to say, and
// returns the exit status for it.
func (inv *invocation) report(err error) int {
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
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
	fmt.Fprintf(inv.errs, "tend: %s\n", inv.diagnosed(err))
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	if failed, ok := errors.AsType[*runError](err); ok {
		return failed.status
	}
	return 1
}
