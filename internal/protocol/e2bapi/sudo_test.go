package e2bapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/e2bapi"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// helping is a driver whose sandboxes start other programs in place of helpers.
type helping struct {
	open
	mu     sync.Mutex
	specs  []process.Spec // guarded by mu, as the rest
	now    int
	most   int
	script string
}

type helped struct {
	driver.Sandbox
	d *helping
}

type helpers struct {
	process.Manager
	d *helping
}

func (d *helping) Get(ctx context.Context, key string) (driver.Sandbox, error) {
	s, err := d.open.Get(ctx, key)
	return helped{s, d}, err
}

func (s helped) Processes() process.Manager { return helpers{s.Sandbox.Processes(), s.d} }

func (h helpers) Start(ctx context.Context, spec process.Spec) (process.Process, error) {
	h.d.mu.Lock()
	h.d.specs = append(h.d.specs, spec)
	h.d.now++
	h.d.most = max(h.d.most, h.d.now)
	script := h.d.script
	h.d.mu.Unlock()
	p, err := h.Manager.Start(ctx, process.Spec{Shell: script})
	h.d.mu.Lock()
	h.d.now--
	h.d.mu.Unlock()
	return p, err
}

// inside asks as a program of a sandbox does; "": as somebody outside.
func inside(f *e2bapi.Face, ctx context.Context, id driver.ID, name string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	if err := module.Mount(mux, f, nil); err != nil {
		panic(err)
	}
	r := httptest.NewRequest("POST", "/-/sudo/"+name, nil).WithContext(ctx)
	if id != "" {
		r = r.WithContext(route.WithInside(ctx, id, route.EnvdPort))
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestHelpersOfSudoTakeTurns(t *testing.T) {
	t.Parallel()
	d, name := &helping{script: "exit 3"}, strings.Repeat("0a", 16)
	var f *e2bapi.Face
	s := serveFace(t, func(c *e2bapi.Config) { d.open = c.Driver.(open); c.Driver = d }, &f)
	id := driver.ID(s.create("{}"))
	for _, tc := range []struct {
		id   driver.ID
		name string
	}{{"", name}, {id, "x"}, {id, strings.Repeat("0", 33)}, {id, "--" + name[2:]}, {driver.NewID(), name}} {
		if w := inside(f, t.Context(), tc.id, tc.name); w.Code != 404 {
			t.Errorf("of %q, %q: %d %s", tc.id, tc.name, w.Code, w.Body)
		}
	}
	if len(d.specs) > 0 {
		t.Errorf("started is %+v", d.specs)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if w := inside(f, t.Context(), id, name); w.Code != 204 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	if len(d.specs) != 20 || d.most != 1 || strings.Join(d.specs[0].Argv, " ") != "/usr/bin/sudo --tend-root "+name || d.specs[0].User != "root" {
		t.Errorf("%d started, %d at a time: %+v", len(d.specs), d.most, d.specs[0])
	}
	sandbox := proctest.Value(d.open.Get(t.Context(), string(id)))(t)
	if all := proctest.Value(sandbox.Processes().List(t.Context(), process.Filter{}))(t); len(all) > 0 {
		t.Errorf("left are %+v", all)
	}

	// One whose client is gone has some seconds to end what it runs.
	d.script = "trap '' TERM; sleep 600"
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	inside(f, ctx, id, name)
	if all := proctest.Value(sandbox.Processes().List(t.Context(), process.Filter{}))(t); len(all) > 0 {
		t.Errorf("left are %+v", all)
	}
}
