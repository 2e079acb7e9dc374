//go:build linux && !amd64 && !arm64

package script

// Starter starts nothing here.
type Starter struct{}

// New returns ErrUnsupported.
func New(null int) (*Starter, error) { return nil, ErrUnsupported }

// Start returns ErrUnsupported.
func (s *Starter) Start(p *Program) (pid, pidfd int, err error) { return 0, -1, ErrUnsupported }

// state of a Zygote.
type state struct{}

// End does nothing.
func (z *Zygote) End() {}

// PID is 0.
func (z *Zygote) PID() int { return 0 }

// RestoreLimit does nothing.
func (s *Starter) RestoreLimit() (again func()) { return func() {} }
