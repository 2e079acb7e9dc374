//go:build linux

package keeper

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/process"
)

const (
	spliceMax  = 1 << 20
	rounds     = 8       // splices before another stream gets its turn
	bigPipe    = 1 << 20 // for a stream that keeps filling its pipe
	smallPipe  = 64 << 10
	retryAfter = 100 * time.Millisecond // when the filesystem is full
	blockSize  = 4096
)

// pump moves what one stream holds into the spool and arms it again. p.mu is
// held.
func (k *Keeper) pump(p *proc, s *outStream) {
	if s.fd < 0 || s.eof || !p.started {
		return
	}
	for range rounds {
		n, err := k.move(p, s)
		switch err {
		case nil:
			if n == 0 {
				k.endStream(p, s)
				return
			}
			if n < smallPipe && len(s.rest) == 0 {
				// That was all. Arming reports at once if more has come, and
				// costs less than another splice.
				k.arm(p, s)
				return
			}
		case unix.EAGAIN:
			k.arm(p, s)
			return
		case errBlocked:
			s.waiting = true
			return
		case unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EIO, unix.EROFS, unix.ENOMEM:
			k.starved(p, s, err)
			return
		default:
			k.logf("process %s: %s cannot be spooled, trying again: %v", p.id, s.stream, err)
			k.starved(p, s, err)
			return
		}
	}
	k.arm(p, s)
}

// drain moves what the pipes held when the process exited, and no more: a
// descendant may write for ever.
func (k *Keeper) drain(p *proc) {
	// Output written before the exit is delivered before it. A stream with policy block
	// may exceed its limit for that.
	p.overflow = true
	defer func() { p.overflow = false }()
	for i := range p.out {
		s := &p.out[i]
		// A waiting stream is drained too: the reason of its wait may have ended a moment
		// ago, and bytes that are moved later would come after the exit.
		if s.waiting {
			s.waiting = false
			defer func() { s.waiting = s.waiting || !s.eof }()
		}
		for left := int64(2 * bigPipe); left > 0 && s.fd >= 0 && !s.eof && !s.waiting; {
			n, err := k.move(p, s)
			left -= n
			if err == nil && n == 0 {
				k.closeStream(p, s)
			}
			if err != nil && err != unix.EAGAIN && err != errBlocked {
				k.starved(p, s, err) // what the pipe holds is kept until there is room
			}
			if err != nil || n == 0 {
				break
			}
		}
	}
}

var errBlocked = unix.Errno(0x7fff) // not a kernel errno: the stream is at its limit

// move splices once: (n, nil), (0, nil) at the end of the stream, or an error.
func (k *Keeper) move(p *proc, s *outStream) (int64, error) {
	room := int64(spliceMax)
	if kept := s.end - s.base; kept+room > p.limit {
		if p.policy == process.DropOldest {
			// In steps of a quarter, so that a stream at its limit does not
			// punch at each splice.
			k.dropHead(p, s, s.end-p.limit+p.limit/4)
		} else if !p.gone && !p.overflow { // once the tree is gone there is no writer to hold back
			if room = p.limit - kept; room <= 0 {
				p.slot.Set(board.FlagBlocked)
				return 0, errBlocked
			}
		}
	}
	// A data file is made with its first byte: most processes write nothing to
	// stderr, and making a file costs as much as a start.
	if s.file < 0 && !p.pty && len(s.rest) == 0 {
		if queued, err := poll(s.fd); queued == 0 {
			return 0, err
		}
	}
	fd, err := k.openFile(p, s)
	if err != nil {
		return 0, err
	}
	src := s.fd
	if p.pty && len(s.rest) == 0 {
		if src, err = k.stage(s); src < 0 {
			return 0, err
		}
		failpoint.Hit(failpoint.Staged)
	}
	k.sizeBefore(p) // a keeper that dies behind the splice leaves no byte before its size
	n, err := k.splice(s, src, fd, room)
	if n <= 0 || err != nil {
		return 0, err
	}
	failpoint.Hit(failpoint.Spliced)
	from := s.end
	s.end += n
	if err := k.index(p, spool.IndexRecord{Kind: spool.IndexData, Stream: s.stream, Offset: from, Len: uint32(n)}); err != nil {
		// The bytes are safe; only their time and order are not. Recovery
		// and the reader both fill the hole from the file's size.
		k.logf("process %s: index: %v", p.id, err)
	}
	failpoint.Hit(failpoint.Indexed)
	p.slot.SetEnd(s.stream, s.end)
	k.announce(p)
	k.wrote(p)
	k.growPipe(p, s, n)
	return n, nil
}

// poll reports whether a pipe holds bytes (1), or not (0) with the reason: nil
// at its end, else EAGAIN.
func poll(fd int) (queued int, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, err = eintr.Get(func() (int, error) { return unix.Poll(fds, 0) })
	switch {
	case err != nil:
		return 0, err
	case fds[0].Revents&unix.POLLIN != 0:
		return 1, nil
	case fds[0].Revents&unix.POLLHUP != 0:
		return 0, nil
	}
	return 0, unix.EAGAIN
}

// splice moves bytes to the spool at s.end, by splice(2) or, on a filesystem
// that cannot be spliced to, by reading and writing. Bytes that were read then and
// find no room stay in s.rest; a keeper that is killed loses them.
func (k *Keeper) splice(s *outStream, src, dst int, room int64) (int64, error) {
	if !s.fallback {
		off := s.end
		n, err := eintr.Get(func() (int64, error) {
			return unix.Splice(src, nil, dst, &off, int(room), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		})
		switch err {
		case unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS, unix.EPERM:
			s.fallback = true
			unix.SetNonblock(src, true)
		default:
			return n, err
		}
	}
	if len(s.rest) == 0 {
		buf := make([]byte, min(room, smallPipe))
		n, err := eintr.Get(func() (int, error) { return unix.Read(src, buf) })
		if n <= 0 || err != nil {
			return 0, err
		}
		s.rest = buf[:n]
	}
	n, err := eintr.Pwrite(dst, s.rest, s.end)
	if s.rest = s.rest[n:]; len(s.rest) == 0 {
		s.rest = nil
	}
	if n > 0 {
		err = nil // it comes again at the next try
	}
	return int64(n), err
}

// stage moves bytes from the terminal to its staging pipe, unless some wait
// there already, and returns the pipe; or -1 with the reason: nil at the end.
func (k *Keeper) stage(s *outStream) (int, error) {
	if waiting, _ := unix.IoctlGetInt(s.stageR, unix.TIOCINQ); waiting > 0 {
		return s.stageR, nil
	}
	n, err := eintr.Get(func() (int64, error) {
		return unix.Splice(s.fd, nil, s.stageW, nil, smallPipe, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	})
	switch {
	case err == unix.EIO: // no holder of the other side is left
		return -1, nil
	case err != nil || n == 0:
		return -1, err
	}
	return s.stageR, nil
}

// index appends one record, of now if it has no time.
func (k *Keeper) index(p *proc, r spool.IndexRecord) error {
	fd, err := k.openIndex(p)
	if err != nil {
		return err
	}
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	r.Mono = uint32(ts.Nano() / 1e6)
	if r.Wall == 0 {
		r.Wall = time.Now().UnixNano()
	}
	var b [spool.IndexSize]byte
	r.Put(&b)
	if _, err := eintr.Pwrite(fd, b[:], p.indexEnd); err != nil { // the next record goes to the same place
		return err
	}
	p.indexEnd += spool.IndexSize
	p.slot.SetIndexEnd(p.indexEnd)
	return nil
}

// growPipe gives a stream that fills its pipe again and again a larger one:
// fewer, larger splices. Failure (the user's pipe budget is spent) is fine.
func (k *Keeper) growPipe(p *proc, s *outStream, n int64) {
	if p.pty || s.filled == 255 {
		return
	}
	if n < smallPipe {
		s.filled = 0
		return
	}
	if s.filled++; s.filled >= 4 {
		s.filled = 255
		unix.FcntlInt(uintptr(s.fd), unix.F_SETPIPE_SZ, bigPipe)
	}
}

// starved handles a full spool filesystem or a full kernel table. It frees space where
// the policy allows; otherwise the full pipe blocks the process, and the keeper
// retries. The server is notified of a full filesystem once, not at each retry.
func (k *Keeper) starved(p *proc, s *outStream, err error) {
	full := err == unix.ENOSPC || err == unix.EDQUOT
	if full && p.policy == process.DropOldest && s.end-s.base > 4*blockSize {
		k.dropHead(p, s, s.base+(s.end-s.base)/2)
	}
	if err == unix.EMFILE || err == unix.ENFILE {
		k.shedFiles()
	}
	s.waiting, p.stuck = true, err
	// Only if space is short: the server answers by removing finished processes.
	if s.full = full; full && p.slot.Flags()&board.FlagNoSpace == 0 {
		p.slot.Set(board.FlagNoSpace)
		k.announce(p)
	}
	if !p.retrying {
		p.retrying = true
		time.AfterFunc(retryAfter, func() {
			p.mu.Lock()
			p.retrying = false
			p.mu.Unlock()
			k.resume(p)
		})
	}
}

// resume lets streams that were not armed go on.
func (k *Keeper) resume(p *proc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final {
		return // the slot may be another's already
	}
	p.slot.Clear(board.FlagBlocked)
	for i := range p.out {
		if s := &p.out[i]; s.waiting {
			s.waiting, s.full = false, false
			k.pump(p, s)
		}
	}
	k.publishRoom(p)
	k.finish(p)
}

// arm watches a stream again. A terminal is watched for room too while input
// waits for it.
func (k *Keeper) arm(p *proc, s *outStream) {
	events := uint32(unix.EPOLLIN)
	what := onOut0
	if s == &p.out[1] {
		what = onOut1
	}
	if p.pty && p.stdin.armed {
		events |= unix.EPOLLOUT
	}
	k.watch(unix.EPOLL_CTL_MOD, s.fd, events, p, what)
}

// endStream records the end of a stream that was met while the process lives
// on, or after its exit.
func (k *Keeper) endStream(p *proc, s *outStream) {
	k.closeStream(p, s)
	k.record(p, spool.AppendEOF(nil, time.Now(), s.stream, s.end))
	p.publish(board.FlagEOF(s.stream))
	k.announce(p)
	k.finish(p)
}

// closeStream closes a stream's descriptors. The vault holds others, so
// the epoll registration must be ended by hand.
func (k *Keeper) closeStream(p *proc, s *outStream) {
	if p.pty && p.sizes.due && p.indexEnd > 0 {
		k.noteSize(p)
	}
	s.eof = true
	k.unwatch(s.fd)
	closeFD(&s.stageR)
	closeFD(&s.stageW)
	if p.pty {
		if p.stdin.open {
			p.slot.Set(board.FlagStdinBroken) // all have left the terminal
		}
		k.closeStdin(p)
	}
	closeFD(&s.fd)
}
