package envd

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// machine measures the machine for GET /metrics.
type machine struct {
	mu   sync.Mutex
	last procfs.Machine // guarded by mu; zero before the first sample: since the boot
}

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
	now := procfs.ReadMachine()
	s.MemTotal, s.MemUsed, s.MemCache = uint64(now.MemTotal), uint64(now.MemUsed), uint64(now.MemCache)
	readDisk(&s)
	s.MemTotalMiB, s.MemUsedMiB = s.MemTotal>>20, s.MemUsed>>20
	m.mu.Lock()
	defer m.mu.Unlock()
	if total := now.Total - m.last.Total; total > 0 {
		pct := 100 * float64(now.Busy-m.last.Busy) / float64(total)
		s.CPUUsedPct = math.Round(100*min(100, max(0, pct))) / 100
	}
	m.last = now
	return s
}
