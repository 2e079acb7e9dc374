//go:build linux && (amd64 || arm64)

package spawn

import (
	"crypto/rand"
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/memfd"
	"github.com/tend-run/tend/internal/core/microelf"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/seccomp"
)

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
	program, err := microelf.File("tend-zygote", zygoteProgram())
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
	if fd, err = memfd.Create("tend-zygote", 0); err != nil {
		return -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		memfd.Seal(fd, memfd.FixedSize)
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
		r.scripts <- &script{arena: arena{mem: m, shift: shift}, page: (*page)(unsafe.Pointer(&m[0]))}
	}
	return fd, nil
}

// fork makes the process, with these as its descriptors 0, 1 and 2.
func (r *running) fork(s *Starter, files []int, program, group int) error {
	sc, err := s.emptyScript(usual)
	if err != nil {
		return err
	}
	defer s.give(sc)
	sc.call(unix.SYS_SETSID)
	sc.noCores()
	for i, fd := range files {
		if fd < len(files) {
			return unix.EBADF
		}
		sc.call(unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	sc.call(unix.SYS_EXECVEAT, uintptr(program), sc.text(""), sc.texts([]string{"tend-zygote"}), sc.texts(nil), unix.AT_EMPTY_PATH)
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
