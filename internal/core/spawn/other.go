//go:build linux && !amd64 && !arm64

package spawn

// Starter starts nothing here.
type Starter struct{}

// New returns ErrUnsupported.
func New(null int) (*Starter, error) { return nil, ErrUnsupported }

// Start returns ErrUnsupported.
func (s *Starter) Start(p *Program) (pid, pidfd int, err error) { return 0, -1, ErrUnsupported }

// RestoreLimit does nothing.
func (s *Starter) RestoreLimit() (again func()) { return func() {} }

// CanEnter returns ErrUnsupported.
func (s *Starter) CanEnter() error { return ErrUnsupported }
