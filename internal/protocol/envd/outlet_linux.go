package envd

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// waitPiece is how long a wait for a stalled reader lasts before the stream's
// context is looked at again.
const waitPiece = 10 * time.Second

// piece lets a reader stall between two frames: it waits until the socket has room, and
// returns how much of the next frame fits. Retention may then free what comes next, and
// the reader gets a gap; if half a frame were sent, the rest would have to be kept.
func (o *connOutlet) piece(n int, encoded func(int) int) (int, error) {
	if o.broken != nil {
		return 0, o.broken
	}
	if waiting.Load() > crowd {
		n = min(n, batchSize)
	}
	raw, err := o.rawConn()
	if err != nil {
		return n, nil
	}
	room, ok := o.room(raw, o.sendBuffer == 0)
	if !ok || room >= encoded(n)+maxDataOverhead {
		return n, nil
	}
	// A socket is not writable while less than a third of its buffer is free: what is
	// full now is filled in large steps.
	if err := o.writable(); err != nil {
		o.broken = err
		return 0, err
	}
	if room, ok = o.room(raw, true); !ok {
		return n, nil
	}
	return min(n, max(largeEvent, (room-maxDataOverhead)*3/4)), nil
}

// room is how many bytes the socket takes at once. ok is false if it cannot be
// known.
func (o *connOutlet) room(raw syscall.RawConn, refresh bool) (n int, ok bool) {
	err := raw.Control(func(fd uintptr) {
		if refresh {
			if o.sendBuffer, ok = sockoptInt(fd, unix.SO_SNDBUF); !ok {
				return
			}
		}
		queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		// A quarter of the buffer is for what the kernel keeps with the bytes.
		n, ok = o.sendBuffer*3/4-queued, err == nil
	})
	return n, ok && err == nil
}

func sockoptInt(fd uintptr, opt int) (int, bool) {
	n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, opt)
	return n, err == nil && n > 0
}

// drive runs step each time the connection can take more, until it wants no
// more or the stream ends.
func (o *connOutlet) drive(raw syscall.RawConn, step func(fd uintptr) (again bool, err error)) error {
	for {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(waitPiece)); err != nil {
			return err
		}
		var stepErr error
		err := raw.Write(func(fd uintptr) bool {
			var again bool
			again, stepErr = step(fd)
			return !again
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		return stepErr
	}
}

// writable waits until the connection takes bytes again.
func (o *connOutlet) writable() error {
	raw, err := o.rawConn()
	if err != nil {
		return o.ctx.Err()
	}
	return o.drive(raw, func(fd uintptr) (bool, error) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		return n == 0 || err == unix.EINTR, nil
	})
}

// canPrompt: writeNow and readCached are implemented.
const canPrompt = true

// writeNow writes what the connection takes at once, and returns how much.
func (o *connOutlet) writeNow(p []byte) (n int) {
	raw, err := o.rawConn()
	if err != nil {
		return 0
	}
	// Control, and not Write, which looks at a deadline of before.
	_ = raw.Control(func(fd uintptr) {
		n, err = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		for err == unix.EINTR {
			n, err = unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	})
	return max(n, 0)
}

// readCached fills b with the span if that is in memory.
func readCached(span process.Span, b []byte) bool {
	n, err := unix.Preadv2(int(span.File.Fd()), [][]byte{b}, span.Offset, unix.RWF_NOWAIT)
	return err == nil && n == len(b)
}

func (o *connOutlet) rawConn() (syscall.RawConn, error) {
	if o.raw != nil {
		return o.raw, nil
	}
	sc, ok := o.conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	o.raw = raw
	return raw, err
}
