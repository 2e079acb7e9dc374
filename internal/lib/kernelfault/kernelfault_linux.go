package kernelfault

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/unixsock"
)

// Rule is for one system call.
type Rule struct {
	Call uintptr // unix.SYS_*
	// Arg and Value narrow it to calls whose argument number Arg (0 to 5) has
	// this low word. Arg -1: all calls.
	Arg   int
	Value uint32
	// Errno is the answer; 0: the test decides, see [Listener].
	Errno unix.Errno
}

// Mount is a change of what is mounted. Only root may make one.
type Mount struct {
	Kind MountKind
	Path string
}

// MountKind says what happens at the path.
type MountKind string

const (
	Gone     MountKind = "gone"      // what is mounted there is not, nor anything below
	ReadOnly MountKind = "read-only" // writing fails with EROFS
	Cgroup2  MountKind = "cgroup2"   // the cgroup v2 tree is mounted there
	Empty    MountKind = "empty"     // an empty directory covers it
)

// World is what is special about the machine.
type World struct {
	Rules  []Rule
	Mounts []Mount
}

// argument makes the test binary install a filter and execute the rest of its
// command line.
const argument = "kernelfault-exec"

// Main is to be called at the start of TestMain: it does not return in a
// process that [Command] started. environ is the program's environment.
func Main(environ []string) {
	if len(os.Args) < 4 || os.Args[1] != argument {
		return
	}
	err := execute(os.Args[2], os.Args[3:], environ)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Command is a command for argv in a world. If a rule has no Errno, the command
// is to be started by [Listen].
func Command(w World, argv ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	return exec.Command(self, append([]string{argument, string(text)}, argv...)...), nil
}

func execute(text string, argv, environ []string) error {
	var w World
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	runtime.LockOSThread() // filter and namespace are this thread's, and go with its exec
	if len(w.Mounts) > 0 {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
	}
	for _, m := range w.Mounts {
		if err := m.make(); err != nil {
			return fmt.Errorf("%s %s: %w", m.Kind, m.Path, err)
		}
	}
	if len(w.Rules) > 0 {
		if err := install(w.Rules); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	return fmt.Errorf("execute %s: %w", argv[0], unix.Exec(argv[0], argv, environ))
}

func (m *Mount) make() error {
	switch m.Kind {
	case Gone:
		return unix.Unmount(m.Path, unix.MNT_DETACH)
	case ReadOnly:
		if err := unix.Mount(m.Path, m.Path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		return unix.Mount("", m.Path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	case Cgroup2:
		return unix.Mount("cgroup2", m.Path, "cgroup2", 0, "")
	case Empty:
		return unix.Mount("tmpfs", m.Path, "tmpfs", 0, "")
	}
	return unix.EINVAL
}

// install puts the filter on the calling thread.
func install(rules []Rule) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	listen := false
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	skipUnless := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	const load, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
	var prog []unix.SockFilter
	for _, r := range rules {
		action := uint32(unix.SECCOMP_RET_ERRNO) | uint32(r.Errno)
		if r.Errno == 0 {
			action, listen = unix.SECCOMP_RET_USER_NOTIF, true
		}
		prog = append(prog, stmt(load, 0)) // seccomp_data.nr
		if r.Arg < 0 {
			prog = append(prog, skipUnless(uint32(r.Call), 1), stmt(ret, action))
			continue
		}
		prog = append(prog, skipUnless(uint32(r.Call), 3), stmt(load, uint32(16+8*r.Arg)), // the low word: little-endian
			skipUnless(r.Value, 1), stmt(ret, action))
	}
	prog = append(prog, stmt(ret, unix.SECCOMP_RET_ALLOW))
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	flags := uintptr(0)
	if listen {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return errno
	}
	if !listen {
		return nil
	}
	const socket = 3 // the first of ExtraFiles
	defer unix.Close(socket)
	defer unix.Close(int(fd))
	return unixsock.Send(socket, []byte{0}, []int{int(fd)}, 0)
}

// Listener sees the system calls of rules without an Errno. Each waits for
// Continue.
type Listener struct {
	fd    int
	wake  int // eventfd: Close was called
	loops sync.WaitGroup

	mu     sync.Mutex // held while a call is answered
	closed bool       // guarded by mu
}

// Call is one of them.
type Call struct {
	id   uint64
	Call uintptr
	PID  int // the thread's
	Args [6]uint64
}

// Listen makes a command of [Command] hand over its listener. After start, which
// starts it, the listener is there.
func Listen(cmd *exec.Cmd, start func() error) (*Listener, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	cmd.ExtraFiles = append([]*os.File{theirs}, cmd.ExtraFiles...)
	err = start()
	theirs.Close()
	if err != nil {
		return nil, err
	}
	_, fds, err := unixsock.Receive(pair[0], make([]byte, 1), unixsock.Control(1), 0)
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("the listener did not come: %v", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	return &Listener{fd: fds[0], wake: wake}, nil
}

// notification is struct seccomp_notif, and answer struct seccomp_notif_resp.
type notification struct {
	ID         uint64
	PID, Flags uint32
	Nr         int32
	Arch       uint32
	IP         uint64
	Args       [6]uint64
}

type answer struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

const (
	ioctlRecv    = 0xc0502100 // _IOWR('!', 0, struct seccomp_notif)
	ioctlSend    = 0xc0182101 // _IOWR('!', 1, struct seccomp_notif_resp)
	flagContinue = 1
)

// Each calls f with each call, one at a time, until nobody is under the filter any
// more, or Close is called. The call continues when f returns, unless f says that it is
// held: then f has answered it, or somebody will.
func (l *Listener) Each(f func(c *Call) (held bool)) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.loops.Add(1)
	}
	l.mu.Unlock()
	if closed {
		return
	}
	defer l.loops.Done()
	for {
		c, err := l.next()
		if err != nil {
			return
		}
		if !f(c) {
			l.Continue(c)
		}
	}
}

// next waits for a call. It fails when nobody is under the filter any more, and after
// Close.
func (l *Listener) next() (*Call, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(l.wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return nil, err
		}
		if fds[0].Revents&unix.POLLHUP != 0 || fds[1].Revents != 0 {
			return nil, os.ErrClosed
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			continue
		}
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), ioctlRecv, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
			return &Call{n.ID, uintptr(n.Nr), int(n.PID), n.Args}, nil
		case unix.EINTR, unix.ENOENT: // ENOENT: it was killed meanwhile
		default:
			return nil, errno
		}
	}
}

// Continue lets the kernel do what was asked.
func (l *Listener) Continue(c *Call) {
	a := answer{ID: c.id, Flags: flagContinue}
	l.answer(&a)
}

// Done answers that it was done: the test has written what the caller is told, by Write.
func (l *Listener) Done(c *Call) {
	l.answer(&answer{ID: c.id})
}

// Write writes to the caller's memory, at an argument that is an address.
func (c *Call) Write(arg int, data []byte) error {
	local := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	n, err := unix.ProcessVMWritev(c.PID, local, []unix.RemoteIovec{{Base: uintptr(c.Args[arg]), Len: len(data)}}, 0)
	if err == nil && n != len(data) {
		err = unix.EFAULT
	}
	return err
}

// Fail answers with an error.
func (l *Listener) Fail(c *Call, errno unix.Errno) {
	l.answer(&answer{ID: c.id, Error: -int32(errno)})
}

func (l *Listener) answer(a *answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	// Its only error is that the caller has died.
	unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), ioctlSend, uintptr(unsafe.Pointer(a)))
}

// File is the path behind an argument that is a descriptor.
func (c *Call) File(arg int) string {
	path, err := os.Readlink("/proc/" + strconv.Itoa(c.PID) + "/fd/" + strconv.Itoa(int(int32(c.Args[arg]))))
	if err != nil {
		return err.Error()
	}
	return path
}

// Path is an argument that is the address of a path.
func (c *Call) Path(arg int) string {
	mem, err := os.Open("/proc/" + strconv.Itoa(c.PID) + "/mem")
	if err != nil {
		return err.Error()
	}
	defer mem.Close()
	b := make([]byte, unix.PathMax)
	n, err := mem.ReadAt(b, int64(c.Args[arg]))
	if n == 0 {
		return err.Error()
	}
	return unix.ByteSliceToString(b[:n])
}

// Close lets all calls fail with ENOSYS from now on. It returns when Each has: a loop
// that went on would take the calls of the next listener with the same descriptor.
func (l *Listener) Close() {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if was {
		return
	}
	one := [8]byte{1}
	unix.Write(l.wake, one[:])
	l.loops.Wait()
	unix.Close(l.wake)
	unix.Close(l.fd)
}
