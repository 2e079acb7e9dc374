package envd

import (
	"math"
	"runtime"
	"sync"
	"time"
)

// machine measures the machine for GET /metrics.
type machine struct {
	mu   sync.Mutex
	last cpuTime // guarded by mu; zero before the first sample: since the boot
}

// cpuTime is the time all processors spent since the boot, in seconds.
type cpuTime struct{ busy, total float64 }

// sample is the body of GET /metrics. Sizes are in bytes where not said.
type sample struct {
	TS          int64   `json:"ts"` // unix seconds
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"` // since the call before, of all processors, 0..100
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	DiskUsed    uint64  `json:"disk_used"` // of the root file system
	DiskTotal   uint64  `json:"disk_total"`
}

// sample reads what this system reports; what it does not report stays 0.
func (m *machine) sample() sample {
	s := sample{TS: time.Now().Unix(), CPUCount: runtime.NumCPU()}
	readMemory(&s)
	readDisk(&s)
	s.MemTotalMiB, s.MemUsedMiB = s.MemTotal>>20, s.MemUsed>>20
	m.mu.Lock()
	defer m.mu.Unlock()
	now := readCPU()
	if total := now.total - m.last.total; total > 0 {
		pct := 100 * (now.busy - m.last.busy) / total
		s.CPUUsedPct = math.Round(100*min(100, max(0, pct))) / 100
	}
	m.last = now
	return s
}
