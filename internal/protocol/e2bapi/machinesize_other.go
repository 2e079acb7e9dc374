//go:build !linux

package e2bapi

import "runtime"

// machine is what a sandbox without limits may use, in the units of the wire.
type machine struct{ cpus, memoryMB, diskMB int64 }

func machineOf(string) machine { return machine{int64(runtime.NumCPU()), 1, 1} }
