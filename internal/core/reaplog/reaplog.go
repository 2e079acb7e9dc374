//go:build linux

// Package reaplog is the file in which one role records the exit statuses of another
// role's processes.
//
// When a keeper dies, its processes become children of the nearest subreaper: the
// anchor or the launcher. Then only this role can collect their exit statuses, and it
// appends them here. The next keeper learns of an exit from the pidfd, and looks up the
// status.
//
// # Format
//
// 48-byte records in native byte order, appended by one write each:
//
//	0   u32  magic 0x0f09a002
//	4   u32  pid
//	8   u32  lower half: wait status as of wait4(2); upper half: 0; former versions
//	         wrote there how long it was there
//	12  u32  0; former versions wrote the keeper's slot
//	16  i64  time of the reaping, CLOCK_BOOTTIME ns: nobody sets that clock
//	24  i64  user time, ns
//	32  i64  system time, ns
//	40  i64  max rss, bytes
package reaplog

import (
	"encoding/binary"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

const (
	magic    = 0x0f09a002
	size     = 48
	maxBytes = 1 << 20 // the file starts again beyond; the one before is kept
	maxRead  = 1 << 28 // for one that could not be renamed, and grew
)

// former is the name of the file before.
func former(path string) string { return path + ".1" }

// reserved is how many bytes of room the file has beyond its end, half of it at
// least: a filesystem that fills up must not cost a status.
const reserved = 64 << 10

// Reserve makes an empty file with room for records.
func Reserve(path string) error {
	f, err := rundir.OpenFile(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer f.Close()
	os.Remove(former(path))
	reserve(f, 0)
	return nil
}

// reserve: where it is not supported, and where there is no room any more, a
// record has to find its own.
func reserve(f *os.File, end int64) {
	_ = eintr.Do(func() error { return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, end, reserved) })
}

// Append records the status of a reaped process in the file.
func Append(path string, pid int, status unix.WaitStatus, usage *unix.Rusage) error {
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxBytes {
		_ = os.Rename(path, former(path)) // if not, it grows
	}
	f, err := rundir.OpenFile(path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	if err != nil {
		return err
	}
	defer f.Close()
	end := int64(0)
	if fi, err := f.Stat(); err == nil {
		end = fi.Size()
	}
	if end%(reserved/2) < size {
		reserve(f, end)
	}
	var b [size]byte
	o := binary.NativeEndian
	o.PutUint32(b[0:], magic)
	o.PutUint32(b[4:], uint32(pid))
	o.PutUint32(b[8:], uint32(uint16(status)))
	o.PutUint64(b[16:], uint64(procfs.BootTime()))
	o.PutUint64(b[24:], uint64(usage.Utime.Nano()))
	o.PutUint64(b[32:], uint64(usage.Stime.Nano()))
	o.PutUint64(b[40:], uint64(usage.Maxrss<<10))
	_, err = f.Write(b[:])
	return err
}

// Find returns the exit of the process with this pid that was reaped after a
// time on CLOCK_BOOTTIME, in ns, or nil. The newest record counts: pids are used
// again.
func Find(path string, pid int, since int64) *process.Exit {
	b := read(path)
	for at := len(b)/size*size - size; at >= 0; at -= size {
		r, ok := parse(b[at:])
		if !ok || r.pid != pid || r.at < since {
			continue
		}
		e := FromStatus(r.status)
		e.UserTime, e.SystemTime, e.MaxRSS = r.user, r.system, r.rss
		return e
	}
	return nil
}

// read returns all records, in whole: those of the file before first. It is
// read last: what is renamed meanwhile is then seen twice, not never.
func read(path string) []byte {
	now, _ := rundir.ReadFile(path, maxRead)
	before, _ := rundir.ReadFile(former(path), maxRead)
	return append(before[:len(before)/size*size], now...)
}

// record is one record.
type record struct {
	pid          int
	status       unix.WaitStatus
	at           int64
	user, system time.Duration
	rss          int64
}

// parse reads the record at the head of b.
func parse(b []byte) (r record, ok bool) {
	o := binary.NativeEndian
	if len(b) < size || o.Uint32(b) != magic {
		return r, false
	}
	return record{
		pid: int(o.Uint32(b[4:])), status: unix.WaitStatus(o.Uint32(b[8:]) & 0xffff),
		at: int64(o.Uint64(b[16:])), user: time.Duration(o.Uint64(b[24:])), system: time.Duration(o.Uint64(b[32:])), rss: int64(o.Uint64(b[40:])),
	}, true
}

// FromStatus turns a wait status into an exit without cause and time.
func FromStatus(ws unix.WaitStatus) *process.Exit {
	if ws.Signaled() {
		return &process.Exit{Signal: int(ws.Signal()), CoreDumped: ws.CoreDump()}
	}
	return &process.Exit{Code: ws.ExitStatus()}
}

// Reap collects the children that have exited, and records those that mine does
// not claim. The record is written before the child is reaped: a role that dies
// in between leaves the status to the next parent.
func Reap(path string, mine func(pid int, status unix.WaitStatus) bool, failed func(error)) {
	for {
		var info unix.Siginfo
		var usage unix.Rusage
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, &usage)
		if err == unix.EINTR {
			continue
		}
		pid := pidOf(&info)
		if err != nil || pid <= 0 {
			return
		}
		// What has made this role its tracer is reported when it stops, too. The Wait4 takes that.
		if ended := info.Code <= cldDumped; ended && !mine(pid, StatusOf(&info)) {
			if err := Append(path, pid, StatusOf(&info), &usage); err != nil {
				failed(err)
			}
			failpoint.Hit(failpoint.OrphanRecorded)
		}
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

// Codes of an end in a siginfo_t; between them is CLD_KILLED, and above are stops.
const (
	cldExited = 1
	cldDumped = 3
)

// pidOf and StatusOf read a siginfo_t of SIGCHLD (offsets on 64-bit Linux).
func pidOf(info *unix.Siginfo) int { return int(int32(word(info, 16))) }

// StatusOf is the wait status as wait4(2) gives it.
func StatusOf(info *unix.Siginfo) unix.WaitStatus {
	status := word(info, 24)
	switch info.Code {
	case cldExited:
		return unix.WaitStatus(status & 0xff << 8)
	case cldDumped:
		return unix.WaitStatus(status&0x7f | 0x80)
	}
	return unix.WaitStatus(status & 0x7f)
}

func word(info *unix.Siginfo, at uintptr) uint32 {
	return *(*uint32)(unsafe.Add(unsafe.Pointer(info), at))
}
