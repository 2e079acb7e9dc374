//go:build linux && (amd64 || arm64)

package script

import (
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is one system call of a child. The assembly knows this layout.
type call struct {
	nr    uintptr
	args  [6]uintptr
	may   uintptr // 1: its failure does not matter
	errno uintptr // of a failure, which ends the child
}

// cloneArgs is struct clone_args up to Linux 5.7.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// page is what parent, child and kernel share; the strings are behind it.
type page struct {
	clone  cloneArgs
	failed *call // the call that ended the child; into calls
	pidfd  int32
	mask   uint64 // of the signals that the program has blocked
	nofile unix.Rlimit
	limits [maxLimits]unix.Rlimit
	calls  [maxCalls]call
}

const (
	maxLimits = 32 // of one program; the kernel knows 16
	maxCalls  = maxLimits + 32
)

// script is a page with its strings, outside Go's heap: the child's pointers are
// none that the garbage collector sees.
type script struct {
	mem  []byte
	page *page
	used int
	n    int // calls
}

// usual is the size of the scripts that are kept.
const usual = 64 << 10

func newScript(size int) (*script, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	return &script{mem: mem, page: (*page)(unsafe.Pointer(&mem[0]))}, nil
}

func (s *script) free() { unix.Munmap(s.mem) }

// reset begins a new script.
func (s *script) reset() {
	s.page.failed, s.page.pidfd, s.page.clone = nil, -1, cloneArgs{}
	s.used, s.n = int(unsafe.Sizeof(page{})), 0
}

// sizeOf is how much a program takes.
func sizeOf(p *Program) int {
	n := int(unsafe.Sizeof(page{})) + len(p.Path) + len(p.Dir) + 64
	for _, list := range [][]string{p.Argv, p.Env} {
		n += 8*len(list) + 16
		for _, s := range list {
			n += len(s) + 1
		}
	}
	if p.User != nil {
		n += 4*len(p.User.Groups) + 8
	}
	return n
}

// room takes n bytes, aligned for pointers.
func (s *script) room(n int) []byte {
	at := (s.used + 7) &^ 7
	s.used = at + n
	return s.mem[at:s.used:s.used]
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (s *script) text(v string) uintptr {
	b := s.mem[s.used : s.used+len(v)+1]
	s.used += len(b)
	b[copy(b, v)] = 0
	return address(b)
}

// list is an array of strings that ends with a null pointer, as argv is.
func (s *script) list(vs []string) uintptr {
	b := s.room(8 * (len(vs) + 1))
	at := unsafe.Slice((*uintptr)(unsafe.Pointer(&b[0])), len(vs)+1)
	for i, v := range vs {
		at[i] = s.text(v)
	}
	at[len(vs)] = 0
	return address(b)
}

func (s *script) numbers(vs []uint32) uintptr {
	if len(vs) == 0 {
		return 0
	}
	b := s.room(4 * len(vs))
	copy(unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(vs)), vs)
	return address(b)
}

// call appends a system call.
func (s *script) call(nr uintptr, args ...uintptr) *call {
	c := &s.page.calls[s.n]
	s.n++
	*c = call{nr: nr}
	copy(c.args[:], args)
	return c
}

// try appends one whose failure does not matter.
func (s *script) try(nr uintptr, args ...uintptr) { s.call(nr, args...).may = 1 }

// limit appends what sets a limit of resources.
func (s *script) limit(resource int, to *unix.Rlimit) {
	s.try(unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(to)), 0)
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
