package cli

import "strings"

// The examples of each command's --help. TestScripts/help_examples runs every
// line of them.

// examples is the part of a help text that shows command lines. Kong keeps
// what is indented as it is.
func examples(lines ...string) string {
	return "Examples:\n\n\t" + strings.Join(lines, "\n\t")
}

// Help of the whole; kong.Description has it.
const description = `A process runtime: it starts processes, keeps their output, and serves both to its clients.

	tend run -d --name web -- npm run dev
	tend wait web --until match=ready
	tend logs -f web
	tend kill web

ID is an ID, the beginning of an ID, a name, a tag or a pid.`

// exitStatuses are those of every verb.
const exitStatuses = `	0    success
	1    failure; the reason is on stderr
	2    the command line is wrong
	124  a timeout: of run --timeout, wait --timeout, or up --wait-timeout
	125  run could not reach or start a daemon, lost it for good, could
	     not start the process, or could not print its output
	126  run: the program cannot be executed
	127  run: the program was not found
	129  run, attach: the terminal was closed; the process keeps running

run, attach and wait exit with the status of the process itself: its code, or 128+n if signal n ended it. wait for several processes exits with the greatest status. Detaching with ctrl-] gives 0, and so does leaving logs -f, events -f, top and attach with ctrl-c; an interrupted wait exits with 130 or 143. kill, stop and rm -f exit with 1 if a process survived the kill, or if a process keeps running that may belong to the killed one.`

const environmentUsed = `	TEND_URL        the daemon: http://host:port or unix:///path
	TEND_TOKEN      its token
	TEND_STATE_DIR  the state directory of your own daemon
	NO_COLOR        no colour, whatever the terminal`

func (*runCmd) Help() string {
	return `On a terminal ctrl-] detaches and leaves the process running, and so does closing the window; ctrl-c goes to the process. Typed text goes to the process only with -i or -t.

The process gets these variables: HOME, USER and LOGNAME of its user; PATH of this shell if the daemon is on this machine and --user is not given, else of the daemon; with -t also TERM, COLORTERM and LANG; then those of --env-all, --env-file, --env. It gets no others, because the spec is stored on disk, and environments contain secrets.

With --json, stdout has a line for the start, for each piece of output and for the exit, instead of the output itself; with -d only the line for the start.

Exit statuses:

` + exitStatuses + "\n\n" + examples(
		`tend run -- npm test                     # follow it, exit with its status`,
		`tend run -d --name web -- npm run dev    # start it and return`,
		`tend run -t --name shell -- sh           # with a terminal`,
		`tend run -c 'sort names | uniq -c'       # a line for the shell`,
		`tend run --rm --timeout 5m -- npm test   # limit its time, keep nothing`,
		`tend run -d --rm --env-file .env -- npm test`,
		`tend run --env-all --json -- npm test`,
	)
}

func (*psCmd) Help() string {
	return examples(
		`tend ps -a                  # also ended processes`,
		`tend ps -a --tag ci --json  # for programs`,
		`tend ls --filter name='we*' --filter status=running`,
	)
}

func (*logsCmd) Help() string {
	return examples(
		`tend logs -f web                           # all, then new output`,
		`tend logs --tail 20 build                  # the last lines`,
		`tend logs --head 16KiB --tail 16KiB build  # both ends`,
		`tend logs --from 10 --max-line 2KiB build  # from an offset of grep -b`,
		`tend logs --since 1h --stderr build`,
		`tend logs -n 5 -t web build                # of two, with times`,
	)
}

func (*grepCmd) Help() string {
	return examples(
		`tend grep -n build 'error|panic'`,
		`tend grep -C 2 build error       # with the lines around it`,
		`tend grep -b -m 1 web ready      # with its offset, for tend logs --from`,
	)
}

func (*attachCmd) Help() string {
	return examples(
		`tend attach shell           # ctrl-] detaches; it keeps running`,
		`tend attach --no-input web  # watch`,
	)
}

func (*inputCmd) Help() string {
	return examples(
		`tend input cat 'a line'`,
		`tend input --eof cat < names  # a file, then end of input`,
	)
}

func (*signalCmd) Help() string {
	return examples(
		`tend signal web HUP           # it and its descendants`,
		`tend signal --leader web USR1`,
	)
}

func (*stopCmd) Help() string {
	return `Processes that still run after --time are killed; the exit statuses are those of tend kill. The command waits until the kernel reports that no process is left. -t is the time, as in docker stop; in tend run, -t is a terminal.

` + examples(
		`tend stop web`,
		`tend stop -t 30 -s INT web`,
	)
}

func (*restartCmd) Help() string {
	return `The new process has the same spec and a new ID, which is printed. The old process and its output are kept like any finished process; the name now finds the new one. If processes of the old one survive the kill, nothing is started. If it is only unknown whether some belong to it (see tend kill), they are named on stderr, and the new one starts.

` + examples(`tend restart web`)
}

func (*inspectCmd) Help() string {
	return `The output is an array. It includes the spec of each process with its environment, which may contain secrets.

` + examples(`tend inspect web`)
}

func (*helpCmd) Help() string { return examples(`tend help run`) }

func (*manCmd) Help() string {
	return examples(
		`tend man run > tend-run.1  # man -l tend-run.1`,
		`tend man --dir man1`,
	)
}

func (*killCmd) Help() string {
	return `It exits with 0 if all processes died, or had ended before. It exits with 1 if a process survived the kill, or if a process keeps running that may belong to the killed one (it left cgroup, session and parents): that process is named, not killed. Where the kernel cannot confirm that none is left (kill_reaches_tree in tend status), the status is 0 and stderr says so; with --json, "verified" is false.

` + examples(
		`tend kill web`,
		`tend kill -HUP web                # only a signal, to the whole tree`,
		`tend kill $(tend ps -q --tag ci)`,
	)
}

func (*waitCmd) Help() string {
	return examples(
		`tend wait build                                  # exit with its status`,
		`tend wait web --until 'match=ready .*'           # print the line`,
		`tend wait web --until quiet=200ms --timeout 30s`,
	)
}

func (*rmCmd) Help() string {
	return examples(
		`tend rm build`,
		`tend rm -f web  # end it first`,
		`tend rm --finished`,
	)
}

func (*pinCmd) Help() string { return examples(`tend pin build`) }

func (*unpinCmd) Help() string { return examples(`tend unpin build`) }

func (*eventsCmd) Help() string {
	return examples(
		`tend events build      # its start and its end`,
		`tend events -f --json  # past and new events`,
	)
}

func (*topCmd) Help() string {
	return examples(
		`tend top`,
		`tend top -n 2 -d 500ms --json`,
	)
}

func (*serveCmd) Help() string {
	return `With OTEL_EXPORTER_OTLP_ENDPOINT, and the other variables of OpenTelemetry, it sends traces and metrics to a collector by OTLP over HTTP; without them it sends nothing.

` + examples(
		`tend serve --listen 127.0.0.1:0 --port-file url  # a free port`,
		`tend serve --listen none --state-dir ./own       # only a socket`,
		`tend serve --listen 127.0.0.1:0 --token-file token --keep`,
	)
}

func (*statusCmd) Help() string {
	return examples(
		`tend status`,
		`tend status --json`,
	)
}

func (*uiCmd) Help() string {
	return `If the daemon has a token, the URL works once, within a minute; after that the browser stays logged in for a week.

` + examples(
		`tend ui             # open it`,
		`tend ui --print     # only print the URL`,
		`tend ui --read-only --print    # for a colleague, who changes nothing`,
		`tend ui --end-read-only        # colleagues see no more`,
	)
}

func (*upgradeCmd) Help() string {
	return examples(
		`tend upgrade                       # to the file it was started from`,
		`tend upgrade --server --binary ./tend-next`,
	)
}

func (*shutdownCmd) Help() string {
	return examples(
		`tend shutdown`,
		`tend shutdown --keep  # processes keep running until the next tend serve`,
	)
}

func (*doctorCmd) Help() string {
	return `Each line is one check: ok, limited (tend works, but something is weaker than it could be) or broken; below it is the command that fixes it. If no daemon runs, one is started for the test in a directory beside the state directory, asked what it can do here, and ended. With --url only a daemon elsewhere is asked, and nothing is checked on this machine. It exits with 1 if something is broken, else with 0.

` + examples(
		`tend doctor`,
		`tend doctor --json`,
	)
}

func (*tortureCmd) Help() string {
	return examples(`tend torture --minutes 5 --dir .`)
}

func (*mcpCmd) Help() string {
	return `An agent starts it, as "command": "tend", "args": ["mcp"]. The tools work in the directory where it runs, with its PATH; with --sandbox they reach that sandbox and nothing else. Processes that a tool has started keep running when this program ends. Your daemon is started if it does not run.

` + examples(
		`tend mcp < messages`,
		`tend mcp --sandbox web < messages     # only in this sandbox`,
	)
}

func (*distantCmd) Help() string {
	return `Without a command: tend distant --stdio, --unix PATH or --listen-json ADDR; see tend distant lines --help.

` + examples(
		`tend distant --stdio < requests       # as the child of another program`,
		`tend distant --unix lines.sock        # for this user's programs`,
		`tend distant listen --port 0          # for the distant command line`,
	)
}

func (*distantLinesCmd) Help() string {
	return examples(`tend distant --listen-json 127.0.0.1:0 --port-file address`)
}

func (*distantListenCmd) Help() string {
	return examples(`tend distant listen --port 0 --shutdown lonely=3600`)
}

func (*versionCmd) Help() string { return examples(`tend version --json`) }

// Help says how to use the script.
func (*completionCmd) Help() string {
	return "To use it:\n\n\t" + strings.Join([]string{
		`source <(tend completion bash)   # bash`,
		`source <(tend completion zsh)    # zsh`,
		`tend completion fish | source    # fish`,
	}, "\n\t")
}
