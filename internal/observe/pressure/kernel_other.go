//go:build !linux

package pressure

import "github.com/tend-run/tend/process"

func diskOf(string) (Disk, bool) { return Disk{}, false }

// Trigger waits for stalls.
type Trigger struct{}

// Trigger asks the kernel to say when the group begins to wait for memory.
func (System) Trigger(*Group) (*Trigger, error) { return nil, process.ErrUnsupported }

// Wait returns when tasks wait for memory.
func (*Trigger) Wait() error { return process.ErrUnsupported }

// Close ends a Wait.
func (*Trigger) Close() error { return nil }
