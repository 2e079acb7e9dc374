//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// UpgradeKeeper replaces the keeper in place by the program at path. It returns when
// the keeper answers again. The error is process.ErrUnsupported if this keeper cannot
// do that; with any other error the old keeper continues, or the anchor has restarted
// it. Nothing is lost in any case.
func (m *Manager) UpgradeKeeper(ctx context.Context, path string) error {
	before := m.image()
	rep, _, err := m.link.call(ctx, wire.OpUpgrade, wire.Upgrade{Path: path}, false)
	switch {
	case rep.werr != nil && rep.werr.Code == wire.CodeUnsupported:
		return fmt.Errorf("%w: %s", process.ErrUnsupported, rep.werr.What)
	case rep.werr != nil:
		return errors.New(rep.werr.What)
	case err == nil:
		return errors.New("the keeper answered an upgrade as if nothing had happened")
	}
	// It went away before it answered: as it should.
	for bound := suspendaware.New(unavailableAfter); ; {
		if after := m.image(); after != before && after != "" {
			return nil
		}
		if bound.Over() {
			return fmt.Errorf("%w: %w", process.ErrUnavailable, err)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// image tells one program of the keeper from the next.
func (m *Manager) image() string {
	h, err := m.link.hello(context.Background())
	if err != nil {
		return ""
	}
	upgrades := slices.DeleteFunc(h.Facts, func(f string) bool { return !strings.HasPrefix(f, "keeper_upgrades=") })
	return fmt.Sprintf("%d %v", h.PID, upgrades)
}
