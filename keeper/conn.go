//go:build linux

package keeper

import (
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/keeper/board"
	"github.com/tend-run/tend/keeper/failpoint"
	"github.com/tend-run/tend/keeper/rundir"
	"github.com/tend-run/tend/keeper/vault"
	"github.com/tend-run/tend/keeper/wire"
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
	for {
		fd, _, err := unix.Accept4(k.listen, unix.SOCK_CLOEXEC)
		if err != nil {
			if err != unix.EINTR && err != unix.ECONNABORTED {
				k.shedFiles() // EMFILE: the server must always get in
				time.Sleep(10 * time.Millisecond)
			}
			continue
		}
		if !rundir.Trusted(fd) {
			unix.Close(fd)
			continue
		}
		timeout := unix.NsecToTimeval(sendTimeout.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
			k.logf("server connection: an answer may wait without bound: %v", err)
		}
		c := &conn{k: k, fd: fd, pid: rundir.Peer(fd), buf: make([]byte, 0, 4096)}
		go c.serve()
	}
}

// acceptAnchors waits for an anchor that was started anew beside this keeper.
func (k *Keeper) acceptAnchors() {
	l, err := k.run.Listen(rundir.VaultSocket, unix.SOCK_SEQPACKET)
	if err != nil {
		k.logf("a new anchor will not find this keeper: %v", err)
		return
	}
	for {
		fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !rundir.Trusted(fd) {
			unix.Close(fd)
			continue
		}
		k.vaults[vault.Anchor].Connect(fd)
	}
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

// keep leaves what was read beyond the last frame, without the room that a
// large frame took.
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
func (c *conn) handle(frame []byte) {
	req := binary.LittleEndian.Uint64(frame)
	op, body := frame[8], frame[9:]
	switch op {
	case wire.OpSpawn:
		spawn, err := wire.ParseSpawn(body)
		if err != nil {
			c.fail(req, &wire.Error{Code: wire.CodeInvalid, What: err.Error()})
			return
		}
		out, werr := c.k.spawn(&spawn)
		c.answer(req, werr, func(e *wire.Enc) { out.Append(e) })
		return
	case wire.OpHello:
		if !c.k.verifyBoard() {
			return // the next keeper answers
		}
		c.hello = true
		c.k.serverCame()
		h := wire.Hello{Version: wire.Version, PID: uint32(os.Getpid()), Facts: c.k.stats.facts(c.k)}
		c.send(req, nil, h.Append, c.k.board.FD(), c.k.wakeFD)
		return
	case wire.OpRetire:
		for d := (wire.Dec{B: body}); len(d.B) >= 8; {
			if p := c.k.lookup(wire.ParseRef(&d)); p != nil {
				c.k.retire(p)
			}
		}
		return
	case wire.OpUpgrade:
		go c.upgrade(req, string(body)) // not on this goroutine: its own answer may wait for the peer
		return
	case wire.OpSpaceFree:
		c.k.spaceFreed()
		return
	}
	d := wire.Dec{B: body}
	ref := wire.ParseRef(&d)
	a, b := uint32(0), uint64(0)
	var only *process.Size
	switch op {
	case wire.OpSignal:
		a, b = d.U32(), uint64(d.U8())
	case wire.OpResize:
		a, b = d.U32(), uint64(d.U32())
		if len(d.B) > 0 { // servers of before do not have it
			only = &process.Size{Cols: uint16(d.U32()), Rows: uint16(d.U32())}
		}
	case wire.OpTrim:
		a, b = uint32(d.U8()), d.U64()
	case wire.OpKill, wire.OpKillNamed, wire.OpPin:
		a = uint32(d.U8())
	}
	if d.Err() != nil {
		c.fail(req, &wire.Error{Code: wire.CodeInvalid, What: d.Err().Error()})
		return
	}
	p := c.k.lookup(ref)
	if p == nil {
		c.fail(req, &wire.Error{Code: wire.CodeNotFound})
		return
	}
	switch op {
	case wire.OpKill, wire.OpKillNamed:
		go func() {
			out, werr := c.k.kill(p, process.Cause(a))
			c.answer(req, werr, func(e *wire.Enc) {
				if op == wire.OpKillNamed {
					out.Append(e)
				} else {
					out.AppendShort(e)
				}
			})
		}()
	case wire.OpSignal:
		c.answer(req, c.k.signalRequest(p, unix.Signal(a), process.Scope(b)), nil)
	case wire.OpResize:
		before, werr := c.k.resize(p, process.Resize{To: process.Size{Cols: uint16(a), Rows: uint16(b)}, Only: only})
		c.answer(req, werr, func(e *wire.Enc) { e.U32(uint32(before.Cols)); e.U32(uint32(before.Rows)) })
	case wire.OpStdin:
		p.mu.Lock()
		fds, werr := c.k.openStdin(p)
		c.send(req, werr, nil, fds...)
		p.mu.Unlock()
	case wire.OpFeed:
		p.mu.Lock()
		c.k.feed(p)
		p.mu.Unlock()
	case wire.OpTrim:
		c.answer(req, c.k.trim(p, process.Stream(a), int64(b)), nil)
	case wire.OpPin:
		c.answer(req, c.k.pin(p, a == 1), nil)
	default:
		c.fail(req, &wire.Error{Code: wire.CodeUnsupported, What: "unknown operation; the server is of another version"})
	}
}

func (c *conn) fail(req uint64, werr *wire.Error) { c.answer(req, werr, nil) }

func (c *conn) answer(req uint64, werr *wire.Error, body func(*wire.Enc)) { c.send(req, werr, body) }

// send writes one answer; descriptors go along only without an error.
func (c *conn) send(req uint64, werr *wire.Error, body func(*wire.Enc), fds ...int) {
	if req == 0 {
		return
	}
	var e wire.Enc
	e.U32(0)
	e.U64(req)
	if werr != nil {
		e.U8(1)
		werr.Append(&e)
		fds = nil
	} else {
		e.U8(uint8(len(fds)) << 1)
		if body != nil {
			body(&e)
		}
	}
	binary.LittleEndian.PutUint32(e.B, uint32(len(e.B)-4))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if err := wire.Send(c.fd, e.B, fds); err != nil {
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
		err = setSize(p.out[0].fd, r.To)
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
	for i := range k.procs {
		if p := k.procs[i].Load(); p != nil && p.slot.Flags()&board.FlagNoSpace != 0 {
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
