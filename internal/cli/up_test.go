package cli

import (
	"bytes"
	"testing"

	tend "github.com/tend-run/tend/sdk/go"
)

// TestARestartBeforeTheFirstLookIsTold: on a machine that is busy a service may have died before
// up sees it for the first time. What was so before this up is no news.
func TestARestartBeforeTheFirstLookIsTold(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	inv := &invocation{out: &errs, errs: &errs, flags: &globals{}}
	service := func(name string, restarts int64) tend.Service {
		return tend.Service{Name: name, Up: true, Phase: tend.ServicePausing, Restarts: restarts, Why: "it ended"}
	}
	v := newUpView(inv, &keptServices{d: &daemon{}}, []tend.Service{service("old", 3), service("older", 3)})
	v.say([]tend.Service{service("new", 2), service("old", 3), service("older", 4)})
	if got, want := errs.String(), "tend: new starts again: it ended\ntend: older starts again: it ended\n"; got != want {
		t.Errorf("it says:\n%s\nwant:\n%s", got, want)
	}
}
