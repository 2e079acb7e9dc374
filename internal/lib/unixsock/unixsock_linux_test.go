package unixsock

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// kinds of sockets that carry messages.
var kinds = map[string]int{"stream": unix.SOCK_STREAM, "seqpacket": unix.SOCK_SEQPACKET, "datagram": unix.SOCK_DGRAM}

func pair(t *testing.T, kind int) (near, far int) {
	t.Helper()
	fds := proctest.Value(unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { Close(fds[:]) })
	return fds[0], fds[1]
}

// given calls send with n copies of a descriptor, closes them, and returns what reports
// whether somebody still has one.
func given(t *testing.T, n int, send func(fds []int)) (held func() bool) {
	t.Helper()
	p := make([]int, 2)
	proctest.Must(t, unix.Pipe2(p, unix.O_CLOEXEC|unix.O_NONBLOCK))
	t.Cleanup(func() { unix.Close(p[0]) })
	send(slices.Repeat(p[1:], n))
	unix.Close(p[1])
	return func() bool {
		_, err := unix.Read(p[0], make([]byte, 1)) // the end comes when nobody has one
		return err == unix.EAGAIN
	}
}

func TestDescriptorsArriveCloseOnExec(t *testing.T) {
	for name, kind := range kinds {
		for _, n := range []int{0, 1, 2, 3, MaxFDs} {
			t.Run(fmt.Sprintf("%d over a %s", n, name), func(t *testing.T) {
				near, far := pair(t, kind)
				held := given(t, n, func(fds []int) { proctest.Must(t, Send(near, []byte("hello"), fds, 0)) })
				b := make([]byte, 5)
				got, fds, err := Receive(far, b, Control(n), 0)
				if err != nil || string(b[:got]) != "hello" || len(fds) != n {
					t.Fatalf("%q with %d descriptors, %v", b[:got], len(fds), err)
				}
				for _, fd := range fds {
					if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
						t.Fatalf("descriptor %d: flags %x, %v", fd, flags, err)
					}
				}
				if n > 0 && !held() {
					t.Error("nobody has what has arrived")
				}
				Close(fds)
				if held() {
					t.Error("a copy is open after all were closed")
				}
			})
		}
	}
}

func TestTooManyDescriptorsAreNotSent(t *testing.T) {
	near, far := pair(t, unix.SOCK_SEQPACKET)
	given(t, MaxFDs+1, func(fds []int) {
		if err := Send(near, []byte("x"), fds, 0); err != unix.EINVAL {
			t.Errorf("got %v; want EINVAL", err)
		}
	})
	if n, _, err := Receive(far, make([]byte, 8), nil, unix.MSG_DONTWAIT); err != unix.EAGAIN {
		t.Errorf("%d bytes have come, %v", n, err)
	}
}

// TestABadMessageLeaksNothing: what is wrong with it is an error or the end, and its
// descriptors are closed.
func TestABadMessageLeaksNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, fds int
		body      string
		control   []byte
		fails     bool
	}{
		"longer than there is room for": {unix.SOCK_SEQPACKET, 3, "123456789", nil, true},
		"a datagram that is too long":   {unix.SOCK_DGRAM, 3, "123456789", nil, true},
		"one descriptor too many":       {unix.SOCK_SEQPACKET, 4, "x", Control(3), true},
		"one too many for an even room": {unix.SOCK_SEQPACKET, 5, "x", Control(4), true},
		"too many over a stream":        {unix.SOCK_STREAM, MaxFDs, "x", Control(32), true},
		"descriptors without any room":  {unix.SOCK_STREAM, 1, "x", []byte{}, true},
		"room for a part of a header":   {unix.SOCK_STREAM, 1, "x", make([]byte, 10), true},
		"room for a header alone":       {unix.SOCK_STREAM, 1, "x", make([]byte, unix.CmsgLen(0)), true},
		"room for a half of one":        {unix.SOCK_STREAM, 1, "x", make([]byte, unix.CmsgLen(2)), true},
		"room for one and a half":       {unix.SOCK_STREAM, 2, "x", make([]byte, unix.CmsgLen(6)), true},
		"a message without bytes":       {unix.SOCK_DGRAM, 2, "", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t, tt.kind)
			held := given(t, tt.fds, func(fds []int) { proctest.Must(t, Send(near, []byte(tt.body), fds, 0)) })
			n, fds, err := Receive(far, make([]byte, 8), tt.control, 0)
			if n != 0 || fds != nil || (err != nil) != tt.fails {
				t.Errorf("%d bytes with %v, %v", n, fds, err)
			}
			if held() {
				t.Error("a descriptor of it is open")
			}
			// The connection is as it was.
			proctest.Must(t, Send(near, []byte("next"), nil, 0))
			b := make([]byte, 8)
			if n, fds, err := Receive(far, b, nil, 0); string(b[:n]) != "next" || fds != nil || err != nil {
				t.Errorf("then %q with %v, %v", b[:n], fds, err)
			}
		})
	}
}

func TestControlDataThatIsNotWholeIsRefused(t *testing.T) {
	null := proctest.Value(os.Open(os.DevNull))(t)
	defer null.Close()
	whole := unix.UnixRights(int(null.Fd()))
	for _, b := range [][]byte{whole[:unix.CmsgLen(0)], whole[:unix.CmsgLen(3)], make([]byte, unix.CmsgLen(4)), bytes.Repeat([]byte{0xff}, 64)} {
		if fds, err := Rights(b, 0); err == nil {
			t.Errorf("%x holds %v", b, fds)
		}
	}
	if fds, err := Rights(whole, 0); err != nil || !slices.Equal(fds, []int{int(null.Fd())}) {
		t.Errorf("whole: %v, %v", fds, err)
	}
	if fds, err := Rights(nil, 0); err != nil || fds != nil {
		t.Errorf("none: %v, %v", fds, err)
	}
}

func TestTheEndOfAConnectionAndOfItsRoom(t *testing.T) {
	near, far := pair(t, unix.SOCK_STREAM)
	if n, _, err := Receive(far, make([]byte, 8), nil, unix.MSG_DONTWAIT); n != 0 || err != unix.EAGAIN {
		t.Errorf("before anything has come: %d, %v", n, err)
	}
	full, big := error(nil), make([]byte, 64<<10)
	for full == nil {
		full = Send(near, big, nil, unix.MSG_DONTWAIT)
	}
	if full != unix.EAGAIN && !strings.Contains(full.Error(), "was cut to") {
		t.Errorf("a full socket says %v", full)
	}
	other, end := pair(t, unix.SOCK_SEQPACKET)
	proctest.Must(t, unix.Shutdown(end, unix.SHUT_RDWR))
	if n, fds, err := Receive(other, make([]byte, 8), nil, 0); n != 0 || fds != nil || err != nil {
		t.Errorf("at the end: %d, %v, %v", n, fds, err)
	}
	if err := Send(other, []byte("x"), nil, 0); err != unix.EPIPE { // and no SIGPIPE
		t.Errorf("behind the end: %v; want EPIPE", err)
	}
}

func TestThePeerIsKnown(t *testing.T) {
	near, _ := pair(t, unix.SOCK_SEQPACKET)
	if pid, uid, err := Peer(near); err != nil || pid != os.Getpid() || uid != os.Geteuid() || !Trusted(near) {
		t.Errorf("pid %d, user %d, %v, trusted %v; want ourselves", pid, uid, err, Trusted(near))
	}
	null := proctest.Value(os.Open(os.DevNull))(t)
	defer null.Close()
	if pid, uid, err := Peer(int(null.Fd())); err == nil || pid != 0 || uid != -1 || Trusted(int(null.Fd())) {
		t.Errorf("of no socket: pid %d, user %d, %v", pid, uid, err)
	}
}

func TestAnotherUserIsNotTrusted(t *testing.T) {
	proctest.Root(t)
	const nobody = 65534
	made := make(chan [2]int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var fds [2]int
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), nobody, ^uintptr(0)); errno != 0 {
			t.Error(errno)
		} else if p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Error(err)
		} else {
			fds = p
		}
		made <- fds
	}()
	fds := <-made
	if t.Failed() {
		return
	}
	defer Close(fds[:])
	if _, uid, err := Peer(fds[0]); err != nil || uid != nobody || Trusted(fds[0]) {
		t.Errorf("user %d, %v, trusted %v; want user %d, who is not", uid, err, Trusted(fds[0]), nobody)
	}
}
