package launch

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/rundir"
)

// roles in the order in which they need each other.
var roles = []string{"anchor", "keeper", "server"}

// Trouble says in one sentence which role of the daemon on a state directory cannot
// start or is stopped, and what to do; "" if there is no such role, or no daemon. It
// sends nothing to the roles.
func Trouble(stateDir string) string { return look(stateDir, trouble) }

func trouble(run *rundir.Dir) string {
	for _, role := range roles {
		if run.Stands(role) {
			return run.Describe(role)
		}
	}
	return ""
}

// Silent is Trouble where it is known that the daemon does not answer: a role that
// is not there says so too.
func Silent(stateDir string) string {
	return look(stateDir, func(run *rundir.Dir) string {
		if text := trouble(run); text != "" || run.Holder("anchor") == 0 {
			return text
		}
		for _, role := range roles {
			if run.Holder(role) == 0 {
				return run.Describe(role)
			}
		}
		return run.Describe("server")
	})
}

// Lives reports whether a launcher or another role lives on a state directory.
func Lives(stateDir string) bool {
	return look(stateDir, func(run *rundir.Dir) bool {
		return slices.ContainsFunc(roles, func(role string) bool { return run.Holder(role) != 0 }) ||
			launcherArgv(locked(run), stateDir) != nil
	})
}

// look calls f with the run directory if there is one: it is not made by looking.
func look[T any](stateDir string, f func(run *rundir.Dir) T) (none T) {
	if _, err := os.Stat(filepath.Join(stateDir, "run")); err != nil {
		return none
	}
	run, err := rundir.Open(stateDir)
	if err != nil {
		return none
	}
	defer run.Close()
	return f(run)
}

// SetLastWords writes down why the server cannot go on, for the state of the daemon;
// nil: the server begins.
func SetLastWords(stateDir string, err error) {
	look(stateDir, func(run *rundir.Dir) any { run.SetLastWords("server", err); return nil })
}

// Continue sends SIGCONT to the roles that are stopped: a stopped role cannot end in
// good order.
func Continue(stateDir string) {
	look(stateDir, func(run *rundir.Dir) any {
		for _, role := range roles {
			if pid := run.Holder(role); pid > 0 && run.Stands(role) {
				_ = unix.Kill(pid, unix.SIGCONT)
			}
		}
		if pid := locked(run); pid > 1 && launcherArgv(pid, stateDir) != nil {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
		return nil
	})
}

// End ends a daemon whose server does not answer: the anchor ends the other roles
// and the processes in good order, and the launcher ends with it.
func End(stateDir string) error {
	c, err := anchor.Await(stateDir)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Shutdown(false)
}
