//go:build linux

package keeper

import (
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/wire"
	"github.com/tend-run/tend/process"
)

// Input waits in a memfd: the server writes it there, at the stream's own
// offsets, and stores on the board how much it has accepted. The keeper splices
// from the memfd's file position to the pipe. The kernel advances the position
// with the bytes it moved, and the vault holds the same open file, so input is
// delivered exactly once whoever dies: no role has to remember how far it got.
const punchStep = 256 << 10

// openStdin returns the memfd, made at the first write.
func (k *Keeper) openStdin(p *proc) (int, *wire.Error) {
	if !p.stdin.open {
		if p.exited {
			return -1, &wire.Error{Code: wire.CodeExited}
		}
		return -1, &wire.Error{Code: wire.CodeStdinClosed}
	}
	if p.stdin.mem >= 0 {
		return p.stdin.mem, nil
	}
	fail := func(err error) (int, *wire.Error) {
		k.closeFeed(p)
		return -1, &wire.Error{Code: wire.CodeLimit, What: "stdin buffer: " + err.Error()}
	}
	mem, err := unix.MemfdCreate("tend-stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	p.stdin.mem = mem
	kinds, fds := []byte{wire.FDStdinMem}, []int{mem}
	if p.pty {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return fail(err)
		}
		p.stdin.feedR, p.stdin.feedW = pipe[0], pipe[1]
		kinds, fds = append(kinds, wire.FDFeedR, wire.FDFeedW), append(fds, pipe[0], pipe[1])
	}
	k.vault.put(&p.vaulted, false, p.ref, kinds, fds)
	return mem, nil
}

// feed delivers accepted input until the pipe is full. p.mu is held.
func (k *Keeper) feed(p *proc) {
	in := &p.stdin
	in.armed = false
	if !in.open {
		return
	}
	for {
		staged := p.pty && in.feedR >= 0 && pending(in.feedR)
		if !staged && in.pos >= p.slot.End(process.Stdin) {
			break
		}
		var n int64
		var err error
		if p.pty {
			n, err = k.feedTerminal(p, staged)
		} else {
			n, err = spliceRetry(in.mem, in.fd, min(p.slot.End(process.Stdin)-in.pos, spliceMax))
			in.pos += max(n, 0)
		}
		if err == unix.EAGAIN {
			in.armed = true
			if p.pty {
				k.watch(unix.EPOLL_CTL_MOD, p.out[0].fd, unix.EPOLLIN|unix.EPOLLOUT, p, onOut0)
			} else {
				k.watch(unix.EPOLL_CTL_MOD, in.fd, unix.EPOLLOUT, p, onStdin)
			}
			break
		}
		if err != nil || n == 0 { // EPIPE: nobody reads any more
			k.closeStdin(p)
			return
		}
	}
	k.delivered(p)
	if in.pos >= p.slot.End(process.Stdin) && p.slot.Wishes()&board.StdinEOF != 0 && !p.pty {
		k.closeStdin(p)
	}
}

// feedTerminal moves one step: memory to staging pipe, or on to the terminal.
func (k *Keeper) feedTerminal(p *proc, staged bool) (int64, error) {
	in := &p.stdin
	if staged {
		return spliceRetry(in.feedR, p.out[0].fd, smallPipe)
	}
	n, err := spliceRetry(in.mem, in.feedW, min(p.slot.End(process.Stdin)-in.pos, smallPipe))
	in.pos += max(n, 0)
	return n, err
}

func spliceRetry(src, dst int, n int64) (int64, error) {
	for {
		m, err := unix.Splice(src, nil, dst, nil, int(n), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if err != unix.EINTR {
			return m, err
		}
	}
}

func pending(pipe int) bool {
	n, _ := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	return n > 0
}

// delivered publishes how far delivery came, so that writers who wait for room
// go on, and frees the memory behind it.
func (k *Keeper) delivered(p *proc) {
	in := &p.stdin
	if in.pos == p.slot.Base(process.Stdin) {
		return
	}
	p.slot.SetBase(process.Stdin, in.pos)
	k.announce(p)
	if to := in.pos &^ (punchStep - 1); to > in.punch {
		unix.Fallocate(in.mem, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, in.punch, to-in.punch)
		in.punch = to
	}
}

// closeStdin ends the input. The vault's copies go too, or the reader would
// never see the end.
func (k *Keeper) closeStdin(p *proc) {
	if !p.stdin.open {
		return
	}
	p.stdin.open = false
	p.slot.Clear(board.FlagStdinOpen)
	if p.stdin.fd >= 0 {
		k.unwatch(p.stdin.fd)
		closeFD(&p.stdin.fd)
		k.vault.drop(&p.vaulted, p.ref, wire.FDStdin)
		k.vault.hurry()
	}
	k.closeFeed(p)
	k.announce(p)
}

func (k *Keeper) closeFeed(p *proc) {
	if p.stdin.mem >= 0 {
		closeFD(&p.stdin.mem)
		closeFD(&p.stdin.feedR)
		closeFD(&p.stdin.feedW)
		k.vault.drop(&p.vaulted, p.ref, wire.FDStdinMem, wire.FDFeedR, wire.FDFeedW)
	}
}
