//go:build linux

// Package orphan is the file through which a role that reaped somebody else's
// process tells its exit status.
//
// When a keeper dies, its processes become children of the nearest subreaper:
// the anchor or the launcher. Only they can collect the exit statuses then;
// they append them here, and the next keeper, which learns of the exit from
// the pidfd, looks them up.
//
// # Format
//
// 48-byte records in native byte order, appended by one write each:
//
//	0   u32  magic 0x0f09a001
//	4   u32  pid
//	8   i32  wait status as of wait4(2)
//	16  i64  time of the reaping, unix ns
//	24  i64  user time, ns
//	32  i64  system time, ns
//	40  i64  max rss, bytes
package orphan

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

const (
	magic    = 0x0f09a001
	size     = 48
	maxBytes = 1 << 20 // the file starts anew beyond
)

// Append records the status of a reaped process in the file.
func Append(path string, pid int, status unix.WaitStatus, usage *unix.Rusage) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() > maxBytes {
		f.Truncate(0)
	}
	var b [size]byte
	o := binary.NativeEndian
	o.PutUint32(b[0:], magic)
	o.PutUint32(b[4:], uint32(pid))
	o.PutUint32(b[8:], uint32(status))
	o.PutUint64(b[16:], uint64(time.Now().UnixNano()))
	o.PutUint64(b[24:], uint64(usage.Utime.Nano()))
	o.PutUint64(b[32:], uint64(usage.Stime.Nano()))
	o.PutUint64(b[40:], uint64(usage.Maxrss<<10))
	_, err = f.Write(b[:])
	return err
}

// Find returns the exit of the process with this pid that was reaped after
// started, or nil. The newest record counts: pids are used again.
func Find(path string, pid int, started time.Time) *process.Exit {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	o := binary.NativeEndian
	for at := len(b)/size*size - size; at >= 0; at -= size {
		r := b[at : at+size]
		if o.Uint32(r) != magic || int(o.Uint32(r[4:])) != pid || int64(o.Uint64(r[16:])) < started.UnixNano() {
			continue
		}
		e := FromStatus(unix.WaitStatus(o.Uint32(r[8:])))
		e.UserTime, e.SystemTime = time.Duration(o.Uint64(r[24:])), time.Duration(o.Uint64(r[32:]))
		e.MaxRSS = int64(o.Uint64(r[40:]))
		return e
	}
	return nil
}

// FromStatus turns a wait status into an exit without cause and time.
func FromStatus(ws unix.WaitStatus) *process.Exit {
	if ws.Signaled() {
		return &process.Exit{Signal: int(ws.Signal()), CoreDumped: ws.CoreDump()}
	}
	return &process.Exit{Code: ws.ExitStatus()}
}

// Reap collects children until none is left or, without block, until none has
// exited, and records those that mine does not claim. It returns when there is
// nothing more to collect.
func Reap(path string, block bool, mine func(pid int, status unix.WaitStatus) bool, failed func(error)) {
	flags := unix.WNOHANG
	if block {
		flags = 0
	}
	for {
		var ws unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &ws, flags, &usage)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if mine(pid, ws) {
			continue
		}
		if err := Append(path, pid, ws, &usage); err != nil {
			failed(err)
		}
	}
}
