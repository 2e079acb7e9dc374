//go:build linux && (amd64 || arm64)

package spawn

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// List is a list of the caller's system calls, for a child that is not a Program: the first
// process of a namespace. It is used once, by one goroutine, and closed.
//
//	l, err := spawn.NewList(calls, text)
//	l.Call("host name", unix.SYS_SETHOSTNAME, l.Text(name), uintptr(len(name)))
//	err = l.Run(group)
//
// The last call executes a program, or ends the child.
type List struct {
	arena
	head  *listHead
	calls []call // in mem
	what  []string
	// second is where the pid of the child's child will be; nil: there is none.
	second *uint32
	flags  uint64 // of the child's clone3(2)
}

// listHead is at the beginning of the memory, which the garbage collector does not see.
type listHead struct {
	first   call
	clone   cloneArgs
	outcome outcome
	noted   uint32
	mask    uint64
}

// ListError is the end of a child at one of its calls.
type ListError struct {
	What  string
	Errno syscall.Errno
}

func (e *ListError) Error() string { return e.What + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *ListError) Unwrap() error { return e.Errno }

// NewList returns an empty list with room for so many calls, and for so many bytes of
// texts.
func NewList(calls, text int) (*List, error) { return newList(calls, text, unix.CLONE_VM) }

// NewCopyList is NewList for a child with a copy of the parent's memory: changes, such as
// whether it is dumpable, affect only the child. Only the list is shared. It takes longer.
func NewCopyList(calls, text int) (*List, error) { return newList(calls, text, 0) }

// NewSharingList is NewList for a child that shares the parent's table of descriptors: it
// opens descriptors for the parent.
func NewSharingList(calls, text int) (*List, error) {
	return newList(calls, text, unix.CLONE_VM|unix.CLONE_FILES)
}

func newList(calls, text int, flags uint64) (*List, error) {
	head := int(unsafe.Sizeof(listHead{}))
	size := head + calls*int(unsafe.Sizeof(call{})) + text + calls*16
	kind := unix.MAP_PRIVATE
	if flags&unix.CLONE_VM == 0 {
		kind = unix.MAP_SHARED
	}
	a, err := newArena(size, kind)
	if err != nil {
		return nil, fmt.Errorf("a list of calls: %w", err)
	}
	l := &List{arena: a, head: (*listHead)(unsafe.Pointer(&a.mem[0])), flags: flags | unix.CLONE_VFORK | cloneClearSighand}
	l.calls = unsafe.Slice((*call)(unsafe.Pointer(&a.mem[head])), calls)
	l.used = head + calls*int(unsafe.Sizeof(call{}))
	return l, nil
}

// Close frees the memory.
func (l *List) Close() { l.free() }

// Call appends a system call. If it fails, the child ends, and Run returns the error with
// the given description.
func (l *List) Call(what string, nr uintptr, args ...uintptr) { l.add(what, nr, args) }

// Try appends a system call whose failure does not matter.
func (l *List) Try(nr uintptr, args ...uintptr) { l.add("", nr, args).flags = may }

func (l *List) add(what string, nr uintptr, args []uintptr) *call {
	c := &l.calls[len(l.what)]
	l.what = append(l.what, what)
	*c = call{nr: nr}
	copy(c.args[:], args)
	return c
}

// Result makes the result of the last call an argument of the next one.
func (l *List) Result(argument int) {
	next := len(l.what)
	l.calls[next-1].to = uintptr(unsafe.Pointer(&l.calls[next].args[argument]))
}

// Keep returns where the last call's result will be, until Close.
func (l *List) Keep() *uintptr {
	b := l.room(int(unsafe.Sizeof(uintptr(0))))
	at := (*uintptr)(unsafe.Pointer(&b[0]))
	l.calls[len(l.what)-1].to = uintptr(unsafe.Pointer(at))
	return at
}

// Fork appends the creation of another child of this process, with flags of clone3(2); the
// creating child then ends. pidAt receives the pid before the new child runs, in memory
// outside Go's heap; nil: in the list's own. group is the open cgroup v2 directory of the
// new child; -1: that of its creator.
func (l *List) Fork(what string, flags uint64, group int, pidAt *uint32) *uint32 {
	if pidAt == nil {
		pidAt = (*uint32)(unsafe.Pointer(&l.room(4)[0]))
	}
	size := int(unsafe.Sizeof(cloneArgs{}))
	b := l.room(size)
	args := (*cloneArgs)(unsafe.Pointer(&b[0]))
	args.flags = flags | unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PARENT | unix.CLONE_PARENT_SETTID
	args.parentTID, l.second = uint64(uintptr(unsafe.Pointer(pidAt))), pidAt
	args.into(group)
	l.add(what, unix.SYS_CLONE3, []uintptr{address(b), uintptr(size)}).flags = forks
	return pidAt
}

// Bytes copies a structure for the child.
func (l *List) Bytes(b []byte) uintptr {
	r := l.room(len(b))
	copy(r, b)
	return address(r)
}

// Text copies a string for the child.
func (l *List) Text(v string) uintptr { return l.text(v) }

// Texts copies an array of strings with a null pointer at the end, such as argv.
func (l *List) Texts(vs ...string) uintptr { return l.texts(vs) }

// Run makes the child, in an open cgroup v2 directory or, with -1, in the parent's. It
// returns when the child and those that Fork made have executed a program, or with a
// *ListError.
func (l *List) Run(group int) error {
	h := l.head
	h.clone = cloneArgs{flags: l.flags, exitSignal: uint64(unix.SIGCHLD)}
	h.outcome = outcome{note: uintptr(unsafe.Pointer(&h.noted))}
	h.clone.into(group)
	h.first = h.clone.new()
	pid, errno := child(&h.first, &l.calls[0], &h.outcome, &h.mask)
	if errno != 0 {
		return &ListError{"make a child", errno}
	}
	status, err := collect(pid)
	switch c := h.outcome.failed; {
	case c != 0:
		i := (c - uintptr(unsafe.Pointer(&l.calls[0]))) / unsafe.Sizeof(call{})
		return &ListError{l.what[i], syscall.Errno(l.calls[i].errno)}
	case err == nil && status == 0:
		return nil
	case err == nil:
		err = fmt.Errorf("a child ended with %#x", int(status))
	}
	if l.second != nil && *l.second != 0 { // it may be on its way still, and makes the calls of this list
		unix.Kill(int(*l.second), unix.SIGKILL)
		collect(int(*l.second))
		*l.second = 0
	}
	return err
}
