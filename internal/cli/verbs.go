package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tend-run/tend/internal/lib/typo"
)

// grammar is the whole command line: help, completion, the manual pages and
// which verbs have a JSON form all come from it. Besides kong's tags a field may
// have "complete", what its words may be (see suggester), and a verb "nojson", why
// it has no JSON form and what to use.
type grammar struct {
	globals
	Version versionFlag `name:"version" help:"Print the version."`

	Run     runCmd     `cmd:"" group:"start" help:"Start a process and follow it."`
	Restart restartCmd `cmd:"" group:"start" help:"End a process and start it again with the same spec and name."`
	Ps      psCmd      `cmd:"" group:"look" aliases:"ls,list" help:"List processes."`
	Inspect inspectCmd `cmd:"" group:"look" help:"Print all details of processes, as JSON."`
	Top     topCmd     `cmd:"" group:"look" help:"Show the running processes, refreshed (q quits)."`
	Events  eventsCmd  `cmd:"" group:"look" help:"Print the events of processes."`
	Wait    waitCmd    `cmd:"" group:"look" help:"Wait for processes to end, or for a condition such as output or a port."`
	Logs    logsCmd    `cmd:"" group:"output" help:"Print the output of processes."`
	Grep    grepCmd    `cmd:"" group:"output" help:"Print the lines of a process's output that match."`
	Attach  attachCmd  `cmd:"" group:"output" help:"Connect this terminal to a process (detach: ctrl-])." nojson:"it is for a terminal; tend logs -f --json follows the output"`
	Input   inputCmd   `cmd:"" group:"output" help:"Write to the input of a process."`
	Stop    stopCmd    `cmd:"" group:"end" help:"End processes: send a signal, then kill those that remain."`
	Kill    killCmd    `cmd:"" group:"end" help:"End processes and all their descendants at once."`
	Signal  signalCmd  `cmd:"" group:"end" help:"Send a signal to a process."`
	Rm      rmCmd      `cmd:"" group:"end" aliases:"remove" help:"Remove finished processes and their output."`
	Pin     pinCmd     `cmd:"" group:"end" help:"Keep processes and their output after they have finished, until they are unpinned or removed."`
	Unpin   unpinCmd   `cmd:"" group:"end" help:"Unpin processes: they are again removed when their time is over or space is short."`

	Up       upCmd       `cmd:"" group:"service" help:"Start the services of a tend.yaml and keep them running."`
	Down     downCmd     `cmd:"" group:"service" help:"End services."`
	Services servicesCmd `cmd:"" group:"service" aliases:"service,svc" help:"List, start and restart services."`
	Adopt    adoptCmd    `cmd:"" group:"service" help:"Make a running process the process of a service, and keep it running."`
	Heal     healCmd     `cmd:"" group:"service" help:"Repair a service now, or show what would be tried."`
	Episodes episodesCmd `cmd:"" group:"service" aliases:"episode" help:"Show the repairs of services."`
	Rollback rollbackCmd `cmd:"" group:"service" help:"Undo a finished repair, and restart the service."`
	Config   configCmd   `cmd:"" group:"service" help:"Check a tend.yaml; print its schema."`
	Init     initCmd     `cmd:"" group:"service" help:"Inspect a project, and write a tend.yaml for it."`
	Import   importCmd   `cmd:"" group:"service" help:"Convert a file of pm2 or process-compose, or a Procfile, to a tend.yaml, and print it." nojson:"it prints YAML in any case"`

	Sandbox  sandboxCmd  `cmd:"" group:"sandbox" aliases:"sandboxes,sbx" help:"Create, use and remove sandboxes: isolated places with their own files and processes."`
	Template templateCmd `cmd:"" group:"sandbox" aliases:"templates" help:"Build, list and remove templates for sandboxes."`

	Serve    serveCmd    `cmd:"" group:"daemon" help:"Run the daemon in the foreground." nojson:"it prints nothing but its log; tend status --json has its facts"`
	Status   statusCmd   `cmd:"" group:"daemon" help:"Show the daemon: its roles and what this machine allows."`
	Doctor   doctorCmd   `cmd:"" group:"daemon" help:"Find problems on this machine, and say how to fix them."`
	UI       uiCmd       `cmd:"" name:"ui" group:"daemon" help:"Open the daemon's page in the browser, logged in."`
	Upgrade  upgradeCmd  `cmd:"" group:"daemon" help:"Replace the roles of a running daemon; nothing is lost."`
	Shutdown shutdownCmd `cmd:"" group:"daemon" help:"End the daemon and its processes."`
	Torture  tortureCmd  `cmd:"" group:"daemon" help:"Prove on this machine and filesystem that nothing is lost: kill the roles of a separate daemon." nojson:"its report is for people; the exit status is the result"`
	Key      keyCmd      `cmd:"" group:"daemon" aliases:"keys" help:"Create, list and revoke virtual keys for the gateway to model providers and for reports."`
	MCP      mcpCmd      `cmd:"" name:"mcp" group:"daemon" help:"Serve the Model Context Protocol on stdin and stdout: tools for language models." nojson:"its output is the protocol's"`
	Distant  distantCmd  `cmd:"" group:"daemon" help:"Serve distant's protocol: JSON lines, or encrypted for the distant command line." nojson:"its output is distant's protocol"`

	Help       helpCmd       `cmd:"" whole:"" group:"help" help:"Show the help of a command." nojson:"tend help --help prints text alone"`
	Man        manCmd        `cmd:"" whole:"" group:"help" help:"Print the manual page of a command, or write all pages." nojson:"manual pages are text"`
	Completion completionCmd `cmd:"" group:"help" help:"Print a completion script for a shell." nojson:"a completion script is text"`
	VersionCmd versionCmd    `cmd:"" name:"version" group:"help" help:"Print the version."`

	Complete    completeCmd    `cmd:"" whole:"" hidden:"" help:"What a completion script asks."`
	Server      serverCmd      `cmd:"" hidden:"" help:"The server role; tend serve starts it."`
	HealEpisode healEpisodeCmd `cmd:"" hidden:"" name:"heal-episode" help:"Work on a repair; the daemon starts it."`
	HealChat    healChatCmd    `cmd:"" hidden:"" name:"heal-chat" help:"Work on a turn of a chat; the daemon starts it."`
	HealProject healProjectCmd `cmd:"" hidden:"" name:"heal-project" help:"Work on the project of a repair; a worker starts it."`
	Payload     payloadCmd     `cmd:"" hidden:"" help:"Write the keeper's program to stdout."`
	TortureWork tortureWorkCmd `cmd:"" hidden:"" name:"torture-work" help:"A program that runs under torture."`
}

var verbGroups = []kong.Group{
	{Key: "start", Title: "Start processes:"},
	{Key: "look", Title: "See what they do:"},
	{Key: "output", Title: "Output and input:"},
	{Key: "end", Title: "End and forget them:"},
	{Key: "service", Title: "Services:"},
	{Key: "sandbox", Title: "Sandboxes:"},
	{Key: "daemon", Title: "The daemon:"},
	{Key: "help", Title: "Help:"},
}

// globals are the flags of every command.
type globals struct {
	URL      string `name:"url" env:"TEND_URL" placeholder:"URL" help:"The daemon: http://host:port or unix:///path, without user name, password, query or fragment. Default: the daemon of the current user."`
	Token    string `name:"token" env:"TEND_TOKEN" placeholder:"TOKEN" help:"Token of the daemon; prefer TEND_TOKEN, which ps(1) does not show."`
	StateDir string `name:"state-dir" env:"TEND_STATE_DIR" placeholder:"DIR" help:"State directory of your own daemon. Default: /var/lib/tend for root, else ~/.local/state/tend."`
	JSON     bool   `name:"json" help:"Print facts as JSON on stdout, and errors as JSON on stderr."`
}

// withoutJSON says why the verb that was chosen has no JSON form; "": it has.
func withoutJSON(kctx *kong.Context) string {
	for _, p := range kctx.Path {
		if p.Command != nil && p.Command.Tag.Has("nojson") {
			return p.Command.Tag.Get("nojson")
		}
	}
	return ""
}

// asksForJSON is for errors that are printed before the command line is understood.
func asksForJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// verbAt returns where the verb of a command line is, or -1.
func verbAt(app *kong.Application, args []string) int {
	for i := 0; i < len(args); i++ {
		if len(args[i]) < 2 || args[i][0] != '-' {
			return i
		}
		for _, f := range app.Flags {
			if args[i] == "--"+f.Name && takesValue(f) {
				i++
				break
			}
		}
	}
	return -1
}

// asUsual rewrites what kong has no words for: kill -9, -KILL and -SIGKILL.
func asUsual(app *kong.Application, args []string) []string {
	at := verbAt(app, args)
	if at < 0 || args[at] != "kill" {
		return args
	}
	args = slices.Clone(args)
	for i := at + 1; i < len(args) && args[i] != "--"; i++ {
		if name, ok := strings.CutPrefix(args[i], "-"); ok && name != "" && name[0] != '-' && name != "s" && name != "h" {
			if _, err := parseSignal(name); err == nil {
				args[i] = "--signal=" + name
			}
		}
	}
	return args
}

// misunderstood reports a wrong command line, with what was meant if that can be
// told.
func (inv *invocation) misunderstood(app *kong.Application, args []string, err error) int {
	text := err.Error()
	kctx := parseContext(err)
	if at := verbAt(app, args); at >= 0 && (kctx == nil || commandPath(kctx) == "tend") && verbOf(app.Node, args[at]) == nil {
		text = fmt.Sprintf("%q is no verb", args[at])
		if at > 0 && strings.HasPrefix(args[at-1], "--") && at+1 < len(args) && verbOf(app.Node, args[at+1]) != nil {
			text += fmt.Sprintf("; flags of a verb come after it: tend %s %s %s", args[at+1], args[at-1], args[at])
		} else if meant := meantVerbs(app.Node, args[at]); len(meant) > 0 {
			text += "; did you mean " + strings.Join(meant, " or ") + "?"
		}
	}
	if kctx != nil {
		// Here the file is no flag, as it is of tend up.
		if flag, _, _ := strings.Cut(strings.TrimPrefix(text, "unknown flag "), ","); commandPath(kctx) == "tend config check" &&
			slices.Contains([]string{"-f", "--file", "--config"}, flag) {
			text = fmt.Sprintf("unknown flag %s; the file is an argument: tend config check FILE", flag)
		}
		text += fmt.Sprintf(" (see %s --help)", commandPath(kctx))
	}
	inv.complain(usageError(text), text, 2)
	return 2
}

// parseContext returns what was understood of a command line before err.
func parseContext(err error) *kong.Context {
	if perr, ok := errors.AsType[*kong.ParseError](err); ok {
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

func verbOf(n *kong.Node, name string) *kong.Node {
	for _, c := range n.Children {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

// synonyms are what other programs call the verbs.
var synonyms = map[string]string{
	"start": "run", "exec": "run", "spawn": "run", "create": "run", "new": "run", "new-session": "run -t", "shell": "run -t",
	"cp": "sandbox cp", "copy": "sandbox cp", "fork": "sandbox fork", "snapshot": "sandbox snapshot", "pause": "sandbox pause",
	"box":        "sandbox",
	"status-all": "ps", "processes": "ps", "jobs": "ps", "list-sessions": "ps", "sessions": "ps", "show": "inspect",
	"describe": "inspect", "info": "inspect", "get": "inspect",
	"reload": "restart", "revert": "rollback", "undo": "rollback", "respawn": "restart", "recreate": "restart",
	"log": "logs", "tail": "logs", "cat": "logs", "output": "logs", "journal": "logs", "monit": "top", "monitor": "top",
	"stats": "top", "htop": "top", "watch": "events -f",
	"search": "grep", "find": "grep", "connect": "attach", "a": "attach", "at": "attach", "attach-session": "attach",
	"fg": "attach", "enter": "attach", "resume": "attach",
	"send": "input", "send-keys": "input", "write": "input", "stdin": "input", "type": "input",
	"terminate": "stop", "end": "stop", "halt": "stop", "quit": "stop", "kill-session": "kill", "destroy": "kill",
	"delete": "rm", "del": "rm", "prune": "rm --finished", "clean": "rm --finished", "forget": "rm", "flush": "rm --finished",
	"daemon": "serve", "server": "serve", "info-daemon": "status", "health": "doctor", "check": "doctor", "diagnose": "doctor",
	"debug": "doctor", "ping": "status", "kill-server": "shutdown", "exit": "shutdown",
	"update": "upgrade", "test": "torture", "docs": "help", "usage": "help", "manual": "man", "completions": "completion",
	"autocomplete": "completion",
}

// meantVerbs returns what a word that is no verb may stand for: what others call
// it, else the verbs that are written nearly so.
func meantVerbs(n *kong.Node, said string) []string {
	if verb, ok := synonyms[strings.ToLower(said)]; ok {
		return []string{"tend " + verb}
	}
	var near []string
	best := 1 + min(2, len(said)/3)
	for _, c := range n.Children {
		if c.Hidden {
			continue
		}
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			d := typo.Distance(strings.ToLower(said), name)
			if len(said) >= 2 && strings.HasPrefix(name, said) {
				d = 1
			}
			if d < best {
				near, best = nil, d
			}
			if d == best && d <= min(2, len(said)/2) && !slices.Contains(near, "tend "+c.Name) {
				near = append(near, "tend "+c.Name)
			}
		}
	}
	return near
}

// helpCmd is "tend help VERB", the same as --help.
type helpCmd struct {
	Verb []string `arg:"" optional:"" complete:"verb" help:"The command."`
}

func (c *helpCmd) Run(ctx context.Context, inv *invocation) error {
	app, n := inv.model, inv.model.Node
	for _, name := range c.Verb {
		child := verbOf(n, name)
		if child == nil {
			return statusError(inv.misunderstood(app, []string{name}, errors.New("")))
		}
		n = child
	}
	if status := execute(ctx, inv, append(slices.Clone(c.Verb), "--help")); status != 0 {
		return statusError(status)
	}
	return nil
}

// versionFlag is tend --version.
type versionFlag bool

// BeforeReset prints the version before a verb is missed.
func (versionFlag) BeforeReset(app *kong.Kong, inv *invocation) error {
	inv.flags.JSON = inv.json
	app.Exit(inv.report(new(versionCmd).Run(inv)))
	return nil
}
