//go:build linux && (amd64 || arm64)

package spawn

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/microelf"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/pidfd"
)

// A zygote is a process that has gone the way into a sandbox as the first child of a start
// does, and stays: it is in the namespaces and the v1 groups, and has the filter and no
// capability that may not come back. What it makes is born so. It is no child of a start,
// and shares no memory with this process but what is for starts; its program, some hundred
// bytes, is in zygote_GOARCH.s:
//
//   - It maps the memory of starts, and that in which pids are written down.
//   - It waits for a message: the address of an order, and descriptors, which become 3 and
//     up. It ends when the other end of its socket is closed, whoever closed it.
//   - With the arguments of a clone3(2) it makes a child of this process's, which makes the
//     calls of the order. Without, it makes the calls itself.
//   - It closes the descriptors, and waits again.
//
// It does not wait for its children. They leave its memory when they execute their programs
// or end, and then the kernel tells this process (CLONE_CHILD_CLEARTID).
//
// It stays in the pid namespace outside: nobody inside sees it. Who is inside sees its
// children before they execute, and may look into none: they are not dumpable, and the
// memory is of a program that was executed in the user namespace outside.

// Where a zygote has its memory. The assembly knows these.
const (
	memoryAt = 0x10000000 // the head, and a script for each start at a time
	sharedAt = 0x20000000 // Zygote.Shared
	span     = 0x1000000  // room for each
)

// order is what a message leads to. The assembly knows this layout.
type order struct {
	calls, outcome uintptr
	args           uintptr    // of clone3; 0: the zygote makes the calls itself
	key            [3]uintptr // what lets the clone3 through the filter
	unborn         uint32     // becomes 0, with a FUTEX_WAKE, once the child shares the memory no more
	errno          uint32     // of clone3
}

// head is at the beginning of the memory. The assembly knows this layout.
type head struct {
	message struct {
		name, nameLength, iov, iovs, control, controlLength, flags uintptr
	}
	order   uintptr // what is received
	iov     struct{ at, length uintptr }
	control [64]byte
}

const (
	headSize = 4096
	mostSent = (64 - unix.SizeofCmsghdr) / 4 // descriptors of one message
)

// zygoteAt is where the text of zygote lies, which nobody here calls.
func zygoteAt() uintptr

func zygote()

var _ = zygote

// zygoteProgram is the ELF file.
var zygoteProgram = sync.OnceValue(func() []byte {
	at := zygoteAt()
	text := unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), 1024)
	code, _, _ := bytes.Cut(text, []byte("gote-end"))
	return microelf.Program(slices.Clone(code))
})

// running is what a Zygote has while it runs.
type running struct {
	pid, pidfd, socket int
	mem                []byte
	scripts            chan *script // at rest
	key                [3]uintptr
	mask               uint64 // of signals, that programs have

	users int         // starts under way; guarded by Zygote.mu
	over  bool        // it serves nobody any more; guarded by Zygote.mu
	used  time.Time   // by the newest start; guarded by Zygote.mu
	idle  *time.Timer // ends it when nobody has used it for long
}

// state of a Zygote, which may be used by several at once.
type state struct {
	mu      sync.Mutex
	running *running      // nil: there is none; guarded by mu
	asked   int           // starts so far; guarded by mu
	served  int           // those that a zygote made; guarded by mu
	rest    time.Duration // if not mostIdle; guarded by mu
	skip    int           // so many starts do not try to make it; guarded by mu
}

// lonely starts go without a zygote: in many sandboxes there is only one, which would wait
// for it longer than it saves.
const lonely = 1

// mostIdle is how long a zygote waits for another start: it takes some 120 KiB.
const mostIdle = time.Minute

// mostSkipped starts do not try again to make a zygote that could not be made.
const mostSkipped = 100

// errOtherWay: the start takes two children.
var errOtherWay = errors.New("not by a zygote")

// suits reports whether a zygote can make the program: it has none of the parent's rights
// outside, and gives what all starts in the sandbox have in common.
func (z *Zygote) suits(p *Program) bool {
	if p.Enter.OneID || p.Group < 0 || len(p.Files) != placeFiles || len(p.Own) > 0 || len(p.Tasks) > 0 || p.Nice != 0 || sizeOf(p) > usual {
		return false
	}
	if p.OOM != nil != z.ResetOOM || p.OOM != nil && *p.OOM != 0 {
		return false
	}
	for _, l := range p.Limits {
		if _, above := raises(l); above {
			return false
		}
	}
	for _, at := range []*uint32{p.PIDAt, p.SessionAt, p.FailedAt, p.Enter.Inner, (*uint32)(unsafe.Pointer(p.Enter.Digits))} {
		if at != nil && z.shared(at) == 0 {
			return false
		}
	}
	return true
}

// shared is where a zygote has a word of Shared; 0: it is not in there.
func (z *Zygote) shared(p *uint32) uintptr {
	mem, _ := z.Shared()
	by := uintptr(unsafe.Pointer(p)) - address(mem)
	if by >= uintptr(len(mem)) {
		return 0
	}
	return sharedAt + by
}

// hold returns a zygote that runs, until letGo. nil: there is none.
func (z *Zygote) hold(s *Starter, e *Enter) *running {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.asked++; z.asked <= lonely {
		return nil
	}
	if z.running == nil {
		if z.skip > 0 {
			z.skip--
			return nil
		}
		r, err := z.make(s, e)
		if err != nil { // the other way tells what is wrong
			z.skip = mostSkipped
			return nil
		}
		z.running = r
		r.idle = time.AfterFunc(cmp.Or(z.rest, mostIdle), func() { z.expire(r) })
	}
	z.running.users++
	z.running.used = time.Now()
	z.served++
	return z.running
}

// expire ends r, unless it was used meanwhile. The next start makes another.
func (z *Zygote) expire(r *running) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if r.over {
		return
	}
	if left := cmp.Or(z.rest, mostIdle) - time.Since(r.used); r.users > 0 || left > 0 {
		r.idle.Reset(max(left, time.Second))
		return
	}
	z.dropHeld(r)
}

func (z *Zygote) letGo(r *running) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if r.users--; r.users == 0 && r.over {
		r.close()
	}
}

// drop has no start use r any more.
func (z *Zygote) drop(r *running) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropHeld(r)
}

// dropHeld is drop with z.mu held.
func (z *Zygote) dropHeld(r *running) {
	if z.running == r {
		z.running = nil
	}
	if r.over {
		return
	}
	r.over = true
	r.idle.Stop()
	unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
	if r.users == 0 {
		r.close()
	}
}

// End ends the process, if there is one. It returns when the process is collected, or
// earlier if starts are still running. After it, the second start creates a new process.
func (z *Zygote) End() {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.running != nil {
		z.dropHeld(z.running)
	}
	z.asked, z.skip = 0, 0
}

// PID of the process; 0: there is none.
func (z *Zygote) PID() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.running == nil || pidfd.Ended(z.running.pidfd, 0) {
		return 0
	}
	return z.running.pid
}

// close collects the process, which was killed.
func (r *running) close() {
	// By the pidfd: the number may be another's, if somebody has collected it already.
	_ = eintr.Do(func() error { return unix.Waitid(unix.P_PIDFD, r.pidfd, nil, unix.WEXITED|unix.WALL, nil) })
	unix.Close(r.pidfd)
	unix.Close(r.socket)
	unix.Munmap(r.mem)
}
