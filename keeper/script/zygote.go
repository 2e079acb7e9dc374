//go:build linux && (amd64 || arm64)

package script

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/eintr"
	"github.com/tend-run/tend/internal/procfs"
	"github.com/tend-run/tend/internal/seccomp"
	"github.com/tend-run/tend/keeper/memory"
	"github.com/tend-run/tend/keeper/tiny"
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
	return tiny.Program(slices.Clone(code))
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
	for _, at := range []*uint32{p.PIDAt, p.FailedAt, p.Enter.Inner} {
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

// End ends the process, if there is one, and returns when it is collected or, while starts
// are under way, before. All begins anew then: the next start but one makes another.
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
	if z.running == nil || z.running.dead() {
		return 0
	}
	return z.running.pid
}

// close collects the process, which was killed.
func (r *running) close() {
	collect(r.pid)
	unix.Close(r.pidfd)
	unix.Close(r.socket)
	unix.Munmap(r.mem)
}

func (r *running) dead() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// make makes the process, which has gone its way when make returns.
func (z *Zygote) make(s *Starter, e *Enter) (_ *running, err error) {
	r := &running{pid: 0, pidfd: -1, socket: -1, scripts: make(chan *script, max(1, cap(s.places.free)))}
	defer func() {
		if err == nil {
			return
		}
		if r.pid != 0 {
			unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
			collect(r.pid)
		}
		closeAll(r.pidfd, r.socket)
		if r.mem != nil {
			unix.Munmap(r.mem)
		}
	}()
	program, err := tiny.File("tend-zygote", zygoteProgram())
	if err != nil {
		return nil, err
	}
	defer unix.Close(program)
	mem, err := r.share()
	if err != nil {
		return nil, err
	}
	defer unix.Close(mem)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	r.socket = pair[0]
	group, err := z.Group()
	if err == nil {
		_, shared := z.Shared()
		err = r.fork(s, []int{pair[1], mem, shared}, program, group)
		closeAll(group)
	}
	unix.Close(pair[1]) // so it is closed when the process ends
	if err != nil {
		return nil, err
	}
	return r, z.settle(r, s, e)
}

// share makes the memory of starts.
func (r *running) share() (fd int, err error) {
	size := headSize + cap(r.scripts)*usual
	if fd, err = memory.Create("tend-zygote", 0); err != nil {
		return -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		memory.Seal(fd, memory.FixedSize)
		r.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	shift := memoryAt - address(r.mem)
	h := (*head)(unsafe.Pointer(&r.mem[0]))
	h.message.iov, h.message.iovs = uintptr(unsafe.Pointer(&h.iov))+shift, 1
	h.message.control = uintptr(unsafe.Pointer(&h.control)) + shift
	h.iov.at, h.iov.length = uintptr(unsafe.Pointer(&h.order))+shift, unsafe.Sizeof(h.order)
	for i := range cap(r.scripts) {
		m := r.mem[headSize+i*usual:][:usual:usual]
		r.scripts <- &script{mem: m, page: (*page)(unsafe.Pointer(&m[0])), shift: shift}
	}
	return fd, nil
}

// fork makes the process, with these as its descriptors 0, 1 and 2.
func (r *running) fork(s *Starter, files []int, program, group int) error {
	sc, err := s.take(usual)
	if err != nil {
		return err
	}
	defer s.give(sc)
	sc.call(unix.SYS_SETSID)
	for i, fd := range files {
		if fd < len(files) {
			return unix.EBADF
		}
		sc.call(unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	sc.call(unix.SYS_EXECVEAT, uintptr(program), sc.text(""), sc.list([]string{"tend-zygote"}), sc.list(nil), unix.AT_EMPTY_PATH)
	pid, err := sc.run(unix.CLONE_PIDFD, unix.SIGCHLD, group)
	if err != nil {
		return err
	}
	r.pid, r.pidfd, r.mask = pid, int(sc.page.pidfd), sc.page.mask
	if f := sc.failure(); f != nil {
		return f
	}
	return nil
}

// settleWait bounds how long a zygote takes for its way into the sandbox.
const settleWait = 10 * time.Second

// settle has the process go into the sandbox, and give up what programs there have not.
func (z *Zygote) settle(r *running, s *Starter, e *Enter) error {
	var tasks []int
	if e.Tasks != nil {
		var err error
		if tasks, err = e.Tasks(); err != nil {
			return err
		}
		defer closeAll(tasks...)
	}
	sent := append([]int{e.PID1}, tasks...)
	if e.Landlock > 0 {
		sent = append(sent, e.Landlock)
	}
	if len(sent) > mostSent {
		return unix.E2BIG
	}
	there := func(i int) int { return placeFiles + i } // its number for that
	own := *e
	if e.Landlock > 0 {
		own.Landlock = there(len(sent) - 1)
	}
	var key seccomp.Key
	random := make([]byte, 24)
	rand.Read(random) // never fails: crypto/rand ends the program instead
	for i := range key {
		key[i] = binary.LittleEndian.Uint32(random[4*i:])
	}
	for i := range r.key {
		r.key[i] = uintptr(key[2*i]) | uintptr(key[2*i+1])<<32
	}
	if len(e.Filter) > 0 {
		var err error
		if own.Filter, err = z.Filter(key); err != nil {
			return err
		}
	}
	sc := <-r.scripts
	defer func() { r.scripts <- sc }()
	sc.reset()
	sc.call(unix.SYS_DUP3, 0, 1, 0) // nothing but its socket
	sc.call(unix.SYS_DUP3, 0, 2, 0)
	if z.ResetOOM {
		sc.oomScore(0)
	}
	joined := make([]int, len(tasks))
	for i := range tasks {
		joined[i] = there(1 + i)
	}
	sc.join(joined)
	sc.call(unix.SYS_SETNS, uintptr(there(0)), uintptr(e.Flags))
	sc.restrict(&own)
	sc.harden(&own, s.inside().caps)
	sc.call(unix.SYS_PRCTL, unix.PR_SET_NAME, sc.text("tend-zygote"), 0, 0, 0)
	sc.call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	sc.call(unix.SYS_SENDTO, 0, sc.text("x"), 1, unix.MSG_NOSIGNAL, 0, 0).flags = last
	limit := unix.NsecToTimeval(settleWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(r.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	if err := r.send(sc, sent, 0); err != nil {
		return err
	}
	var b [1]byte
	n, err := eintr.Get(func() (int, error) { return unix.Read(r.socket, b[:]) })
	if f := sc.failure(); f != nil {
		return f
	}
	if err == nil && n == 0 {
		err = unix.ESRCH
	}
	return err
}

// send sends an order. args is where the arguments of clone3 are; 0: there are none.
func (r *running) send(sc *script, fds []int, args uintptr) error {
	o := &sc.page.order
	*o = order{calls: sc.at(unsafe.Pointer(&sc.page.calls)), outcome: sc.at(unsafe.Pointer(&sc.page.outcome)), args: args, unborn: 1}
	if args != 0 {
		o.key = r.key
	}
	at := binary.NativeEndian.AppendUint64(nil, uint64(sc.at(unsafe.Pointer(o))))
	rights := unix.UnixRights(fds...)
	return eintr.Do(func() error { return unix.Sendmsg(r.socket, at, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) })
}

// byZygote is Start by a zygote, or errOtherWay.
func (s *Starter) byZygote(p *Program, files []int) (pid, pidfd int, err error) {
	z := p.Enter.Zygote
	if z == nil || !z.suits(p) {
		return 0, -1, errOtherWay
	}
	if cap(s.places.free) > 0 { // as many at once as the other way
		pl := s.places.take()
		if pl == nil {
			return 0, -1, errOtherWay
		}
		defer func() { s.places.free <- pl }()
	}
	r := z.hold(s, p.Enter)
	if r == nil {
		return 0, -1, errOtherWay
	}
	defer z.letGo(r)
	var sc *script
	select {
	case sc = <-r.scripts:
	default:
		return 0, -1, errOtherWay
	}
	defer func() {
		sc.program = nil
		r.scripts <- sc
	}()
	sc.reset()
	sc.program = p
	sc.page.mask = r.mask
	at := p.PIDAt
	if at == nil {
		at = &sc.page.pid
	}
	// There is no descriptor of it yet, and what runs already cannot be taken back.
	room, err := unix.FcntlInt(uintptr(files[0]), unix.F_DUPFD_CLOEXEC, placeFiles)
	if err != nil {
		return 0, -1, err
	}
	sc.born(z, p, at, s.limitOfFiles(p))
	was := atomic.LoadUint32(at)
	err = r.send(sc, append(files[:placeFiles:placeFiles], p.Group), sc.at(unsafe.Pointer(&sc.page.clone)))
	if err == nil {
		err = z.await(r, sc, at, was)
	} else {
		if err == unix.EPIPE || err == unix.ECONNRESET { // it was killed
			z.drop(r)
		}
		err = errOtherWay
	}
	unix.Close(room)
	if err != nil {
		if _, failed := errors.AsType[*Failure](err); failed && p.FailedAt != nil {
			atomic.StoreUint32(p.FailedAt, 1)
		}
		return 0, -1, err
	}
	pid = int(atomic.LoadUint32(at))
	pidfd, err = pidfdOf(pid)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
		collect(pid)
		// No want of descriptors, for which a start is tried again: the program has run.
		return 0, -1, &Failure{Step: StepFiles, Errno: unix.EAGAIN}
	}
	return pid, pidfd, nil
}

// born writes the list of a zygote's child: what the zygote has not done for it.
func (s *script) born(z *Zygote, p *Program, at *uint32, nofile *unix.Rlimit) {
	where := func(p *uint32) uintptr {
		if there := z.shared(p); there != 0 {
			return there
		}
		return s.at(unsafe.Pointer(p))
	}
	inner := s.call(unix.SYS_GETPID)
	if p.Enter.Inner != nil {
		inner.to, inner.flags = where(p.Enter.Inner), narrow
	}
	s.become(p, []int{placeFiles, placeFiles + 1, placeFiles + 2}, nofile)
	if p.FailedAt != nil {
		s.page.outcome.note = where(p.FailedAt)
	}
	s.page.clone = cloneArgs{
		flags:     unix.CLONE_VM | unix.CLONE_PARENT | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID | unix.CLONE_INTO_CGROUP,
		childTID:  uint64(s.at(unsafe.Pointer(&s.page.order.unborn))),
		parentTID: uint64(where(at)),
		cgroup:    placeFiles + 3,
	}
}

// look is how often a start looks whether its zygote lives.
const look = 20 * time.Millisecond

// await waits until the child has executed its program, or has ended: of the latter it
// returns the reason, if the child knew one, and has collected it. errOtherWay: no program
// was executed, and none will be.
func (z *Zygote) await(r *running, sc *script, at *uint32, was uint32) error {
	unborn := &sc.page.order.unborn
	slow := false
	for end := time.Now().Add(enterWait); atomic.LoadUint32(unborn) != 0; {
		wait := unix.NsecToTimespec(look.Nanoseconds())
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(unborn)), futexWait, 1, uintptr(unsafe.Pointer(&wait)), 0, 0)
		if atomic.LoadUint32(unborn) == 0 {
			break
		}
		if r.dead() { // then the kernel tells nobody of the child
			if err := bury(at, was, end); err != nil {
				z.drop(r)
				return err
			}
			break
		}
		if !time.Now().Before(end) {
			slow = true
			if now := atomic.LoadUint32(at); now != was {
				unix.Kill(int(now), unix.SIGKILL)
			} else {
				unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
			}
		}
	}
	if errno := unix.Errno(sc.page.order.errno); errno != 0 {
		if errno == unix.ENOENT {
			// The group is not below those that the sandbox sees, which the kernel takes
			// for a border: a sandbox that was made by a former version.
			z.forget(r)
			return errOtherWay
		}
		return &Failure{Step: StepEnter, Errno: errno}
	}
	pid := int(atomic.LoadUint32(at))
	if f := sc.failure(); f != nil {
		collect(pid)
		return f
	}
	if slow {
		unix.Kill(pid, unix.SIGKILL)
		collect(pid)
		return ErrSlow
	}
	return nil
}

const futexWait = 0 // FUTEX_WAIT

// forget makes no zygote any more.
func (z *Zygote) forget(r *running) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dropHeld(r)
	z.skip = math.MaxInt
}

// bury finds out what became of a child whose zygote was killed: nil, it has executed its
// program. It kills one that has not by the end.
func bury(at *uint32, was uint32, end time.Time) error {
	now := atomic.LoadUint32(at)
	if now == was {
		return errOtherWay
	}
	pid := int(now)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		stat, ok := procfs.ReadStat(pid)
		if ok && !stat.NoExec {
			return nil
		}
		if !ok || stat.Dead() {
			collect(pid)
			atomic.StoreUint32(at, was)
			return errOtherWay
		}
		if !time.Now().Before(end) {
			unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(pause)
	}
}

// pidfdWait bounds how long a start waits for a descriptor: others under way give theirs back.
const pidfdWait = time.Second

// pidfdOf opens a child of this process that nobody else collects.
func pidfdOf(pid int) (int, error) {
	for end := time.Now().Add(pidfdWait); ; time.Sleep(time.Millisecond) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil || err == unix.ESRCH || !time.Now().Before(end) {
			return fd, err
		}
	}
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
