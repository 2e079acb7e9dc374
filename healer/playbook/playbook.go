package playbook

import (
	"context"
	"slices"

	"github.com/tend-run/tend/process"
)

// Signal is what was seen of a service.
type Signal string

// The signals.
const (
	Exit     Signal = "exit"     // it ended
	Flap     Signal = "flap"     // it ends again and again
	Health   Signal = "health"   // it runs, and its probe fails
	Stuck    Signal = "stuck"    // its log stopped after a line that says it is at work
	Pressure Signal = "pressure" // it runs out of memory, descriptors, disk
)

// Evidence is what is known of a service that does not work.
type Evidence struct {
	// Root of the project: absolute, and no part of it a symbolic link. Dir is the
	// working directory of the service, in or below Root; if it is elsewhere, nothing
	// matches.
	Root, Dir string
	// Alias is Root as its user names it, by symbolic links; "" for none.
	Alias   string
	Service string
	Argv    []string // a line is /bin/sh, -c, LINE
	Env     map[string]string
	Signal  Signal
	Exit    *process.Exit // of the newest run; nil: it has not ended
	// Log is what was written since the newest start, on both streams. Of more than
	// MaxLog bytes the last are read.
	Log   string
	Ports []int // on which it is to listen
}

// MaxLog bounds the log that is read, in bytes.
const MaxLog = 64 << 10

// Kind says what an action does.
type Kind string

// The kinds of actions.
const (
	Run           Kind = "run"             // the program Argv runs in the directory Path, never through a shell of its own, and must end with 0
	Restore       Kind = "restore"         // the file Path, which is absent, becomes as git's index holds it
	Remove        Kind = "remove"          // the directory Path, which is derived, and all in it
	EndPortHolder Kind = "end_port_holder" // what listens on Port and is left of the service
	EndOrphans    Kind = "end_orphans"     // what is left of earlier runs of the service
	SetEnv        Kind = "set_env"         // the line Name=Value is added to the env file Path, which is made if it is absent
	Truncate      Kind = "truncate"        // of the log file Path only the last Keep bytes stay; this cannot be undone
	Propose       Kind = "propose"         // nothing; Reason and Diff are for people and for the agent
	Restart       Kind = "restart"         // the service. Each plan that is no proposal ends with it, said or not
)

// Action is one step of a plan. Paths are below Root, with slashes, and no part of them
// was a symbolic link when the plan was made.
type Action struct {
	Kind        Kind
	Argv        []string
	Path        string // "" for Run: Root itself
	Name, Value string
	Port        int
	Keep        int64
	// Aside are directories that are moved aside before a Run, so that it begins
	// with none, and are moved back if the plan fails. They may be absent.
	Aside  []string
	Diff   string // unified, at most MaxDiff bytes
	Reason string // one line
}

// MaxDiff bounds the diff of a proposal, in bytes.
const MaxDiff = 16 << 10

// Plan is what one book would do.
type Plan struct {
	Book    string // its name
	Why     string // one line: what was seen
	Actions []Action
	// Verify must end with 0 before the restart; nil: nothing is asked but the
	// probes, which always decide.
	Verify []string
	// Commit: what it changes in tracked files belongs into a commit.
	Commit bool
	// Strong: the cause was seen in the files, not in the log alone. A restart in
	// between would be a waste of time.
	Strong bool

	rank int
}

// MaxRounds is how many plans in a row may be carried out because each left another
// error than the one before.
const MaxRounds = 5

// Proposal reports whether the plan does nothing.
func (p Plan) Proposal() bool {
	return !slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Kind != Propose })
}

// Light reports whether the plan is a restart and nothing else: there is nothing to
// check, to undo or to report.
func (p Plan) Light() bool {
	return len(p.Actions) > 0 && !slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Kind != Restart })
}

// Match returns the plans that fit, best first: those whose cause was verified, the
// others, and the proposals. What cannot be read does not match.
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
