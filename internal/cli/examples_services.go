package cli

// The examples of the verbs about services.

func (*upCmd) Help() string {
	return `It starts the services that the file declares, and restarts those whose declaration has changed; the others keep running. In the foreground it shows the output of the services, each line with the service's name, and on ctrl-c or SIGTERM it ends the services that it has started. If the terminal is closed, they keep running, as with -d. They survive deaths and upgrades of the daemon's roles, and start again with the daemon after a shutdown. Services that inherit their environment get the one of tend up, except variables that belong to one terminal or login (TERM, PWD, SSH_*, …). It is stored with them.

` + examples(
		`tend up -d --wait                 # start all, and wait for them`,
		`tend up -d --wait --wait-timeout 1m  # and give up after a minute, with 124`,
		`tend up -d -f services.yaml web   # only web and its dependencies`,
		`tend up                           # show their output; ctrl-c ends them`,
		`tend up -d -f ecosystem.config.cjs  # a file of pm2`,
	)
}

func (*downCmd) Help() string {
	return `It ends each service with all its descendants, dependents first, and waits for it. The services stay declared: tend services start NAME, or tend up, starts them again.

` + examples(`tend down web`, `tend down`)
}

func (*adoptCmd) Help() string {
	return `From now on that process is the service: tend probes it, can end it, and starts its own process after it. Its output still goes where it went before, and its exit status will be unknown. It must belong to the service's user, and tend must not have started it. With the key adopt in a tend.yaml, tend up finds the process by a pid file or a port.

` + examples(`tend adopt web "$(cat run/web.pid)"`)
}

func (*servicesCmd) Help() string {
	return examples(`tend services`, `tend services restart web`)
}

func (*servicesLsCmd) Help() string {
	return `STATE is idle, waiting, starting, not ready, ready, stopping, killing, pausing (it waits for its next start), completed or failed; WHY has details. SANDBOX is the sandbox where it runs, and SOCKETS are the sockets that tend keeps open for it; both are shown if any service has them. The output of a service is that of its process: tend logs -f NAME.

` + examples(`tend services ls web --json`)
}

func (*servicesStartCmd) Help() string { return examples(`tend services start web`) }

func (*servicesRestartCmd) Help() string {
	return `tend restart NAME does the same for one service.

` + examples(`tend services restart web db`)
}

func (*initCmd) Help() string {
	return `It looks at Procfile, package.json with its lock file, pyproject.toml, go.mod, Cargo.toml, Gemfile and Dockerfile, and finds the command, the framework and its port. An existing file is not overwritten.

` + examples(`tend init --print ./shop`, `tend init ./shop`)
}

func (*importCmd) Help() string {
	return `Settings without an equivalent become comments beside the service. node reads a JavaScript file, as in pm2. tend up -f FILE runs such a file directly.

` + examples(`tend import ecosystem.config.cjs > tend.yaml`, `tend import Procfile`)
}

func (*configCmd) Help() string { return examples(`tend config check`) }

func (*configCheckCmd) Help() string {
	return `Each problem is reported on stderr as FILE:LINE:COLUMN: TEXT, with the line of the file below it; the exit status is then 1. With --json each problem is a line of JSON.

` + examples(`tend config check services.yaml`)
}

func (*configSchemaCmd) Help() string { return examples(`tend config schema > tend.schema.json`) }
