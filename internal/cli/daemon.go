package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/lib/home"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// daemon is a connection to the daemon that a command line is about.
type daemon struct {
	*tend.Client
	// local: on this machine, by its unix socket; paths and /proc are ours.
	local bool
	url   string // where it was reached
	// started: by this command. What it keeps running, this command has started.
	started bool
	// machine: the processes are the machine's, not those of a sandbox.
	machine bool
	here    map[string]string // names of the services of this directory's project; see full
}

// find looks up a process as people name it.
func (d *daemon) find(ctx context.Context, id string) (process.Process, error) {
	if id == "" {
		// A variable of a script that is not set, most likely.
		return nil, usageError("the name of the process is empty; give an id, a name, a tag or a pid")
	}
	p, err := d.Get(ctx, process.Selector{Any: id})
	if err != nil || !strings.HasPrefix(string(p.ID()), id) { // a name
		if name := d.full(ctx, id); name != id {
			if own, oerr := d.Get(ctx, process.Selector{Name: name}); oerr == nil {
				return own, nil
			}
		}
	}
	if errors.Is(err, process.ErrNotFound) {
		err = d.noneOf(ctx, id, err)
		if id == "all" {
			err = &keyError{"no process has this name; --all means all that run", err}
		}
	}
	if err != nil {
		return nil, about(id, err)
	}
	return p, nil
}

// noDaemonError is returned where no daemon runs.
type noDaemonError struct {
	tried []string
	err   error
	kept  bool // but processes of a former one run on
	// system is the socket of root's daemon, which this user has not asked; "": there is none.
	system string
}

var errKept = errors.New("the daemon has ended and left its processes")

func (e *noDaemonError) Error() string {
	if e.kept {
		return "no daemon is running, but the processes of the one before are (it ended with --keep); tend run or tend serve takes them over"
	}
	text := fmt.Sprintf("no daemon is running (tried %s); tend run starts one, tend serve runs one in the foreground, and --url or TEND_URL names another", strings.Join(e.tried, ", "))
	if e.system != "" {
		text += fmt.Sprintf(". This machine has a daemon of root's: TEND_URL=unix://%s uses it, for root and members of its group (tend startup --group)", e.system)
	}
	return text
}

func (e *noDaemonError) Unwrap() error { return e.err }

// connect finds the daemon, and the processes of the sandbox that --sandbox names. It
// starts neither.
func (inv *invocation) connect(ctx context.Context) (*daemon, error) {
	d, err := inv.connectMachine(ctx)
	if err != nil {
		return nil, err
	}
	return inv.within(ctx, d, false)
}

// connectMachine finds the daemon. It does not start one.
func (inv *invocation) connectMachine(ctx context.Context) (*daemon, error) {
	if url := inv.flags.URL; url != "" {
		return inv.dial(ctx, url)
	}
	tried, err := inv.home().URLs()
	if err != nil {
		return nil, err
	}
	dir, err := inv.stateDir()
	if err != nil {
		return nil, err
	}
	if leftBehind(ctx, dir) {
		return nil, &noDaemonError{tried: tried, err: errKept, kept: true}
	}
	var last error
	for _, url := range tried {
		d, err := inv.dial(ctx, url)
		if !errors.Is(err, tend.ErrNoDaemon) {
			return d, err
		}
		last = err
	}
	none := &noDaemonError{tried: tried, err: last}
	if _, err := os.Stat(home.RunDir); err == nil && os.Geteuid() != 0 && inv.flags.StateDir == "" {
		none.system = home.SystemSocket()
	}
	return nil, none
}

// home is where the daemon is that is named by no URL.
func (inv *invocation) home() home.Home {
	return home.Home{StateDir: inv.flags.StateDir, Getenv: inv.getenv}
}

func (inv *invocation) stateDir() (string, error) { return inv.home().Dir() }
