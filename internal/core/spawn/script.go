//go:build linux && (amd64 || arm64)

package spawn

import (
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is one system call of a child. The assembly knows this layout.
type call struct {
	nr    uintptr
	args  [6]uintptr
	flags uintptr // may, forks, narrow and last
	errno uintptr // of a failure, which ends the child
	to    uintptr // where the result goes; 0: nowhere
}

// Flags of a call.
const (
	may    = 1 // its failure does not matter
	forks  = 2 // it makes a child, which continues; its caller ends
	narrow = 4 // only the lower half of the result goes somewhere
	last   = 8 // of those that a zygote makes itself
)

// outcome is what becomes of a child. The assembly knows this layout.
type outcome struct {
	failed uintptr // the call that ended it
	note   uintptr // of a uint32 that becomes 1 then
}

// cloneArgs is struct clone_args up to Linux 5.7.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// page is what parent, child and kernel share; the strings are behind it.
type page struct {
	first   call // clone
	clone   cloneArgs
	outcome outcome
	order   order  // to a zygote
	noted   uint32 // where outcome.note leads if nobody else wants it
	pid     uint32 // and the pids
	session uint32
	inner   uint32
	digits  Digits
	pidfd   int32
	mask    uint64 // of the signals that the program has blocked
	nofile  unix.Rlimit
	action  [4]uint64 // struct sigaction of the kernel: SIG_DFL
	limits  [maxLimits]unix.Rlimit
	raises  [maxLimits]unix.Rlimit
	calls   [maxCalls]call
	steps   [maxCalls]step // of calls

	program cloneArgs // by the stub

	// Of a program inside a sandbox.
	next      cloneArgs // by the first child: the stub, or the program
	core      unix.Rlimit
	filter    struct{ length, at uintptr } // struct sock_fprog
	capHeader unix.CapUserHeader
	caps      [2]unix.CapUserData
}

// step says what a call is for.
type step struct {
	Step
	limit uint8 // of StepLimit
}

const (
	maxLimits = 32                               // of one program; the kernel knows 16
	maxTasks  = 16                               // files; the kernel has as many hierarchies
	maxCalls  = 2*maxLimits + maxTasks + 64 + 32 // 64: capabilities, or signals
)

// arena is memory for the calls of a child, outside of Go's heap.
type arena struct {
	mem   []byte
	used  int
	shift uintptr // from where it lies here to where it lies for the child
}

func newArena(size, kind int) (arena, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, kind|unix.MAP_ANON)
	return arena{mem: mem}, err
}

func (a *arena) free() { unix.Munmap(a.mem) }

// room takes n bytes, aligned for pointers.
func (a *arena) room(n int) []byte {
	at := (a.used + 7) &^ 7
	a.used = at + n
	return a.mem[at:a.used:a.used]
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// at is where the child has what is in this memory.
func (a *arena) at(p unsafe.Pointer) uintptr { return uintptr(p) + a.shift }

func (a *arena) address(b []byte) uintptr { return address(b) + a.shift }

func (a *arena) text(v string) uintptr {
	b := a.mem[a.used : a.used+len(v)+1]
	a.used += len(b)
	b[copy(b, v)] = 0
	return a.address(b)
}

// texts is an array of strings that ends with a null pointer, as argv is.
func (a *arena) texts(vs []string) uintptr {
	b := a.room(8 * (len(vs) + 1))
	at := unsafe.Slice((*uintptr)(unsafe.Pointer(&b[0])), len(vs)+1)
	for i, v := range vs {
		at[i] = a.text(v)
	}
	at[len(vs)] = 0
	return a.address(b)
}

// script is a page with its strings, outside Go's heap: the child's pointers are
// none that the garbage collector sees.
type script struct {
	arena
	page *page
	way  way
	// program is held for the time of its start: what the kernel writes to and reads of it
	// is not on a stack then, which would move.
	program *Program
	n       int  // calls
	step    step // what they are for
}

// usual is the size of the scripts that are kept.
const usual = 64 << 10

func newScript(size int) (*script, error) {
	a, err := newArena(size, unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	return &script{arena: a, page: (*page)(unsafe.Pointer(&a.mem[0]))}, nil
}

// reset begins a new script.
func (s *script) reset() {
	p := s.page
	p.outcome, p.noted, p.pid, p.pidfd, p.clone = outcome{note: s.at(unsafe.Pointer(&p.noted))}, 0, 0, -1, cloneArgs{}
	s.used, s.n, s.step = int(unsafe.Sizeof(page{})), 0, step{}
}

// sizeOf is how much a program takes.
func sizeOf(p *Program) int {
	n := int(unsafe.Sizeof(page{})) + len(p.Path) + len(p.Dir) + 128
	for _, list := range [][]string{p.Argv, p.Env} {
		n += 8*len(list) + 16
		for _, s := range list {
			n += len(s) + 1
		}
	}
	if p.User != nil {
		n += 4*len(p.User.Groups) + 8
	}
	if p.Enter != nil {
		n += 8*len(p.Enter.Filter) + 8
	}
	return n
}

func (s *script) numbers(vs []uint32) uintptr {
	if len(vs) == 0 {
		return 0
	}
	b := s.room(4 * len(vs))
	copy(unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(vs)), vs)
	return s.address(b)
}

// call appends a system call.
func (s *script) call(nr uintptr, args ...uintptr) *call {
	c := &s.page.calls[s.n]
	s.page.steps[s.n] = s.step
	s.n++
	*c = call{nr: nr}
	copy(c.args[:], args)
	return c
}

// limit appends what sets a limit of resources.
func (s *script) limit(resource int, to *unix.Rlimit) *call {
	return s.call(unix.SYS_PRLIMIT64, 0, uintptr(resource), s.at(unsafe.Pointer(to)), 0)
}

// failure is why the child did not come to its program; nil: nothing has failed.
func (s *script) failure() *Failure {
	p := s.page
	if p.outcome.failed == 0 {
		return nil
	}
	i := (p.outcome.failed - s.at(unsafe.Pointer(&p.calls))) / unsafe.Sizeof(call{})
	return &Failure{Step: p.steps[i].Step, Limit: int(p.steps[i].limit), Errno: syscall.Errno(p.calls[i].errno)}
}

// hasNull: no such string can be handed to the kernel.
func hasNull(p *Program) bool {
	null := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	for _, list := range [][]string{{p.Path, p.Dir}, p.Argv, p.Env} {
		for _, s := range list {
			if null(s) {
				return true
			}
		}
	}
	return false
}
