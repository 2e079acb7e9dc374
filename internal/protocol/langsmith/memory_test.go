package langsmith_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
)

// pausing is the host driver for callers that ask for isolation, with a pause that is a
// stop.
type pausing struct {
	*host.Driver
	paused []driver.ID
}

func (d *pausing) Create(ctx context.Context, s driver.Spec) (driver.Sandbox, error) {
	s.Isolation = driver.IsolationNone
	return d.Driver.Create(ctx, s)
}

func (d *pausing) Pause(ctx context.Context, id driver.ID, spec driver.PauseSpec) error {
	if !spec.Memory {
		return driver.ErrUnsupported
	}
	d.paused = append(d.paused, id)
	s, err := d.Get(ctx, string(id))
	if err != nil {
		return err
	}
	return s.Stop(ctx)
}

func (d *pausing) Resume(context.Context, driver.ID) error { return driver.ErrUnsupported }

func TestABoxThatKeepsItsMemoryIsPausedByAStop(t *testing.T) {
	t.Parallel()
	d := new(pausing)
	s := serve(t, func(c *langsmith.Config) {
		d.Driver = c.Driver.(*host.Driver)
		c.Driver = d
	})
	const boxes = "/v2/sandboxes/boxes"
	for body, paused := range map[string]int{`{"name":"keeps","preserve_memory_on_stop":true}`: 1, `{"name":"ends"}`: 0} {
		d.paused = nil
		code, text := s.call("POST", boxes, body)
		if code != http.StatusCreated || strings.Contains(text, `"preserve_memory_on_stop":true`) != (paused == 1) {
			t.Fatalf("%s: %d %s", body, code, text)
		}
		name := strings.Split(body, `"`)[3]
		if code, text := s.call("POST", boxes+"/"+name+"/stop", ""); code != 200 || !strings.Contains(text, `"status":"stopped"`) || !strings.Contains(text, "stopped_at") || len(d.paused) != paused {
			t.Errorf("%s is stopped: %d %s; paused: %v", name, code, text, d.paused)
		}
		if code, text := s.call("POST", boxes+"/"+name+"/start", ""); code != 200 || !strings.Contains(text, `"status":"ready"`) {
			t.Errorf("%s is started: %d %s", name, code, text)
		}
		if code, text := s.call("PATCH", boxes+"/"+name, `{"preserve_memory_on_stop":true}`); code != 501 {
			t.Errorf("a change of %s: %d %s", name, code, text)
		}
	}
}

// silent is a driver that could isolate, and cannot now.
type silent struct {
	*host.Driver
	layers []string
	asked  []driver.Isolation
}

func (d *silent) Capabilities() driver.Capabilities {
	return driver.Capabilities{Name: "silent", Layers: d.layers}
}

func (d *silent) Create(ctx context.Context, s driver.Spec) (driver.Sandbox, error) {
	d.asked = append(d.asked, s.Isolation)
	return d.Driver.Create(ctx, s)
}

// A box is the machine itself only where nothing is isolated at all.
func TestABoxIsIsolatedWhereThatIsPossible(t *testing.T) {
	t.Parallel()
	d := new(silent)
	s := serve(t, func(c *langsmith.Config) {
		d.Driver = c.Driver.(*host.Driver)
		c.Driver = d
	})
	for _, tt := range []struct {
		layers []string
		body   string
		code   int
		asked  []driver.Isolation
	}{
		{nil, `{}`, 201, []driver.Isolation{driver.IsolationFull, driver.IsolationDefault}},
		{[]string{"pid"}, `{}`, 501, []driver.Isolation{driver.IsolationFull}},
		{nil, `{"snapshot_id":"x"}`, 501, []driver.Isolation{driver.IsolationFull}},
	} {
		d.layers, d.asked = tt.layers, nil
		if code, text := s.call("POST", "/v2/sandboxes/boxes", tt.body); code != tt.code || !slices.Equal(d.asked, tt.asked) {
			t.Errorf("%v %s: %d %s; asked for %v", tt.layers, tt.body, code, text, d.asked)
		}
	}
}
