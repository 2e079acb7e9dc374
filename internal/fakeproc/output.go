//go:build linux

package fakeproc

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// defaultRetention is Retention.Limit where the spec gives none, in bytes.
const defaultRetention = 64 << 20

// output is one stream of output. The mutex of its process guards all of it.
type output struct {
	stream process.Stream
	file   *os.File // our end of the pipe or the terminal
	data   []byte   // bytes [base, base+len(data))
	base   int64
	eof    bool
	limit  int64
	block  bool
	room   *sync.Cond // signalled when Trim made room; its lock is the process's
}

func (o *output) end() int64 { return o.base + int64(len(o.data)) }

// full: policy Block keeps the pipe unread.
func (o *output) full() bool { return o.block && int64(len(o.data)) >= o.limit }

// free moves the base up.
func (o *output) free(to int64) {
	if to <= o.base {
		return
	}
	// A copy, so that the freed bytes are really freed.
	o.data = append([]byte(nil), o.data[to-o.base:]...)
	o.base = to
}

// piece is one arrival of output.
type piece struct {
	stream process.Stream
	from   int64
	to     int64
	time   time.Time
}

// pump reads a stream to its end.
func (p *proc) pump(o *output) {
	conn, err := o.file.SyscallConn()
	for err == nil {
		p.mu.Lock()
		for o.full() && p.exit == nil && !p.removed {
			o.room.Wait()
		}
		p.mu.Unlock()
		eof := false
		err = conn.Read(func(fd uintptr) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if o.eof {
				eof = true
				return true
			}
			most := 1 << 16
			if o.block && p.exit == nil {
				most = int(min(int64(most), o.limit-int64(len(o.data))))
			}
			if most <= 0 {
				return true // wait for room
			}
			n, rerr := p.take(o, int(fd), most)
			eof = rerr != nil
			return eof || n > 0
		})
		if eof {
			break
		}
	}
	p.mu.Lock()
	p.closeOutput(o)
	p.mu.Unlock()
}

// take reads once, without waiting. Reading and keeping are one step under
// p.mu, so that whoever finds the pipe empty knows that all its bytes are
// kept. n is 0 without an error when there is nothing now.
func (p *proc) take(o *output, fd, most int) (n int, err error) {
	buf := make([]byte, most)
	for {
		n, err = unix.Read(fd, buf)
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.EAGAIN:
		return 0, nil
	case err != nil: // EIO: the last holder of the terminal is gone
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	at := o.end()
	o.data = append(o.data, buf[:n]...)
	p.pieces = append(p.pieces, piece{o.stream, at, at + int64(n), time.Now()})
	if over := int64(len(o.data)) - o.limit; over > 0 && !o.block {
		// A quarter more is freed, so that not every write copies the rest.
		o.free(min(o.base+over+o.limit/4, o.end()))
		p.dropPieces()
	}
	p.wakeReaders()
	return n, nil
}

// dropPieces forgets the arrivals at the head of which nothing is left.
func (p *proc) dropPieces() {
	i := 0
	for i < len(p.pieces) && p.pieces[i].to <= p.output(p.pieces[i].stream).base {
		i++
	}
	p.pieces = append([]piece(nil), p.pieces[i:]...)
	p.dropped += i
}

// drain keeps what the pipes and the terminal hold now. A descendant may write
// for ever, hence the bound: what was there at the call. p.mu is held.
func (p *proc) drain() {
	for _, o := range p.outputs {
		if o.eof {
			continue
		}
		conn, err := o.file.SyscallConn()
		if err != nil {
			continue
		}
		conn.Control(func(fd uintptr) {
			left := pipeSize
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil && o.stream != process.PTY {
				left = n
			}
			for {
				// A pipe at its end tells so only to a read that finds it empty.
				n, err := p.take(o, int(fd), max(min(left, 1<<16), 1))
				left -= n
				if err != nil {
					p.endOutput(o)
				}
				if err != nil || n == 0 || left < 0 {
					return
				}
			}
		})
	}
}

// pipeSize bounds the drain of a terminal, in bytes.
const pipeSize = 1 << 16

// endOutput makes the end of a stream known. p.mu is held.
func (p *proc) endOutput(o *output) {
	if !o.eof {
		o.eof = true
		p.wakeReaders()
	}
}

// closeOutput ends a stream and lets go of its descriptor. p.mu is held.
func (p *proc) closeOutput(o *output) {
	p.endOutput(o)
	if o.stream == process.PTY {
		p.in.broken = p.in.broken || p.in.open
		p.stopFeeding()
	}
	o.file.Close()
}

// output returns a stream by its name, or nil.
func (p *proc) output(s process.Stream) *output {
	for _, o := range p.outputs {
		if o.stream == s {
			return o
		}
	}
	return nil
}

// newFile makes a file that waits in the poller.
func newFile(fd int, name string) *os.File {
	syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}
