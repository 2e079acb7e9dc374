package daemon

import (
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
)

// promise is one thing that this machine may or may not allow.
type promise struct {
	name   string // "cgroup_kill"
	kept   bool
	detail string // what it means when it is not kept, or how it is
}

// promises reads the keeper's facts about this machine: "name=detail" for a
// promise that is kept, "name!reason" for one that is not.
func promises(facts []string) []promise {
	out := make([]promise, 0, len(facts))
	for _, f := range facts {
		i := strings.IndexAny(f, "=!")
		if i < 0 {
			continue
		}
		out = append(out, promise{name: f[:i], kept: f[i] == '=', detail: f[i+1:]})
	}
	return out
}

// powerLoss completes what the keeper says of fsync by what the daemon's
// default is: without one it is for each process to ask.
func powerLoss(promises []promise, sync process.Sync) []promise {
	i := slices.IndexFunc(promises, func(p promise) bool { return p.name == "output_survives_power_loss" })
	if i < 0 || !promises[i].kept {
		return promises
	}
	switch p := &promises[i]; sync {
	case process.SyncExit:
		p.detail = "--fsync=exit: an exit is reported once it and all output before it are on the disk"
	case process.SyncInterval:
		p.detail = "--fsync=interval: all but about the last second"
	default:
		p.kept, p.detail = false,
			"nothing is forced to the disk but for processes that ask (tend run --fsync); tend serve --fsync=exit or interval makes it the default"
	}
	return promises
}
