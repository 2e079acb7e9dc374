package main

import (
	"strings"

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
