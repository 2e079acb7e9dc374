//go:build !linux

package observe

import (
	"fmt"
	"net/netip"

	"github.com/tend-run/tend/process"
)

// Tree knows nothing here: it returns no pids.
func Tree(int, int) []int { return nil }

// Listening reports process.ErrUnsupported.
func Listening(int, int) ([]process.Listener, error) {
	return nil, fmt.Errorf("%w: listening ports are known on Linux only", process.ErrUnsupported)
}

// Answering reports process.ErrUnsupported.
func Answering(int, int, netip.AddrPort) (Answerer, error) {
	return Answerer{}, fmt.Errorf("%w: who listens is known on Linux only", process.ErrUnsupported)
}

// AnsweringOf reports process.ErrUnsupported.
func AnsweringOf([]int, int, netip.AddrPort) (Answerer, error) {
	return Answering(0, 0, netip.AddrPort{})
}

// Holders reports process.ErrUnsupported.
func Holders(uint16) ([]int, bool, error) {
	return nil, false, fmt.Errorf("%w: who listens is known on Linux only", process.ErrUnsupported)
}

// Input reports process.ErrUnsupported.
func Input(int, int) (process.InputState, error) {
	return process.InputNone, fmt.Errorf("%w: waiting for input is observed on Linux only", process.ErrUnsupported)
}
