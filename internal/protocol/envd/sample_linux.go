package envd

import (
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

func readMemory(s *sample) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return
	}
	m, err := proc.Meminfo()
	if err != nil {
		return
	}
	bytes := func(n *uint64) uint64 {
		if n == nil { // an old kernel
			return 0
		}
		return *n
	}
	s.MemTotal = bytes(m.MemTotalBytes)
	s.MemUsed = s.MemTotal - min(bytes(m.MemAvailableBytes), s.MemTotal)
	s.MemCache = bytes(m.CachedBytes) + bytes(m.SReclaimableBytes)
}

func readDisk(s *sample) {
	var st unix.Statfs_t
	if unix.Statfs("/", &st) != nil {
		return
	}
	size := uint64(st.Bsize)
	s.DiskTotal, s.DiskUsed = st.Blocks*size, (st.Blocks-st.Bfree)*size
}

// readCPU leaves the time of guests out, which is counted as the users' already.
func readCPU() cpuTime {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return cpuTime{}
	}
	st, err := proc.Stat()
	if err != nil {
		return cpuTime{}
	}
	c := st.CPUTotal
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return cpuTime{busy: busy, total: busy + c.Idle + c.Iowait}
}
