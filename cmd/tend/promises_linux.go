package main

import (
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/server"
)

// promises reads the keeper's facts about this machine: "name=detail" for a
// promise that is kept, "name!reason" for one that is not.
func promises(facts []string) []server.Promise {
	out := make([]server.Promise, 0, len(facts))
	for _, f := range facts {
		i := strings.IndexAny(f, "=!")
		if i < 0 {
			continue
		}
		out = append(out, server.Promise{Name: f[:i], Kept: f[i] == '=', Detail: f[i+1:]})
	}
	return out
}

// powerLoss completes what the keeper says of fsync by what the daemon's
// default is: without one it is for each process to ask.
func powerLoss(promises []server.Promise, sync process.Sync) []server.Promise {
	i := slices.IndexFunc(promises, func(p server.Promise) bool { return p.Name == "output_survives_power_loss" })
	if i < 0 || !promises[i].Kept {
		return promises
	}
	switch p := &promises[i]; sync {
	case process.SyncExit:
		p.Detail = "--fsync=exit: an exit is reported once it and all output before it are on the disk"
	case process.SyncInterval:
		p.Detail = "--fsync=interval: all but about the last second"
	default:
		p.Kept, p.Detail = false, "nothing is forced to the disk but for processes that ask (tend run --fsync); tend serve --fsync=exit or interval makes it the default"
	}
	return promises
}
