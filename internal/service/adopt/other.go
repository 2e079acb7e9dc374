//go:build !linux

package adopt

import (
	"context"
	"fmt"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

var errSystem = fmt.Errorf("%w: processes are adopted on Linux only", process.ErrUnsupported)

// Check reports process.ErrUnsupported.
func Check(context.Context, int, *Guard) (*supervisor.Adopted, error) { return nil, errSystem }

// Find reports process.ErrUnsupported.
func Find(context.Context, *config.Adopt, *Guard) (*supervisor.Adopted, error) { return nil, errSystem }

// Process is none that there is here.
type Process struct{ process.Process }

// Open returns what nothing can be done to.
func Open(supervisor.Adopted) *Process { return &Process{} }

// Is reports false.
func (p *Process) Is(supervisor.Adopted) bool { return false }

// PIDs returns none.
func (p *Process) PIDs() []int { return nil }

// Info reports process.ErrNotFound.
func (p *Process) Info(context.Context) (process.Info, error) {
	return process.Info{}, process.ErrNotFound
}
