package procfs

import "time"

// Machine is what a machine uses.
type Machine struct {
	Busy, Total                 time.Duration // of all processors together, since the boot
	MemTotal, MemUsed, MemCache int64         // bytes
	Received, Sent              int64         // bytes of all interfaces but lo, since these are there
}
