package spool

import "golang.org/x/sys/unix"

// BootTime is CLOCK_BOOTTIME in ns: the time since the machine was booted, which
// nobody sets; 0: not known.
func BootTime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
