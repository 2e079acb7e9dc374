//go:build !linux

package procfs

// BootTime is not known here.
func BootTime() int64 { return 0 }

// BootID is not known here.
func BootID() string { return "" }

// ReadStat finds no process here.
func ReadStat(int) (Stat, bool) { return Stat{}, false }
