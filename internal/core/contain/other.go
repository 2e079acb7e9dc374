//go:build linux && !amd64 && !arm64

package contain

import (
	"fmt"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/process"
)

// Maker makes nothing here.
type Maker struct{}

var errArch = fmt.Errorf("sandboxes need a processor of the kind amd64 or arm64: %w", process.ErrUnsupported)

// NewMaker returns process.ErrUnsupported.
func NewMaker(string, *cgroup.Tree) (*Maker, error) { return nil, errArch }

// Force does nothing.
func (m *Maker) Force(string) error { return nil }

// Options are none: no container helps here.
func Options() string { return errArch.Error() }

// Make returns process.ErrUnsupported.
func (m *Maker) Make(*container.Spec) (*Container, error) { return nil, errArch }

// Helper is false: there are none here.
func Helper(int) bool { return false }

// Can reports nothing.
func (m *Maker) Can() container.Can {
	return container.Can{Missing: []container.Missing{{Reason: errArch.Error()}}}
}
