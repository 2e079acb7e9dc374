//go:build !linux

package procfs

import "time"

// BootTime is not known here.
func BootTime() int64 { return 0 }

// BootID is not known here.
func BootID() string { return "" }

// ReadStat finds no process here.
func ReadStat(int) (Stat, bool) { return Stat{}, false }

// Use is what processes have used until a moment.
type Use struct {
	CPU    time.Duration // of all processors together
	Memory int64         // bytes that are resident
}

// Sessions is empty: no /proc is known here.
func Sessions() map[int]Use { return nil }

// ReadMachine knows nothing here.
func ReadMachine() Machine { return Machine{} }
