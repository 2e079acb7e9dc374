package cli

// The examples of the verbs about sandboxes.

func (*sandboxCmd) Help() string {
	return `SANDBOX is a name, an ID or the beginning of an ID. The commands about processes accept --sandbox: tend ps --sandbox web, tend logs -f --sandbox web ID. docs/isolation.md of the project says what isolates a sandbox and what does not.

` + examples(
		`tend sandbox create web`,
		`tend sandbox exec web -- sh -c 'echo hello > greeting'`,
		`tend sandbox cp web:greeting .`,
		`tend sandbox rm web`,
	)
}

func (*sandboxCreateCmd) Help() string {
	return examples(
		`tend sandbox create                              # prints its name`,
		`tend sandbox create --memory 512m --cpus 1 small`,
		`tend sandbox create --timeout 1h --label of=me --json`,
		`tend sandbox create --network none -e MODE=test offline`,
	)
}

func (*sandboxRunCmd) Help() string {
	return `It exits with the status of the command, as tend run does. The sandbox stays unless --rm is given; with --rm the daemon also removes it soon after nobody follows the command and nothing runs in it.

` + examples(
		`tend sandbox run --rm -- sh -c 'id; ls /'`,
		`tend sandbox run --rm -i -c 'wc -l' < names`,
		`tend sandbox run -d --name job --pids 100 -- sleep 1000`,
	)
}

func (*sandboxExecCmd) Help() string {
	return `It exits with the status of the command, and survives deaths and upgrades of the daemon's roles, as tend run does. A stopped or paused sandbox is started.

` + examples(
		`tend sandbox exec web -- ls -l`,
		`tend sandbox exec -d --name server web -- sleep 1000`,
		`tend sandbox exec -c web 'echo $HOME; exit 3'`,
	)
}

func (*sandboxShellCmd) Help() string {
	return `ctrl-] detaches and leaves the shell running. Without a terminal here it reads commands from stdin.

` + examples(
		`tend sandbox shell web`,
		`tend sandbox shell -u root --shell /bin/sh web`,
	)
}

func (*sandboxCpCmd) Help() string {
	return `A file or directory is copied to PATH, or into it if PATH is a directory; SOURCE/. means the content of a directory. Links below a directory stay links. A copy out of a sandbox writes nothing outside of the target: it leaves out devices, and links that lead out of the copied tree. The sandbox must have tar.

` + examples(
		`tend sandbox cp names web:/tmp/                  # into a directory`,
		`tend sandbox cp web:/tmp/names ./copy`,
		`tend sandbox cp . web:project                    # all of this directory`,
		`tend sandbox cp web:/tmp - | tar -t              # as a tar stream`,
	)
}

func (*sandboxLsCmd) Help() string {
	return examples(
		`tend sandbox ls`,
		`tend sandbox ls --state ready --label of=me -q`,
		`tend sandbox ls --json`,
	)
}

func (*sandboxInspectCmd) Help() string {
	return `The output is an array. It includes the variables of each sandbox, which may hold secrets.

` + examples(`tend sandbox inspect web`)
}

func (*sandboxLogsCmd) Help() string {
	return examples(
		`tend sandbox logs web`,
		`tend sandbox logs -f --tail 20 web server  # of one process`,
	)
}

func (*sandboxStatsCmd) Help() string {
	return examples(
		`tend sandbox stats`,
		`tend sandbox stats -n 2 -d 500ms --json web`,
	)
}

func (*sandboxStartCmd) Help() string { return examples(`tend sandbox start web`) }

func (*sandboxStopCmd) Help() string { return examples(`tend sandbox stop web`) }

func (*sandboxPauseCmd) Help() string {
	return `Memory and processes stay as they are until the machine is restarted.

` + examples(`tend sandbox pause web`)
}

func (*sandboxResumeCmd) Help() string { return examples(`tend sandbox resume web`) }

func (*sandboxUpdateCmd) Help() string {
	return examples(
		`tend sandbox update --timeout 2h --on-timeout pause web`,
		`tend sandbox update --name web2 --label of=you web`,
	)
}

func (*sandboxSnapshotCmd) Help() string {
	return `Without a command: tend sandbox snapshot SANDBOX; see tend sandbox snapshot create --help.

` + examples(
		`tend sandbox snapshot --name before web`,
		`tend sandbox create --snapshot before again`,
	)
}

func (*snapshotCreateCmd) Help() string { return examples(`tend sandbox snapshot web`) }

func (*snapshotLsCmd) Help() string { return examples(`tend sandbox snapshot ls`) }

func (*snapshotRmCmd) Help() string {
	return `A snapshot that sandboxes were created from stays as long as they exist.

` + examples(`tend sandbox snapshot rm before`)
}

func (*sandboxForkCmd) Help() string {
	return `The processes are not copied.

` + examples(`tend sandbox fork -n 2 web`)
}

func (*sandboxRmCmd) Help() string {
	return `Its processes are killed, and its files removed.

` + examples(
		`tend sandbox rm web job`,
		`tend sandbox rm --label of=me`,
		`tend sandbox rm --all`,
	)
}

func (*templateCmd) Help() string {
	return `A build file has one instruction on each line:

	FROM    host | NAME[:TAG] | dir:PATH     the base; first, or omitted
	ENV     NAME=VALUE …
	COPY    SOURCE … DESTINATION             from the directory of the build file
	RUN     command line
	WORKDIR DIRECTORY
	USER    NAME
	START   command line                     runs in each sandbox created from it
	READY   command line                     exits with 0 when START is ready

` + examples(
		`tend template build -t tools ./tools`,
		`tend sandbox create --template tools work`,
	)
}

func (*templateBuildCmd) Help() string {
	return `Steps and their output are printed on stderr as they run, and the name on stdout at the end. A step whose input did not change is taken from the cache. ctrl-c stops watching the build; the daemon finishes it.

` + examples(
		`tend template build ./tools                    # reads ./tools/tend.template`,
		`tend template build -t tools:v2 -f other -q ./tools`,
		`tend template build tools.tgz                  # a tar of the directory`,
	)
}

func (*templateLsCmd) Help() string { return examples(`tend template ls`) }

func (*templateRmCmd) Help() string { return examples(`tend template rm tools`) }
