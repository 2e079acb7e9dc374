package e2bapi

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// machine is what a sandbox without limits may use, in the units of the wire.
type machine struct{ cpus, memoryMB, diskMB int64 }

func machineOf(dir string) machine {
	m := machine{cpus: int64(runtime.NumCPU()), memoryMB: 1, diskMB: 1}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.memoryMB = max(1, int64(uint64(info.Totalram)*uint64(info.Unit)>>20))
	}
	if dir == "" {
		dir = "/"
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil || unix.Statfs("/", &fs) == nil {
		m.diskMB = max(1, int64(fs.Blocks*uint64(fs.Bsize)>>20))
	}
	return m
}
