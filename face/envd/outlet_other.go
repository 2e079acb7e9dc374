//go:build !linux

package envd

import "github.com/tend-run/tend/process"

// sendfile is used on Linux only; elsewhere frames are copied.
func (o *connOutlet) sendfile(*frameEncoder) (done bool, err error) { return false, nil }

// writable lets the next write do the waiting, in pieces of stallAfter.
func (o *connOutlet) writable() error { return o.ctx.Err() }

func (o *connOutlet) piece(n int, _ func(int) int) (int, error) { return n, o.broken }

const canPrompt = false

func (o *connOutlet) writeNow([]byte) int { return 0 }

func readCached(process.Span, []byte) bool { return false }
