package main

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

ID is an id, the beginning of one, a name, a tag or a pid.`

// exitStatuses are those of every verb.
const exitStatuses = `	0    done
	1    not done; the reason is on stderr
	2    the command line is wrong
	124  a timeout: of run --timeout, wait --timeout, or up --wait-timeout
	125  run could not reach or start a daemon, lost it for good, could
	     not start the process, or could not print its output
	126  run: the program cannot be executed
	127  run: the program was not found
	129  run, attach: the terminal was closed; the process goes on

run, attach and wait end with the status of the process itself: its code, or 128+n if signal n ended it. wait for several ends with the greatest of theirs. Leaving with ctrl-] is 0, and so is leaving logs -f, events -f, top and attach with ctrl-c; a wait that is interrupted ends with 130 or 143. kill, stop and rm -f end with 1 if a process outlived the kill, or if one runs on that may belong to the killed one.`

const environmentUsed = `	TEND_URL        the daemon: http://host:port or unix:///path
	TEND_TOKEN      its token
	TEND_STATE_DIR  the state directory of your own daemon
	NO_COLOR        no colour, whatever the terminal`

func (*runCmd) Help() string {
	return `On a terminal ctrl-] leaves the process running, as closing the window does; ctrl-c goes to the process. Typed text goes to the process only with -i or -t.

Variables that arrive at the process: HOME, USER and LOGNAME of its user; PATH of this shell if the daemon is on this machine and --user is not given, else of the daemon; with -t also TERM, COLORTERM and LANG; then --env-all, --env-file, --env. No others: a spec is kept on disk, and environments hold secrets.

With --json, stdout has a line for the start, for each piece of output and for the exit, in place of the output itself; with -d the facts of the start alone.

Exit statuses:

` + exitStatuses + "\n\n" + examples(
		`tend run -- npm test                     # follow it, end with its status`,
		`tend run -d --name web -- npm run dev    # start it and return`,
		`tend run -t --name shell -- sh           # with a terminal`,
		`tend run -c 'sort names | uniq -c'       # a line for the shell`,
		`tend run --rm --timeout 5m -- npm test   # end it in time, keep nothing`,
		`tend run -d --rm --env-file .env -- npm test`,
		`tend run --env-all --json -- npm test`,
	)
}

func (*psCmd) Help() string {
	return examples(
		`tend ps -a                  # those that have ended, too`,
		`tend ps -a --tag ci --json  # for programs`,
		`tend ls --filter name='we*' --filter status=running`,
	)
}

func (*logsCmd) Help() string {
	return examples(
		`tend logs -f web                           # all, and what follows`,
		`tend logs --tail 20 build                  # the last lines`,
		`tend logs --head 16KiB --tail 16KiB build  # both ends of much`,
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
		`tend attach shell           # ctrl-] leaves; the process goes on`,
		`tend attach --no-input web  # watch`,
	)
}

func (*inputCmd) Help() string {
	return examples(
		`tend input cat 'a line'`,
		`tend input --eof cat < names  # a file, and then the end`,
	)
}

func (*signalCmd) Help() string {
	return examples(
		`tend signal web HUP           # it and its descendants`,
		`tend signal --leader web USR1`,
	)
}

func (*stopCmd) Help() string {
	return `What still runs after --time is killed, with the exit statuses of tend kill. The command waits until the kernel reports that no process is left. -t is the time, as in docker stop; the -t of tend run is a terminal.

` + examples(
		`tend stop web`,
		`tend stop -t 30 -s INT web`,
	)
}

func (*restartCmd) Help() string {
	return `The new process has the same spec and a new id, which is printed. The old process and its output are kept, as of any finished process. A name finds the running one. Nothing is started if processes of the old one outlive the kill; if it is only not known whether some belong to it (see tend kill), they are named on stderr, and the new one starts.

` + examples(`tend restart web`)
}

func (*inspectCmd) Help() string {
	return `The output is an array. It includes what each process was started with, also its environment, which may hold secrets.

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
	return `It ends with 0 if all died, or had ended before. It ends with 1 if a process outlived the kill, or if one runs on of which nothing shows whether it belongs to the killed one (it left cgroup, session and parents): it is named, not killed. Where the kernel cannot confirm that none is left (kill_reaches_tree in tend status), the status is 0 and stderr says so; "verified" of --json is false.

` + examples(
		`tend kill web`,
		`tend kill -HUP web                # only a signal, to all of it`,
		`tend kill $(tend ps -q --tag ci)`,
	)
}

func (*waitCmd) Help() string {
	return examples(
		`tend wait build                                  # end with its status`,
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
		`tend events -f --json  # what happened, and what will`,
	)
}

func (*topCmd) Help() string {
	return examples(
		`tend top`,
		`tend top -n 2 -d 500ms --json`,
	)
}

func (*serveCmd) Help() string {
	return `With OTEL_EXPORTER_OTLP_ENDPOINT, and the other variables of OpenTelemetry, it sends traces and metrics to a collector by OTLP over HTTP; without them, nothing.

` + examples(
		`tend serve --listen 127.0.0.1:0 --port-file url  # a free port`,
		`tend serve --listen none --state-dir ./own       # a socket alone`,
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
	return `The URL logs in once, within a minute, if the daemon needs a token at all; after that the browser stays logged in for a week.

` + examples(
		`tend ui             # open it`,
		`tend ui --print     # print the URL alone`,
		`tend ui --read-only --print    # for a colleague, who changes nothing`,
	)
}

func (*upgradeCmd) Help() string {
	return examples(
		`tend upgrade                       # to what lies where it was started from`,
		`tend upgrade --server --binary ./tend-next`,
	)
}

func (*shutdownCmd) Help() string {
	return examples(
		`tend shutdown`,
		`tend shutdown --keep  # what runs goes on until the next tend serve`,
	)
}

func (*doctorCmd) Help() string {
	return `Each line is one check: ok, limited (tend works, and something is weaker than it could be) or broken; below it, the command that mends it. Where no daemon runs, one is tried: started in a directory of its own beside the state directory, asked what it can do here, and ended. With --url a daemon elsewhere is asked alone, and nothing is looked at on this machine.

It ends with 1 if something is broken, else with 0.

` + examples(
		`tend doctor`,
		`tend doctor --json`,
	)
}

func (*tortureCmd) Help() string {
	return examples(`tend torture --minutes 5 --dir .`)
}

func (*mcpCmd) Help() string {
	return `An agent starts it, as "command": "tend", "args": ["mcp"]. The tools work in the directory where it runs, with its PATH; with --sandbox they reach that sandbox and nothing else. What a tool has started goes on when this program ends. Your own daemon is started if it does not run.

` + examples(
		`tend mcp < messages`,
		`tend mcp --sandbox web < messages     # in this sandbox alone`,
	)
}

func (*distantCmd) Help() string {
	return `Without a command: tend distant --stdio, --unix PATH or --listen-json ADDR, as tend distant lines --help has them.

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
