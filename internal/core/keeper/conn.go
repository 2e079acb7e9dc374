//go:build linux

package keeper

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// sendTimeout bounds how long an answer waits for a server that does not read.
const sendTimeout = 5 * time.Second

// conn is one server's connection. It is read by blocking calls on a thread of
// its own: a start is a question and an answer, and Go's poller would put two
// thread switches between them.
type conn struct {
	k  *Keeper
	fd int // closed by the reading goroutine alone, under mu

	pid   int
	hello bool   // a server's own connection, not one for starts alone
	buf   []byte // read and not yet handled; the reading goroutine's

	mu     sync.Mutex // one answer at a time
	closed bool       // guarded by mu
}

func (k *Keeper) accept() {
	// A failure is EMFILE, and the server must always get in.
	rundir.Accept(k.listen, k.shedFiles, func(fd int) {
		timeout := unix.NsecToTimeval(sendTimeout.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
			k.logf("server connection: an answer may wait without bound: %v", err)
		}
		pid, _, _ := unixsock.Peer(fd) // 0 if the kernel does not say
		c := &conn{k: k, fd: fd, pid: pid, buf: make([]byte, 0, 4096)}
		go c.serve()
	})
}

// acceptAnchors waits for a new anchor that was started while this keeper runs.
func (k *Keeper) acceptAnchors() {
	l, err := k.run.Listen(rundir.VaultSocket, unix.SOCK_SEQPACKET)
	if err != nil {
		k.logf("a new anchor will not find this keeper: %v", err)
		return
	}
	rundir.Accept(l, nil, k.vaults[fdstore.Anchor].Connect)
}

// serve reads requests and handles them in place: a thread switch would cost
// as much as the request. A server has connections for starts, one start at a
// time on each, and another for everything else; only a kill, which waits for
// the kernel, gets a goroutine.
func (c *conn) serve() {
	for {
		frame, rest, err := wire.Cut(c.buf)
		if err != nil {
			c.end(err)
			return
		}
		if frame != nil {
			c.handle(frame)
			c.keep(rest)
			continue
		}
		if len(c.buf) == cap(c.buf) {
			c.buf = append(c.buf, 0)[:len(c.buf)]
		}
		n, err := unix.Read(c.fd, c.buf[len(c.buf):cap(c.buf)])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			c.end(err)
			return
		}
		c.buf = c.buf[:len(c.buf)+n]
	}
}

// keep keeps the bytes read beyond the last frame, and frees the buffer of a large
// frame.
func (c *conn) keep(rest []byte) {
	if cap(c.buf) > 1<<16 && len(rest) < 4096 {
		c.buf = append(make([]byte, 0, 4096), rest...)
		return
	}
	c.buf = append(c.buf[:0], rest...)
}

// end closes the connection; nil is the peer's own end of it.
func (c *conn) end(err error) {
	if err != nil {
		c.k.logf("server connection: %v", err)
	}
	c.mu.Lock()
	c.closed = true
	unix.Close(c.fd)
	c.mu.Unlock()
	if c.hello {
		c.k.serverGone(c.pid)
	}
}

// handle runs one request.
func (c *conn) handle(f wire.Frame) {
	c.k.rest.Used()
	number, op, body := f.Number(), f.Op(), f.Body()
	switch op {
	case wire.OpSpawn:
		spawn, err := wire.ParseSpawn(body)
		if err != nil {
			c.answer(number, invalid(err), nil)
			return
		}
		out, werr := c.k.spawn(&spawn)
		c.answer(number, werr, out)
	case wire.OpHello:
		if !c.k.verifyBoard() {
			return // the next keeper answers
		}
		c.hello = true
		c.k.markRole(c.pid)
		c.k.serverCame()
		c.send(number, nil, &wire.Hello{Version: wire.Version, PID: uint32(os.Getpid()), Facts: c.k.stats.facts(c.k)}, c.k.board.FD(), c.k.wakeFD)
	case wire.OpRetire:
		for _, ref := range wire.ParseRefs(body) {
			if p := c.k.lookup(ref); p != nil {
				c.k.retire(p)
			}
		}
	case wire.OpUpgrade:
		go c.upgrade(number, wire.ParseUpgrade(body).Path) // not on this goroutine: its own answer may wait for the peer
	case wire.OpSpaceFree:
		c.k.spaceFreed()
	case wire.OpKill, wire.OpKillNamed:
		r, err := wire.ParseKill(body)
		if p := c.target(number, r.Ref, err); p != nil {
			go func() {
				out, werr := c.k.kill(p, r.Cause)
				if op == wire.OpKill {
					c.answer(number, werr, (*wire.ShortKilled)(out))
				} else {
					c.answer(number, werr, out)
				}
			}()
		}
	case wire.OpSignal:
		r, err := wire.ParseSignal(body)
		if p := c.target(number, r.Ref, err); p != nil {
			c.answer(number, c.k.signalRequest(p, unix.Signal(r.Signal), r.Scope), nil)
		}
	case wire.OpResize:
		r, err := wire.ParseResize(body)
		if p := c.target(number, r.Ref, err); p != nil {
			before, werr := c.k.resize(p, r.Resize)
			c.answer(number, werr, wire.Resized(before))
		}
	case wire.OpTrim:
		r, err := wire.ParseTrim(body)
		if p := c.target(number, r.Ref, err); p != nil {
			c.answer(number, c.k.trim(p, r.Stream, r.Before), nil)
		}
	case wire.OpPin:
		r, err := wire.ParsePin(body)
		if p := c.target(number, r.Ref, err); p != nil {
			c.answer(number, c.k.pin(p, r.Pinned), nil)
		}
	case wire.OpForget:
		ref, err := wire.ParseTarget(body)
		if p := c.target(number, ref, err); p != nil {
			go func() { c.answer(number, c.k.forget(p), nil) }() // it may wait for others
		}
	case wire.OpStdin:
		ref, err := wire.ParseTarget(body)
		if p := c.target(number, ref, err); p != nil {
			p.mu.Lock()
			fds, werr := c.k.openStdin(p)
			c.send(number, werr, nil, fds...)
			p.mu.Unlock()
		}
	case wire.OpFeed:
		ref, err := wire.ParseTarget(body)
		if p := c.target(number, ref, err); p != nil {
			p.mu.Lock()
			c.k.feed(p)
			p.mu.Unlock()
		}
	default:
		if c.handleContainer(number, op, body) {
			return
		}
		c.answer(number, &wire.Error{Code: wire.CodeUnsupported, What: "unknown operation; the server is of another version"}, nil)
	}
}

// target returns the process of a request. nil: there is none, or the request is
// malformed (err); then the answer was already sent.
func (c *conn) target(number uint64, ref wire.Ref, err error) *proc {
	if err != nil {
		c.answer(number, invalid(err), nil)
		return nil
	}
	p := c.k.lookup(ref)
	if p == nil {
		c.answer(number, &wire.Error{Code: wire.CodeNotFound}, nil)
	}
	return p
}

func invalid(err error) *wire.Error { return &wire.Error{Code: wire.CodeInvalid, What: err.Error()} }

func (c *conn) answer(number uint64, werr *wire.Error, body wire.Body) { c.send(number, werr, body) }

// send writes one answer; body and descriptors go along only without an error.
func (c *conn) send(number uint64, werr *wire.Error, body wire.Body, fds ...int) {
	if number == 0 {
		return
	}
	if werr != nil {
		body, fds = werr, nil
	}
	b := wire.AppendAnswer(nil, number, len(fds), body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if err := unixsock.Send(c.fd, b, fds, 0); err != nil {
		// Half an answer may be out: nothing that follows would be understood.
		unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
}

func (k *Keeper) signalRequest(p *proc, sig unix.Signal, scope process.Scope) *wire.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.exited && p.undecided() && sig != 0 {
		p.intend(process.CauseKilled, sig)
	}
	if !k.signal(p, sig, scope) {
		return &wire.Error{Code: wire.CodeExited}
	}
	return nil
}

func (k *Keeper) resize(p *proc, r process.Resize) (before process.Size, _ *wire.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.pty:
		return before, &wire.Error{Code: wire.CodeNoPTY}
	case p.out[0].fd < 0:
		return before, &wire.Error{Code: wire.CodeExited}
	}
	before, err := getSize(p.out[0].fd)
	if err == nil && (r.Only == nil || *r.Only == before) {
		err = k.changeSize(p, r.To)
	}
	if err != nil {
		return before, &wire.Error{What: "resize: " + err.Error(), Errno: errno(err)}
	}
	return before, nil
}

func (k *Keeper) trim(p *proc, s process.Stream, before int64) *wire.Error {
	p.mu.Lock()
	if p.final { // the server may have copied the board already: its turn
		p.mu.Unlock()
		return &wire.Error{Code: wire.CodeExited}
	}
	for i := range p.out {
		if out := &p.out[i]; out.stream == s {
			if before > out.end || before < 0 {
				p.mu.Unlock()
				return &wire.Error{Code: wire.CodeOffset}
			}
			k.dropHead(p, out, before)
		}
	}
	p.mu.Unlock()
	k.resume(p)
	return nil
}

// spaceFreed wakes the streams that wait for the filesystem.
func (k *Keeper) spaceFreed() {
	for p := range k.all {
		if p.slot.Flags()&board.FlagNoSpace != 0 {
			k.resume(p)
		}
	}
}

// retire frees the slot of a process that is over and that the server has
// taken note of.
func (k *Keeper) retire(p *proc) {
	p.mu.Lock()
	final := p.final
	p.mu.Unlock()
	if final {
		failpoint.Hit(failpoint.Retired)
		k.release(p)
	}
}
