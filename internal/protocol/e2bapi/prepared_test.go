package e2bapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// laterError is what clients do not wait for.
type laterError struct{}

func (laterError) Error() string             { return "being built" }
func (laterError) Unwrap() error             { return process.ErrUnavailable }
func (laterError) RetryAfter() time.Duration { return 30 * time.Second }

func TestATemplateOfTheServersOwnIsMadeWhenItIsAskedFor(t *testing.T) {
	d := &able{builds: map[driver.BuildID]*driver.BuildSpec{}, tagged: map[string][]string{}}
	var asked int
	var why error = laterError{}
	s := serve(t, func(c *e2bapi.Config) {
		d.open = c.Driver.(open)
		c.Driver = d
		c.Prepared = map[string]func(context.Context) error{"own": func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the client would wait without end")
			}
			asked++
			if why == nil && asked == 4 {
				_, err := d.Build(ctx, driver.BuildSpec{Name: "own"})
				d.done = true
				return err
			}
			return why
		}}
	})
	if a := s.call(200, "GET", "/templates/aliases/own", ""); a["templateID"] != "own" || asked != 0 {
		t.Errorf("before it is made: %v, asked %d times", a, asked)
	}
	if a := s.call(503, "POST", "/v2/sandboxes", `{"templateID":"own"}`); !strings.Contains(fmt.Sprint(a["message"]), "being built") {
		t.Errorf("while it is made: %v", a)
	}
	if res, _ := s.do("POST", "/v2/sandboxes", `{"templateID":"own"}`); res.Header.Get("Retry-After") != "30" {
		t.Errorf("while it is made: the headers %v", res.Header)
	}
	why = errors.New("no packages")
	if a := s.call(500, "POST", "/v2/sandboxes", `{"templateID":"own"}`); !strings.Contains(fmt.Sprint(a["message"]), "no packages") {
		t.Errorf("when it cannot be made: %v", a)
	}
	why = nil
	s.create(`{"templateID":"own"}`)
	if spec := d.specs[len(d.specs)-1]; spec.Template != "own" {
		t.Errorf("made from %+v", spec)
	}
	s.call(404, "POST", "/v2/sandboxes", `{"templateID":"owner"}`)
	if asked != 4 {
		t.Errorf("asked %d times", asked)
	}
}
