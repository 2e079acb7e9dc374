package cli

import (
	"testing"

	"github.com/tend-run/tend/sdk/go"
)

func TestProgressOfARepairIsASentence(t *testing.T) {
	tried := []tend.HealTry{{HealRemedy: tend.HealRemedy{Kind: "playbook", Name: "npm-missing"}}}
	for _, c := range []struct {
		e    tend.EpisodeRecord
		want string
	}{
		{tend.EpisodeRecord{Episode: tend.Episode{Doing: "look"}}, "finding out what is wrong"},
		{tend.EpisodeRecord{Episode: tend.Episode{Doing: "act", Tries: tried}}, "playbook npm-missing: working"},
		{tend.EpisodeRecord{Episode: tend.Episode{Doing: "verify", Tries: tried}}, "playbook npm-missing: waiting until the service is ready and stays so"},
		{tend.EpisodeRecord{Episode: tend.Episode{Doing: "act", Tries: tried, Unreached: "connection refused"}}, "playbook npm-missing: working; the model does not answer yet: connection refused"},
		{tend.EpisodeRecord{Episode: tend.Episode{Doing: "of a newer daemon"}}, "of a newer daemon"},
	} {
		if got := progress(&c.e); got != c.want {
			t.Errorf("%+v: %q; want %q", c.e, got, c.want)
		}
	}
}
