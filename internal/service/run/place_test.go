package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/probe"
	"github.com/tend-run/tend/process"
)

// refusing is a sandbox to whose ports nobody is connected.
type refusing struct {
	driver.Sandbox
	err error
}

func (r refusing) Processes() process.Manager { return nil }

func (r refusing) Dial(context.Context, int) (net.Conn, error) { return nil, r.err }

// A sandbox that is being stopped is ready still by its state when its ports are gone.
func TestAProbeOfASandboxThatEndsIsNoFailure(t *testing.T) {
	rule := &config.Probe{TCP: "127.0.0.1:3000", Timeout: config.Duration(10 * time.Second)}
	for err, gone := range map[error]bool{
		fmt.Errorf("%w\nopen /proc/1/ns/net: no such file or directory", driver.ErrStopped): true,
		driver.ErrPaused:                       true,
		driver.ErrNotFound:                     true,
		errors.New("connection reset by peer"): false,
	} {
		a, why := askInside(t.Context(), rule, &probe.Target{}, refusing{err: err})
		if a.OK || a.Doubt != gone || (why != nil) != gone {
			t.Errorf("%v: %+v, %v", err, a, why)
		}
	}
}
