//go:build !linux || (!amd64 && !arm64)

package spawn

// state of a Zygote.
type state struct{}

// End does nothing.
func (z *Zygote) End() {}

// PID is 0.
func (z *Zygote) PID() int { return 0 }
