package playbook

import (
	"context"
	"slices"

	"github.com/tend-run/tend/process"
)

// Signal is the observed fault of a service.
type Signal string

// The signals.
const (
	Exit     Signal = "exit"     // it ended
	Flap     Signal = "flap"     // it ends again and again
	Health   Signal = "health"   // it runs, and its probe fails
	Stuck    Signal = "stuck"    // its log stopped after a line that says it is at work
	Pressure Signal = "pressure" // it runs out of memory, descriptors, disk
)

// Evidence is the known facts about a service that does not work.
type Evidence struct {
	// Root of the project: absolute, and no part of it a symbolic link. Dir is the
	// working directory of the service, in or below Root; if it is elsewhere, nothing
	// matches.
	Root, Dir string
	// Alias is another path of Root, through symbolic links, that its user uses; "": none.
	Alias   string
	Service string
	Argv    []string // a line is /bin/sh, -c, LINE
	Env     map[string]string
	Signal  Signal
	Exit    *process.Exit // of the newest run; nil: it has not ended
	// Log is the output since the newest start, of both streams. Only the last MaxLog bytes
	// are read.
	Log   string
	Ports []int // on which it is to listen
}

// MaxLog bounds the log that is read, in bytes.
const MaxLog = 64 << 10

// Kind says what an action does.
type Kind string

// The kinds of actions.
const (
	// the program Argv runs in the directory Path, never through a shell of its own, and must end with 0
	Run           Kind = "run"
	Restore       Kind = "restore"         // the file Path, which is absent, becomes as git's index holds it
	Remove        Kind = "remove"          // the directory Path, which is derived, and all in it
	EndPortHolder Kind = "end_port_holder" // what listens on Port and is left of the service
	EndOrphans    Kind = "end_orphans"     // what is left of earlier runs of the service
	SetEnv        Kind = "set_env"         // the line Name=Value is added to the env file Path, which is made if it is absent
	Truncate      Kind = "truncate"        // of the log file Path only the last Keep bytes stay; this cannot be undone
	Propose       Kind = "propose"         // nothing; Reason and Diff are for people and for the agent
	Restart       Kind = "restart"         // the service. Each plan that is no proposal ends with it, said or not
)

// Action is one step of a plan. Paths are below Root, with slashes, and without symbolic
// links at the time of the plan.
type Action struct {
	Kind        Kind
	Argv        []string
	Path        string // "" for Run: Root itself
	Name, Value string
	Port        int
	Keep        int64
	// Aside are directories that are moved away before a Run, so that it begins without
	// them, and moved back if the plan fails. They may be missing.
	Aside []string
	// Makes is the directory of installed packages that a Run makes or completes; "": none. Programs
	// that packages bring run meanwhile. Of node_modules it makes those of workspaces, too. Hosts are
	// the addresses from which it fetches, as HOST:PORT.
	Makes  string
	Hosts  []string
	Diff   string // unified, at most MaxDiff bytes
	Reason string // one line
}

// MaxDiff bounds the diff of a proposal, in bytes.
const MaxDiff = 16 << 10

// Plan is the plan of one book.
type Plan struct {
	Book    string // its name
	Why     string // one line: what was seen
	Actions []Action
	// Verify must end with 0 before the restart; nil: only the probes decide, as they
	// always do in the end.
	Verify []string
	// Commit: its changes to tracked files belong in a commit.
	Commit bool
	// Strong: the cause was seen in the files, not only in the log. Trying a restart first
	// would waste time.
	Strong bool

	rank int
}

// MaxRounds is how many plans may follow each other, if each left a different error than
// the one before.
const MaxRounds = 5

// Proposal reports whether the plan does nothing.
func (p Plan) Proposal() bool {
	return !slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Kind != Propose })
}

// Light reports whether the plan is only a restart, with nothing to check, undo or report.
func (p Plan) Light() bool {
	return len(p.Actions) > 0 && !slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Kind != Restart })
}

// Match returns the matching plans, best first: those whose cause was verified, the others,
// then the proposals. Files that cannot be read do not match.
func (b *Books) Match(ctx context.Context, e Evidence) []Plan {
	p := openProject(ctx, e)
	if p == nil {
		return nil
	}
	defer p.close()
	var plans []Plan
	for _, book := range b.all {
		if ctx.Err() != nil {
			return nil
		}
		plans = append(plans, book.match(p)...)
	}
	group := func(p Plan) int {
		switch {
		case p.Proposal():
			return 2
		case p.Strong:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(plans, func(a, b Plan) int {
		if n := group(a) - group(b); n != 0 {
			return n
		}
		return a.rank - b.rank
	})
	return plans
}
