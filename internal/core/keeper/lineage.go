//go:build linux

package keeper

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/pidfd"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// lineage lists the subreapers above us, nearest first. complete: there are no others.
type lineage struct {
	mu       sync.Mutex
	of       int // our parent when it was looked up; 0: look again; guarded by mu
	above    []subreaper
	complete bool
	buf      []byte       // of read; guarded by mu
	server   atomic.Int64 // the server that has the mark of roles; 0: none is known
}

// subreaper is one of them. The list of its children stays open: it is read at
// each exit, and opening it would cost six times as much. Of one that is over the
// list is empty, so pidfd must be asked afterwards.
type subreaper struct {
	pid      int
	pidfd    int
	children int // -1: could not be opened
}

// seesAll reports whether the subreapers that are known are all there are.
func (k *Keeper) seesAll() bool {
	l := &k.line
	l.mu.Lock()
	defer l.mu.Unlock()
	k.lookUp(l)
	return l.complete
}

// lookUp finds the subreapers, unless they are known. l.mu is held.
func (k *Keeper) lookUp(l *lineage) {
	first := unix.Getppid()
	if l.of == first && l.complete { // else it may be that there was no descriptor to look with
		return
	}
	l.forget()
	l.of, l.complete = first, k.isRole(first, "anchor")
	l.add(first)
	switch up := k.parentOf(first); {
	case k.isRole(first, "launcher"):
		l.complete = true
	case l.complete && k.isRole(up, "launcher"):
		l.add(up)
	case !l.complete: // somebody else's children
		l.forget()
	}
	for i := range l.above {
		k.markRole(l.above[i].pid)
	}
}

func (l *lineage) add(pid int) {
	s := subreaper{pid: pid, pidfd: -1, children: -1}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		s.pidfd = fd
		// The kernel gives orphans to the first thread.
		if s.children, err = unix.Open(childrenOf(pid), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			s.children = -1
		}
	}
	l.above = append(l.above, s)
}

func (l *lineage) forget() {
	for i := range l.above {
		closeFD(&l.above[i].pidfd)
		closeFD(&l.above[i].children)
	}
	l.above, l.of, l.complete = l.above[:0], 0, false
}

func childrenOf(pid int) string {
	return procfs.Path(pid, "task/"+strconv.Itoa(pid)+"/children")
}

// fallen lists the children of the subreapers, except the roles above us and ourselves.
// complete: there are no others.
func (k *Keeper) fallen() (pids []int, complete bool) {
	l := &k.line
	l.mu.Lock()
	defer l.mu.Unlock()
	self := os.Getpid()
	for {
		k.lookUp(l)
		pids, complete = pids[:0], l.complete
		for i := range l.above { // nearest first: what one leaves falls to the next
			text, err := l.read(k, &l.above[i])
			complete = complete && err == nil
			for f := range bytes.FieldsSeq(text) {
				if pid, err := strconv.Atoi(string(f)); err == nil && pid != self && pid != l.above[0].pid {
					pids = append(pids, pid)
				}
			}
		}
		switch {
		case !l.over():
			return pids, complete
		case l.of == unix.Getppid(): // the launcher: what had fallen to it is not seen any more
			return pids, false
		}
	}
}

// read returns the list of children of a subreaper, valid until the next read.
func (l *lineage) read(k *Keeper, s *subreaper) ([]byte, error) {
	if s.children < 0 {
		return k.lastFile.read(childrenOf(s.pid))
	}
	if l.buf == nil {
		l.buf = make([]byte, 4096)
	}
	for n := 0; ; {
		m, err := unix.Pread(s.children, l.buf[n:], int64(n))
		if m <= 0 || err != nil {
			return l.buf[:n], err
		}
		if n += m; n == len(l.buf) {
			l.buf = append(l.buf, make([]byte, n)...)
		}
	}
}

// over reports whether one of them has ended.
func (l *lineage) over() bool {
	for i := range l.above {
		if fd := l.above[i].pidfd; fd >= 0 && pidfd.Ended(fd, 0) {
			return true
		}
	}
	return false
}

// isRole reports whether a process is this daemon's anchor or launcher.
func (k *Keeper) isRole(pid int, role string) bool {
	argv, err := k.lastFile.read(procfs.Path(pid, "cmdline"))
	return err == nil && strings.Contains(string(argv), "\x00"+role+"\x00--state-dir\x00"+k.cfg.StateDir+"\x00")
}

func (k *Keeper) parentOf(pid int) int {
	b, err := k.lastFile.read(procfs.Path(pid, "stat"))
	if err != nil {
		return 0
	}
	stat, _ := procfs.ParseStat(b)
	return stat.PPID
}
