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
const description = `A process runtime: starts processes, keeps their output, and gives both back to whoever asks.

	tend run -d --name web -- npm run dev
	tend wait web --until match=ready
	tend logs -f web
	tend kill web

ID is an id, the beginning of one, a name, a tag or a pid.`

func (*runCmd) Help() string {
	return examples(
		`tend run -- npm test                     # follow it, end with its status`,
		`tend run -d --name web -- npm run dev    # start it and go on`,
		`tend run -t --name shell -- sh           # with a terminal`,
		`tend run -c 'sort names | uniq -c'       # a line for the shell`,
		`tend run --rm --timeout 5m -- npm test   # end it in time, keep nothing`,
	)
}

func (*psCmd) Help() string {
	return examples(
		`tend ps -a                  # those that have ended, too`,
		`tend ps -a --tag ci --json  # for programs`,
	)
}

func (*logsCmd) Help() string {
	return examples(
		`tend logs -f web                           # all, and what follows`,
		`tend logs --tail 20 build                  # the last lines`,
		`tend logs --head 16KiB --tail 16KiB build  # both ends of much`,
		`tend logs --from 10 --max-line 2KiB build  # from an offset of grep -b`,
		`tend logs --since 1h --stderr build`,
	)
}

func (*grepCmd) Help() string {
	return examples(
		`tend grep -n build 'error|panic'`,
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

func (*killCmd) Help() string {
	return examples(
		`tend kill web`,
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
	return examples(
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

func (*tortureCmd) Help() string {
	return examples(`tend torture --minutes 5 --dir .`)
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
