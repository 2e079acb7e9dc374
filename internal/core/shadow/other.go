//go:build !linux || (!amd64 && !arm64)

package shadow

import (
	"fmt"
	"os"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/process"
)

// Make makes none here.
func Make(_, _ string, _ container.ID, _ func(string, int64) error) (*Shadow, error) {
	return nil, fmt.Errorf("a shadow of a sandbox: %w", process.ErrUnsupported)
}

// Shadow cannot be had here.
type Shadow struct{}

// Covers reports nothing.
func (*Shadow) Covers(string) bool { return false }

// Harden reports nothing.
func (*Shadow) Harden() (caps uint64, filter bool) { return 0, true }

// Room reports nothing.
func (*Shadow) Room() int64 { return 0 }

// Root opens nothing.
func (*Shadow) Root() (*os.File, uint32, error) { return nil, 0, process.ErrUnsupported }

// Run runs nothing.
func (*Shadow) Run(Program) (int, error) { return 0, process.ErrUnsupported }

// End ends nothing.
func (*Shadow) End() error { return nil }

// Changed finds nothing.
func (*Shadow) Changed(string) (int, uint32, error) { return -1, 0, nil }

// Close releases nothing.
func (*Shadow) Close() error { return nil }
