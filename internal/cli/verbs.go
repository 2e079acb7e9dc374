package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/typo"
)

// grammar is the whole command line.
type grammar struct {
	ShowHelp bool `name:"help" short:"h" help:"Show context-sensitive help."`
	globals
	ShowVersion bool `name:"version" help:"Print the version."`

	Run     runCmd     `cmd:"" group:"Start processes:" help:"Start a process and follow it."`
	Restart restartCmd `cmd:"" help:"End a process and start it again with the same spec and name."`
	Ps      psCmd      `cmd:"" group:"See what they do:" aliases:"ls,list" help:"List processes."`
	Inspect inspectCmd `cmd:"" help:"Print all details of processes, as JSON."`
	Top     topCmd     `cmd:"" signals:"int,term" help:"Show what runs and what it uses, refreshed; on a terminal keys act on it."`
	Stats   statsCmd   `cmd:"" signals:"int,term" help:"Show what the machine, sandboxes and services use, or have used."`
	Events  eventsCmd  `cmd:"" signals:"int,term" help:"Print the events of processes."`
	Wait    waitCmd    `cmd:"" help:"Wait for processes to end, or for a condition such as output or a port."`
	Logs    logsCmd    `cmd:"" signals:"int,term" group:"Output and input:" help:"Print the output of processes."`
	Grep    grepCmd    `cmd:"" help:"Print the lines of a process's output that match."`
	Attach  attachCmd  `cmd:"" help:"Connect this terminal to a process (detach: ctrl-])." nojson:"it is for a terminal; tend logs -f --json follows the output"`
	Input   inputCmd   `cmd:"" help:"Write to the input of a process."`
	Stop    stopCmd    `cmd:"" group:"End and forget them:" help:"End processes: send a signal, then kill those that remain."`
	Kill    killCmd    `cmd:"" help:"End processes and all their descendants at once."`
	Signal  signalCmd  `cmd:"" help:"Send a signal to a process."`
	Rm      rmCmd      `cmd:"" aliases:"remove" help:"Remove finished processes and their output."`
	Pin     pinCmd     `cmd:"" help:"Keep processes and their output after they have finished, until they are unpinned or removed."`
	Unpin   unpinCmd   `cmd:"" help:"Unpin processes: they are again removed when their time is over or space is short."`

	Up       upCmd       `cmd:"" group:"Services:" help:"Start the services of a tend.yaml and keep them running."`
	Down     downCmd     `cmd:"" signals:"int,term" help:"End services."`
	Services servicesCmd `cmd:"" aliases:"service,svc" help:"List, start and restart services."`
	Projects projectsCmd `cmd:"" aliases:"project" help:"List the projects whose services the daemon keeps."`
	Adopt    adoptCmd    `cmd:"" help:"Make a running process the process of a service, and keep it running."`
	Heal     healCmd     `cmd:"" help:"Repair a service now, show what would be tried, and apply changes that wait for you."`
	Episodes episodesCmd `cmd:"" aliases:"episode" help:"Show the repairs of services."`
	Rollback rollbackCmd `cmd:"" signals:"int,term" help:"Undo a finished repair, and restart the service."`
	Config   configCmd   `cmd:"" help:"Check a tend.yaml; print its schema."`
	Init     initCmd     `cmd:"" help:"Inspect a project, and write a tend.yaml for it."`
	Import   importCmd   `cmd:"" help:"Convert a file of pm2 or process-compose, or a Procfile, to a tend.yaml, and print it." nojson:"it prints YAML in any case"`

	Sandbox  sandboxCmd  `cmd:"" group:"Sandboxes:" aliases:"sandboxes,sbx" help:"Create, use and remove sandboxes: isolated places with their own files and processes."`
	Forward  forwardCmd  `cmd:"" signals:"int,term" aliases:"port-forward" help:"Pass connections to a port of this machine on to a port of a sandbox."`
	Template templateCmd `cmd:"" aliases:"templates" help:"Build, list and remove templates for sandboxes."`
	Image    imageCmd    `cmd:"" aliases:"images" help:"Import, list and remove OCI images for sandboxes."`

	Serve    serveCmd    `cmd:"" group:"The daemon:" help:"Run the daemon in the foreground." nojson:"it prints nothing but its log; tend status --json has its facts"`
	Status   statusCmd   `cmd:"" help:"Show the daemon: its roles and what this machine allows."`
	Doctor   doctorCmd   `cmd:"" help:"Find problems on this machine, and say how to fix them."`
	Env      envCmd      `cmd:"" help:"Print the variables with which clients of E2B and LangSmith use this daemon."`
	UI       uiCmd       `cmd:"" name:"ui" help:"Open the daemon's page in the browser, logged in."`
	Upgrade  upgradeCmd  `cmd:"" help:"Replace the roles of a running daemon; nothing is lost."`
	Shutdown shutdownCmd `cmd:"" help:"End the daemon and its processes."`
	Startup  startupCmd  `cmd:"" help:"Have systemd start the daemon, and with it its services, when the machine starts."`
	Torture  tortureCmd  `cmd:"" signals:"int,term" help:"Prove on this machine and filesystem that nothing is lost: kill the roles of a separate daemon." nojson:"its report is for people; the exit status is the result"`
	Key      keyCmd      `cmd:"" aliases:"keys" help:"Create, list and revoke virtual keys for the gateway to model providers and for reports."`
	MCP      mcpCmd      `cmd:"" signals:"int,term,hup" name:"mcp" help:"Serve the Model Context Protocol on stdin and stdout: tools for language models." nojson:"its output is the protocol's"`
	Distant  distantCmd  `cmd:"" help:"Serve distant's protocol: JSON lines, or encrypted for the distant command line." nojson:"its output is distant's protocol"`
	Sandboxd sandboxdCmd `cmd:"" help:"Serve the protocol of sandboxd, the runtime of agent-sandbox in pods of Kubernetes: run the daemon for it in the foreground." nojson:"it prints nothing but its log; tend status --json has its facts"`

	Help       helpCmd       `cmd:"" group:"Help:" help:"Show the help of a command or a topic." nojson:"tend help --help prints text alone"`
	Man        manCmd        `cmd:"" help:"Print the manual page of a command, or write all pages." nojson:"manual pages are text"`
	Completion completionCmd `cmd:"" help:"Print a completion script for a shell." nojson:"a completion script is text"`
	VersionCmd versionCmd    `cmd:"" name:"version" help:"Print the version."`

	Complete    completeCmd    `cmd:"" hidden:"" group:"Commands:" help:"What a completion script asks."`
	Server      serverCmd      `cmd:"" hidden:"" help:"The server role; tend serve starts it."`
	HealEpisode healEpisodeCmd `cmd:"" signals:"int,term" hidden:"" name:"heal-episode" help:"Work on a repair; the daemon starts it."`
	HealChat    healChatCmd    `cmd:"" signals:"int,term" hidden:"" name:"heal-chat" help:"Work on a turn of a chat; the daemon starts it."`
	HealRelay   healRelayCmd   `cmd:"" hidden:"" name:"heal-relay" help:"Listen in a view of a repair; a worker starts it."`
	HealProject healProjectCmd `cmd:"" hidden:"" name:"heal-project" help:"Work on the project of a repair; a worker starts it."`
	OnStop      onStopCmd      `cmd:"" hidden:"" name:"on-stop" help:"What systemd runs before it ends the unit."`
	Payload     payloadCmd     `cmd:"" hidden:"" help:"Write the keeper's program to stdout."`
	TortureWork tortureWorkCmd `cmd:"" hidden:"" name:"torture-work" help:"A program that runs under torture."`
}

// globals are the flags of every command.
type globals struct {
	URL      string `name:"url" env:"TEND_URL" placeholder:"URL" help:"The daemon: http://host:port or unix:///path, without user name, password, query or fragment. Default: the daemon of the current user."`
	Token    string `name:"token" env:"TEND_TOKEN" placeholder:"TOKEN" help:"Token of the daemon; prefer TEND_TOKEN, which ps(1) does not show."`
	StateDir string `name:"state-dir" env:"TEND_STATE_DIR" placeholder:"DIR" help:"State directory of your own daemon. Default: /var/lib/tend for root, else ~/.local/state/tend."`
	JSON     bool   `name:"json" help:"Print facts as JSON on stdout, and errors as JSON on stderr."`
}

// withoutJSON says why a verb has no JSON form; "": it has.
func (n *node) withoutJSON() (why string) {
	for _, v := range n.line() {
		why += v.get("nojson") // of one of them
	}
	return why
}

// asksForJSON is for errors that are printed before the command line is understood.
func asksForJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// misunderstood reports a wrong command line, of which no more than at was understood.
func (inv *invocation) misunderstood(at *node, err error) int {
	text := at.wrongUse(err)
	inv.complain(usageError(text), text, 2)
	return 2
}

// wrongUse says what is wrong with a command line, and what does what was meant.
func (n *node) wrongUse(err error) string {
	text := err.Error()
	unknown, _ := errors.AsType[unknownFlag](err)
	if hint := flagHints[n.path()+" "+unknown.flag]; hint != "" {
		return fmt.Sprintf("unknown flag %s; %s", unknown.flag, hint)
	}
	// Here the file is no flag, as it is of tend up.
	if n.path() == "tend config check" && slices.Contains([]string{"-f", "--file", "--config"}, unknown.flag) {
		text = fmt.Sprintf("unknown flag %s; the file is an argument: tend config check FILE", unknown.flag)
	}
	return text + fmt.Sprintf(" (see %s --help)", n.path())
}

// flagHints are flags of other programs for verbs that ours has, too.
var flagHints = map[string]string{
	"tend up --build":          "tend template build and tend image pull fetch and build what services run in",
	"tend up --scale":          "each service runs once: declare it in tend.yaml under several names, and then tend up -d",
	"tend up --remove-orphans": "tend up itself ends services that the file does not name any more",
	"tend up --force-recreate": "tend services restart NAME restarts what runs",
	"tend down -v":             "services keep nothing that would be removed; tend down --forget forgets the project",
	"tend down --volumes":      "services keep nothing that would be removed; tend down --forget forgets the project",
	"tend up -t":               "write stop: {timeout: 5s} at a service in the tend.yaml, and then tend up -d",
	"tend up --timeout":        "--wait-timeout bounds how long it waits; for ends write stop: {timeout: 5s} at a service in the tend.yaml, and then tend up -d",
	"tend down -t":             "write stop: {timeout: 5s} at a service in the tend.yaml, and then tend up -d",
	"tend down --timeout":      "write stop: {timeout: 5s} at a service in the tend.yaml, and then tend up -d",
	"tend down --rmi":          "tend image prune removes images that nothing uses",
	"tend config --services":   "tend config check names the services of a file",
	"tend attach -t":           "the name stands alone: tend attach NAME",
}

// hints are verbs of other programs that no verb of ours is like.
var hints = map[string]string{
	"start":          "tend run -d --name NAME -- CMD starts a process, tend restart NAME one that has ended, tend services start NAME a service, tend sandbox start NAME a sandbox",
	"exec":           "tend sandbox exec NAME -- CMD runs a command in a sandbox, tend run -- CMD on this machine",
	"scale":          "each service runs once: declare it in tend.yaml under several names",
	"rename":         "tend sandbox set NAME --name NEW renames a sandbox; a process keeps its name until tend run --replace --name NAME",
	"port":           "a process of this machine has the machine's ports; tend forward SANDBOX PORT and tend sandbox url SANDBOX PORT are for those of a sandbox",
	"compose":        "tend up, tend down, tend services, tend projects and tend logs do it for the services of a tend.yaml; tend init writes one for a project",
	"save":           "nothing has to be saved: services that tend up has started come back with the daemon (docker save: tend image export)",
	"resurrect":      "services that tend up has started come back with the daemon: tend services",
	"unstartup":      "tend startup --remove",
	"network":        "networks belong to sandboxes: tend sandbox create --help",
	"volume":         "directories are shared with a sandbox when it is created: tend sandbox create --help",
	"expose":         "a process of this machine has the machine's ports; tend forward SANDBOX PORT and tend sandbox url SANDBOX PORT are for those of a sandbox",
	"login":          "tend image pull reads the logins of docker and podman; TEND_TOKEN and --token are for a daemon",
	"push":           "tend pushes no images; tend image pull and import bring them here",
	"container":      "processes have no containers of their own: tend ps and tend run are for them, tend sandbox for what is isolated",
	"system":         "tend status shows the daemon, tend rm --finished and tend image prune remove what is not used",
	"diff":           "tend sandbox snapshot keeps the files of a sandbox; nothing compares them",
	"history":        "tend image inspect NAME shows an image, tend events what has happened",
	"tag":            "tend image pull and import give images their names; --tag of tend run gives a process one",
	"ecosystem":      "tend init writes a tend.yaml, tend import makes one of an ecosystem file, and tend up -f FILE runs it as it is",
	"reset":          "restarts are counted since the service was declared: tend services shows them",
	"rollout":        "tend services restart NAME restarts a service, tend services shows how it is",
	"rename-session": "a process keeps its name until tend run --replace --name NAME",
	"detach":         "ctrl-] leaves a process that is attached, and it goes on",
	"edit":           "change the tend.yaml, and then tend up -d",
	"has-session":    "tend ps --filter name=NAME -q prints nothing if there is none",
	"split-window":   "tend run -t --name NAME -- sh starts another shell; the page (tend ui) shows several",
	"switch-client":  "tend attach NAME; ctrl-] leaves it",
}

// synonyms are what other programs call the verbs.
var synonyms = map[string]string{
	"spawn": "run", "create": "run", "new": "run", "new-session": "run -t", "new-window": "run -t", "shell": "run -t",
	"cp": "sandbox cp", "copy": "sandbox cp", "fork": "sandbox fork", "snapshot": "sandbox snapshot", "pause": "sandbox pause",
	"box": "sandbox", "url": "sandbox url",
	"status-all": "ps", "processes": "ps", "jobs": "ps", "list-sessions": "ps", "sessions": "ps", "show": "inspect",
	"jlist":      "ps --json",
	"prettylist": "ps --json", "pm2": "ps", "cluster-info": "status", "sendsignal": "signal",
	"get": "ps", "describe": "inspect", "info": "inspect",
	"reload": "restart", "revert": "rollback", "undo": "rollback", "respawn": "restart", "recreate": "restart",
	"apply": "up -d -f", "unpause": "sandbox resume", "commit": "sandbox snapshot", "build": "template build", "pull": "image pull",
	"load": "image import", "rmi": "image rm", "capture-pane": "logs",
	"log": "logs", "tail": "logs", "cat": "logs", "output": "logs", "journal": "logs", "monit": "top", "monitor": "top",
	"htop": "top", "metrics": "stats", "watch": "events -f",
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

// noVerb is the error for a word that names no verb of n, with what it may stand for: what
// others call it, else the verbs that are written nearly so.
func (n *node) noVerb(said string) error {
	if n.parent != nil {
		return usageError(fmt.Sprintf("%q is no verb of %s", said, n.path()))
	}
	word := strings.ToLower(said)
	if hint := hints[word]; hint != "" {
		return usageError(fmt.Sprintf("%q is no verb; %s", said, hint))
	}
	near := []string{"tend " + synonyms[word]}
	if near[0] == "tend " {
		near = n.nearVerbs(said)
	}
	text := fmt.Sprintf("%q is no verb", said)
	if len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError(text)
}

// typos is how many letters of a word may be wrong: in a short one two make another word.
func typos(word string) int {
	if len(word) < 3 {
		return 0
	}
	return min(1+len(word)/8, 2)
}

func (n *node) nearVerbs(said string) (near []string) {
	best := typos(said) + 1
	for _, v := range n.shown() {
		for _, name := range append([]string{v.name}, v.list("aliases")...) {
			d := typo.Distance(strings.ToLower(said), name)
			if len(said) >= 2 && strings.HasPrefix(name, said) {
				d = 0
			}
			if d < best {
				near, best = nil, d
			}
			if d == best && d <= typos(said) && !slices.Contains(near, "tend "+v.name) {
				near = append(near, "tend "+v.name)
			}
		}
	}
	return near
}

// helpCmd is "tend help VERB", the same as --help, and what there is to say of no verb alone.
type helpCmd struct {
	Verb []string `arg:"" optional:"" complete:"verb" help:"The command, or a topic; tend help topics lists those."`
}

func (c *helpCmd) Run(_ context.Context, inv *invocation) error {
	n, err := inv.model.find(c.Verb)
	named := strings.ToLower(strings.Join(c.Verb, " "))
	if topic := helpText(named); err != nil && topic != "" {
		p := &page{width: inv.helpWidth()}
		for _, l := range wrapped(strings.ToUpper(named[:1])+named[1:]+":\n\n"+topic, "    ", p.width) {
			p.line(l)
		}
		_, err := io.WriteString(inv.out, p.String())
		return err
	}
	if err != nil {
		return err
	}
	return inv.help(n)
}
