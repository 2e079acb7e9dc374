//go:build linux

package keeper

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/memfd"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/stdin"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// openStdin makes the memfd at the first write, and returns what the server
// needs to feed the process itself: memfd, pipe or terminal, staging pipe.
func (k *Keeper) openStdin(p *proc) ([]int, *wire.Error) {
	in := &p.stdin
	if !in.open {
		if p.exited {
			return nil, &wire.Error{Code: wire.CodeExited}
		}
		return nil, &wire.Error{Code: wire.CodeStdinClosed}
	}
	if in.mem < 0 {
		if err := k.makeStdin(p); err != nil {
			k.closeFeed(p)
			return nil, &wire.Error{Code: wire.CodeLimit, What: "stdin buffer: " + err.Error()}
		}
	}
	if p.pty {
		return []int{in.mem, p.out[0].fd, in.feedR, in.feedW}, nil
	}
	return []int{in.mem, in.fd}, nil
}

func (k *Keeper) makeStdin(p *proc) error {
	mem, err := memfd.Create("tend-stdin", 0)
	if err != nil {
		return err
	}
	memfd.Seal(mem, memfd.GrowOnly)
	// Offsets in the file are those of the stream. They begin at 0, unless the process's
	// memory file was lost with all its holders.
	if _, err := unix.Seek(mem, p.slot.Base(process.Stdin), unix.SEEK_SET); err != nil {
		unix.Close(mem)
		return err
	}
	p.stdin.mem = mem
	p.slot.Set(board.FlagStdinMem)
	kinds, fds := []byte{wire.FDStdinMem}, []int{mem}
	if p.pty {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return err
		}
		p.stdin.feedR, p.stdin.feedW = pipe[0], pipe[1]
		kinds, fds = append(kinds, wire.FDFeedR, wire.FDFeedW), append(fds, pipe[0], pipe[1])
	}
	failpoint.Hit(failpoint.StdinMade)
	k.depositMore(p, kinds, fds)
	return nil
}

// feeder returns the process's input as package stdin moves it.
func (p *proc) feeder() *stdin.Feed {
	f := &stdin.Feed{Slot: p.slot, Mem: p.stdin.mem, Out: p.stdin.fd, StageR: p.stdin.feedR, StageW: p.stdin.feedW}
	if p.pty {
		f.Out = p.out[0].fd
	}
	return f
}

// feed delivers accepted input until the pipe is full. p.mu is held.
func (k *Keeper) feed(p *proc) {
	in := &p.stdin
	in.armed = false
	if !in.open || !k.owns(p) {
		return
	}
	// The server checks this flag after it has accepted more input, and we check the
	// accepted input after we have cleared the flag: so one of us delivers it.
	p.slot.Clear(board.FlagFeedArmed)
	before := p.slot.Base(process.Stdin)
	if in.mem >= 0 {
		switch p.feeder().Run(os.Getpid()) {
		case stdin.Full:
			k.armInput(p)
		case stdin.Broken:
			p.slot.Set(board.FlagStdinBroken)
			k.closeStdin(p)
			return
		}
	}
	done := p.slot.Base(process.Stdin)
	if done != before {
		k.announce(p) // writers who wait for room
	}
	if done >= p.slot.End(process.Stdin) && p.slot.Wishes()&board.StdinEOF != 0 && !p.pty {
		k.closeStdin(p)
	}
}

// armInput waits for room in the pipe or terminal.
func (k *Keeper) armInput(p *proc) {
	p.stdin.armed = true
	p.slot.Set(board.FlagFeedArmed)
	if p.pty {
		k.watch(unix.EPOLL_CTL_MOD, p.out[0].fd, unix.EPOLLIN|unix.EPOLLOUT, p, onOut0)
	} else {
		k.watch(unix.EPOLL_CTL_MOD, p.stdin.fd, unix.EPOLLOUT, p, onStdin)
	}
}

// recoverFeeder releases the input for a feeder that is dead, or that was this process
// before an upgrade. The keeper feeds with p.mu held, and so does the caller hold it.
func (p *proc) recoverFeeder() {
	who := p.slot.Feeder()
	if who != 0 && (who == os.Getpid() || !procfs.Runs(who)) {
		p.feeder().Recover(who, os.Getpid())
	}
}

// serverGone continues for a server that died: with the input that it was feeding or had
// accepted, and with the end of input that it had put on the board. Its descriptors
// are closed.
func (k *Keeper) serverGone(pid int) {
	for p := range k.all {
		p.mu.Lock()
		if p.stdin.mem >= 0 {
			p.feeder().Recover(pid, os.Getpid())
		}
		if p.stdin.mem >= 0 || p.slot.Wishes()&board.StdinEOF != 0 {
			k.feed(p)
		}
		p.mu.Unlock()
	}
}

// serverCame does the same for a server that died before it had connected to this
// keeper: the one that connects now is its successor.
func (k *Keeper) serverCame() {
	for p := range k.all {
		if p.slot.Feeder() == 0 && p.slot.Wishes()&board.StdinEOF == 0 {
			continue
		}
		p.mu.Lock()
		if p.stdin.mem >= 0 {
			p.recoverFeeder()
		}
		k.feed(p)
		p.mu.Unlock()
	}
}

// recordInput records how much input was accepted: a writer whose answer was lost
// repeats its write, and the next server must know that it was accepted.
func (k *Keeper) recordInput(p *proc) {
	in := spool.Input{Accepted: p.slot.End(process.Stdin), EOF: p.slot.Wishes()&board.StdinEOF != 0}
	if in != p.stdin.recorded {
		p.stdin.recorded = in
		k.record(p, spool.AppendInput(nil, time.Now(), in))
	}
}

// recordWriters records how much was accepted of each writer, before the memory that
// holds the numbers is closed.
func (k *Keeper) recordWriters(p *proc) {
	if p.stdin.mem < 0 || p.stdin.writersRecorded {
		return
	}
	t, err := stdin.ReadTable(p.stdin.mem, p.slot.End(process.Stdin), false)
	if err != nil {
		k.logf("process %s: writers of its input: %v", p.id, err)
		return
	}
	if all := t.All(); len(all) > 0 {
		k.record(p, spool.AppendWriters(nil, time.Now(), spool.Writers{Taken: all, Forgot: t.Forgot()}))
		p.stdin.writersRecorded = true
	}
}

// closeStdin ends the input. The vault's copies are closed too, or the reader would
// never see the end.
func (k *Keeper) closeStdin(p *proc) {
	if !p.stdin.open {
		return
	}
	p.stdin.open = false
	k.recordWriters(p)
	p.slot.Clear(board.FlagStdinOpen)
	if p.stdin.fd >= 0 {
		k.unwatch(p.stdin.fd)
		closeFD(&p.stdin.fd)
		failpoint.Hit(failpoint.StdinClosed)
		k.vaults.Drop(&p.vaulted, p.ref, wire.FDStdin)
		k.vaults.Hurry()
	}
	k.closeFeed(p)
	k.announce(p)
}

func (k *Keeper) closeFeed(p *proc) {
	if p.stdin.mem >= 0 {
		closeFD(&p.stdin.mem)
		closeFD(&p.stdin.feedR)
		closeFD(&p.stdin.feedW)
		p.slot.Clear(board.FlagStdinMem)
		k.vaults.Drop(&p.vaulted, p.ref, wire.FDStdinMem, wire.FDFeedR, wire.FDFeedW)
	}
}
