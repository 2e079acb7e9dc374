package main

// The examples of the verbs about services.

func (*upCmd) Help() string {
	return `It starts what the file declares, and changes what has changed in it; what is as before goes on. In the foreground it shows what the services write, each line with the name, and ends what it has started on ctrl-c or SIGTERM. Closing the terminal leaves them, as -d does. They outlive the deaths and upgrades of the daemon's parts, and are started again with a daemon that was shut down.

Services that inherit their environment get the one of tend up, but for what is of a terminal or a login alone (TERM, PWD, SSH_*, …). It is kept with them.

` + examples(
		`tend up -d --wait                 # start all, and wait for them`,
		`tend up -d --wait --wait-timeout 1m  # and give up after a minute, with 124`,
		`tend up -d -f services.yaml web   # web alone, and what it depends on`,
		`tend up                           # show what they write; ctrl-c ends them`,
		`tend up -d -f ecosystem.config.cjs  # a file of pm2`,
	)
}

func (*downCmd) Help() string {
	return `It ends each service with all its descendants, those that depend on others first, and waits for it. They stay declared: tend services start NAME, or tend up, starts them.

` + examples(`tend down web`, `tend down`)
}

func (*adoptCmd) Help() string {
	return `The service is that process from now on: tend asks it how it is, ends it, and starts its own after it. What it writes goes where it went, and its exit status will not be known. It must be of the service's user, and nothing that tend has started. The key adopt of a tend.yaml has tend up look for it by a pid file or a port.

` + examples(`tend adopt web "$(cat run/web.pid)"`)
}

func (*servicesCmd) Help() string {
	return examples(`tend services`, `tend services restart web`)
}

func (*servicesLsCmd) Help() string {
	return `STATE is idle, waiting, starting, not ready, ready, stopping, killing, pausing (it will be started again), completed or failed; WHY says more. SANDBOX is where it runs, and SOCKETS is what tend keeps open for it, if any service has them. The output of a service is that of its process: tend logs -f NAME.

` + examples(`tend services ls web --json`)
}

func (*servicesStartCmd) Help() string { return examples(`tend services start web`) }

func (*servicesRestartCmd) Help() string {
	return `tend restart NAME does the same for one service.

` + examples(`tend services restart web db`)
}

func (*initCmd) Help() string {
	return `It looks at Procfile, package.json with its lock file, pyproject.toml, go.mod, Cargo.toml, Gemfile and Dockerfile, and finds the command, the framework and its port. A file that is there is not overwritten.

` + examples(`tend init --print ./shop`, `tend init ./shop`)
}

func (*importCmd) Help() string {
	return `What has no equivalent becomes a comment beside the service. A file of JavaScript is read by node, as pm2 does. tend up -f FILE runs such a file as it is.

` + examples(`tend import ecosystem.config.cjs > tend.yaml`, `tend import Procfile`)
}

func (*configCmd) Help() string { return examples(`tend config check`) }

func (*configCheckCmd) Help() string {
	return `Each problem is on a line of its own on stderr, FILE:LINE:COLUMN: TEXT, with the line of the file below it; the exit status is 1 then. With --json each is a line of JSON.

` + examples(`tend config check services.yaml`)
}

func (*configSchemaCmd) Help() string { return examples(`tend config schema > tend.schema.json`) }
