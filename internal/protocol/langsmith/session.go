package langsmith

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

const (
	// firstMessage is how long a client may take to say what it wants.
	firstMessage = 30 * time.Second
	// pingEvery is the longest silence; a peer that does not answer within
	// pongWithin is gone.
	pingEvery  = 30 * time.Second
	pongWithin = 60 * time.Second
	// killWithin bounds the wait for a killed tree to be gone.
	killWithin = 30 * time.Second
	// drainAfterExit is how long a connection waits for more output once the
	// command has ended and a descendant still holds a pipe.
	drainAfterExit = 200 * time.Millisecond
	// lingering is how long received messages are still looked for once
	// nothing can be sent any more: a kill may be among them.
	lingering = 5 * time.Second
	// smallMessage is what a message may have without being charged, in bytes, and
	// messagePiece what of a larger one is read at a time. With more than one piece it must
	// come at a rate.
	smallMessage = 4 << 10
	messagePiece = 64 << 10
	// messageTime is the default of Config.MessageTime.
	messageTime = 5 * time.Minute
)

var (
	errStopping   = errors.New("the server is stopping; connect again")
	errClientLeft = errors.New("the client has left")
)

// session is one execution WebSocket: one command, from its first message to
// its end. The goroutine that runs it reads; another one writes.
type session struct {
	face *Face
	box  driver.Sandbox
	info driver.Info
	ws   *websocket.Conn
	conn net.Conn // below ws

	charge budget.Charge // for the message that is being read or handled

	ctx    context.Context // ends with the session: errStopping, errClientLeft
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // of the writer and pings
	pings  chan struct{}  // holds a token while a ping is under way

	proc    process.Process
	command string
	pty     bool
	input   *inputQueue
	from    [4]int64 // text offsets to begin at
	streams []process.StreamInfo
	detach  func()
}

// executeWS takes the connection over and lets the request go.
func (f *Face) executeWS(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	ws, conn, ok := f.upgrade(w, r)
	if !ok {
		return nil
	}
	s := &session{face: f, box: box, info: info, ws: ws, conn: conn, pings: make(chan struct{}, 1)}
	s.charge.On(f.budget, budget.Sandbox(info.ID))
	if !f.begin(conn, s.run) {
		// Clean and before "started": each SDK tries again (§5.3).
		closeNow(ws, conn, websocket.StatusNormalClosure, errStopping.Error())
	}
	return nil
}

// upgrade answers the WebSocket handshake.
func (f *Face) upgrade(w http.ResponseWriter, r *http.Request) (*websocket.Conn, net.Conn, bool) {
	if !headerHas(r.Header, "Upgrade", "websocket") || !headerHas(r.Header, "Connection", "upgrade") || r.ProtoMajor != 1 {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		writeError(w, http.StatusUpgradeRequired, kindInvalid, "this path speaks WebSocket over HTTP/1.1; ask for an upgrade")
		return nil, nil, false
	}
	if !f.takePlace() {
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, kindUnavailable, tooManyConnections(f.maxConns))
		return nil, nil, false
	}
	hj := &hijacker{ResponseWriter: w}
	// Origins are the guard's business, which stands in front of all faces.
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		f.leavePlace()
		return nil, nil, false // Accept has answered
	}
	ws.SetReadLimit(-1) // next has its own, after which it can still speak
	return ws, hj.conn, true
}

func tooManyConnections(limit int) string {
	return fmt.Sprintf("%d connections are open, which is the limit of this server; try again", limit)
}

// closeNow sends a close frame and does not wait for an answer for long.
func closeNow(ws *websocket.Conn, conn net.Conn, code websocket.StatusCode, reason string) {
	cut := time.AfterFunc(stopGrace, func() { conn.Close() })
	defer cut.Stop()
	_ = ws.Close(code, reason) // the peer may be gone, which is as good
}

// run begins the session and continues it in a new goroutine: the beginning needs
// several times the stack that waiting needs.
func (s *session) run() {
	s.ctx, s.cancel = context.WithCancelCause(s.face.ctx)
	handed := false
	defer func() {
		s.recovered(recover())
		if !handed {
			s.end()
		}
	}()
	first, err := s.first()
	if err == nil {
		err = s.open(first)
	}
	if err != nil {
		s.fail(err)
		return
	}
	handed = true
	s.face.sessions.Go(s.serve)
}

// end lets go of all that the session holds.
func (s *session) end() {
	s.cancel(errClientLeft)
	s.wg.Wait()
	s.ws.CloseNow()
	s.charge.Release()
	if s.input != nil {
		s.face.dropInput(s.input)
	}
	s.face.ended(s.conn)
}

func (s *session) recovered(p any) {
	if p != nil {
		s.face.log.Error("connection panicked", "face", "langsmith", "panic", p, "stack", string(debug.Stack()))
		s.conn.Close()
	}
}

// serve serves a session that was opened.
func (s *session) serve() {
	defer s.end()
	defer func() { s.recovered(recover()) }()
	defer s.detach()
	s.wg.Go(s.write)
	s.read()
	if errors.Is(context.Cause(s.ctx), errClientLeft) {
		s.conn.Close() // a writer that is stuck notices
		return
	}
	cut := time.AfterFunc(lingering, func() { s.conn.Close() })
	defer cut.Stop()
	s.wg.Wait()
}

// first reads the first message. Until "started" was sent only a clean close
// makes the SDKs try again, so nothing here may break the connection.
func (s *session) first() (*message, error) {
	stop := context.AfterFunc(s.ctx, func() { s.fail(errStopping) })
	late := time.AfterFunc(firstMessage, func() { s.fail(requestErrorf("no message came within %v", firstMessage)) })
	m, err := s.next()
	late.Stop()
	switch {
	case !stop():
		return nil, errStopping
	case err != nil:
		return nil, err
	case m.Type == "execute" || m.Type == "reconnect":
		return m, nil
	}
	return nil, requestErrorf("the first message is %.40q; it must be execute or reconnect", m.Type)
}

// next reads one message. It takes no context: with a cancelled one the library
// would break the connection before the bytes that have come are read.
func (s *session) next() (*message, error) {
	s.charge.Release() // what came before was dealt with
	kind, r, err := s.ws.Reader(context.Background())
	if err != nil {
		return nil, errClientLeft
	}
	b, err := s.readMessage(r)
	if busy, ok := errors.AsType[*budget.BusyError](err); ok {
		return nil, tryLater(busy)
	}
	if err != nil {
		return nil, errClientLeft
	}
	if len(b) > maxMessage {
		// The client reads what is wrong only after it has sent all.
		_, _ = io.Copy(io.Discard, io.LimitReader(r, 4*maxMessage))
		return nil, &requestError{text: fmt.Sprintf("the message is larger than %d bytes", maxMessage), code: websocket.StatusMessageTooBig}
	}
	if kind != websocket.MessageText {
		return nil, requestErrorf("the message is binary; this protocol sends text")
	}
	return parseMessage(b)
}

// tryLater ends a session for which there is no room.
func tryLater(busy *budget.BusyError) error {
	return &requestError{text: busy.Error(), code: websocket.StatusTryAgainLater}
}

// readMessage reads a message of at most maxMessage+1 bytes. A large one is charged
// until the next message is read, and must come at a rate: half a message would hold
// its memory for as long as the client likes.
func (s *session) readMessage(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, smallMessage))
	if err != nil || len(b) < smallMessage {
		return b, err
	}
	var large bytes.Buffer
	large.Write(b)
	for err = nil; err == nil && large.Len() <= maxMessage; {
		if large.Len() == smallMessage+messagePiece {
			late := time.AfterFunc(s.face.msgTime, func() { s.conn.Close() })
			defer late.Stop()
		}
		piece := min(messagePiece, int64(maxMessage+1-large.Len()))
		if err := s.charge.Add(protocol.Decoding(int64(large.Len())+piece) - s.charge.Held()); err != nil {
			return nil, err
		}
		_, err = io.CopyN(&large, r, piece)
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return large.Bytes(), nil
}

// open finds or starts the command and starts the writer.
func (s *session) open(m *message) error {
	var from [4]int64
	var err error
	switch m.Type {
	case "execute":
		s.proc, s.command, err = s.face.execute(s.ctx, s.box, &s.info, m)
	default:
		if m.StdoutOffset < 0 || m.StderrOffset < 0 {
			return requestErrorf("an offset is negative; offsets count from 0")
		}
		s.command = m.CommandID
		s.proc, err = s.face.find(s.ctx, s.box, &s.info, m.CommandID)
		from[process.Stdout], from[process.Stderr], from[process.PTY] = m.StdoutOffset, m.StderrOffset, m.StdoutOffset
	}
	if err != nil {
		return err
	}
	info, err := s.proc.Info(s.ctx)
	if errors.Is(err, process.ErrNotFound) {
		return commandNotFound(m.CommandID)
	}
	if err != nil {
		return err
	}
	s.pty = info.Spec.PTY != nil
	s.input = s.face.inputOf(s.proc, budget.Sandbox(s.info.ID))
	if err := s.ws.Write(context.Background(), websocket.MessageText, startedFrame(s.command, info.PID)); err != nil {
		return errClientLeft
	}
	s.from, s.streams = from, info.Streams
	s.detach = s.face.attach(s.proc)
	return nil
}

// write sends the output and the end.
func (s *session) write() {
	defer func() { s.recovered(recover()) }()
	out := &sink{ctx: s.ctx, ws: s.ws, proc: s.proc, ping: s.ping}
	out.held.Like(&s.charge)
	err := s.pump(out)
	if err == nil {
		err = out.finish()
	}
	if err == nil {
		err = s.finish(out.exit)
	}
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx) // the error itself is only the consequence
	}
	switch {
	case err == nil:
		closeNow(s.ws, s.conn, websocket.StatusNormalClosure, "")
	case errors.Is(err, errStopping):
		// After "started" this is what makes the SDKs come back at once.
		closeNow(s.ws, s.conn, websocket.StatusGoingAway, errStopping.Error())
	case errors.Is(err, errClientLeft), isSendError(err):
		// The client has left. What it sent before is still read: see run.
		cut := time.AfterFunc(lingering, func() { s.conn.Close() })
		defer cut.Stop()
		<-s.ctx.Done()
	default:
		s.fail(err)
	}
}

func (s *session) pump(out *sink) error {
	opts := process.ReadOptions{MaxChunk: chunkSize, Drain: drainAfterExit}
	for _, si := range s.streams {
		m := s.face.textMap(s.proc.ID(), si.Stream)
		defer s.face.releaseMap(s.proc.ID(), si.Stream)
		at, err := m.locate(s.ctx, s.proc, si.Stream, s.from[si.Stream])
		if err != nil {
			return err
		}
		out.streams[si.Stream] = &outStream{stream: si.Stream, m: m, at: at, skip: s.from[si.Stream]}
		opts.From[si.Stream] = at.Raw
	}
	r, err := s.proc.Read(s.ctx, opts)
	if err != nil {
		return err
	}
	defer r.Close()
	return protocol.Stream(s.ctx, r, out, pingEvery)
}

// finish sends the end of the command.
func (s *session) finish(exit *process.Exit) error {
	if exit == nil {
		return commandNotFound(s.command) // removed while it was read
	}
	if err := endError(exit); err != nil {
		return err
	}
	return s.ws.Write(context.Background(), websocket.MessageText, exitFrame(exit.ShellStatus()))
}

// ping asks whether the client is still there, beside the output.
func (s *session) ping() {
	select {
	case s.pings <- struct{}{}:
	default:
		return // one is under way
	}
	s.wg.Go(func() {
		defer func() { <-s.pings }()
		ctx, cancel := context.WithTimeout(s.ctx, pongWithin)
		defer cancel()
		if err := s.ws.Ping(ctx); err != nil && s.ctx.Err() == nil {
			s.conn.Close() // the reader notices, and ends the session
		}
	})
}

// read acts on the client's messages until it leaves.
func (s *session) read() {
	for {
		m, err := s.next()
		if err == nil {
			err = s.act(m)
		}
		if err == nil {
			continue
		}
		if _, bad := errors.AsType[*requestError](err); !bad {
			err = errClientLeft
		}
		s.cancel(err) // the writer sends it
		return
	}
}

// act does what a message asks for.
func (s *session) act(m *message) error {
	switch m.Type {
	case "input":
		return s.input.put(s.face, process.Input{Data: []byte(m.Data)})
	case "close_stdin":
		if !s.pty { // a terminal ends its input with a character
			return s.input.put(s.face, process.Input{EOF: true})
		}
	case "kill":
		s.input.drop()
		s.face.kill(s.proc)
	case "resize":
		if s.pty {
			size := process.Size{Cols: side(m.Cols, 0), Rows: side(m.Rows, 0)}
			if _, err := s.proc.Resize(s.face.ctx, process.Resize{To: size}); err != nil && !errors.Is(err, process.ErrExited) &&
				s.face.ctx.Err() == nil {
				s.face.log.Warn("terminal not resized", "id", s.proc.ID(), "err", err)
			}
		}
	case "ssh_agent_data", "ssh_agent_close":
		// Nothing was forwarded.
	case "execute", "reconnect":
		return requestErrorf("a second %s came on one connection; open another connection for another command", m.Type)
	default:
		return requestErrorf("the message type %.40q is unknown", m.Type)
	}
	return nil
}

// fail sends an error as the last frame and closes.
func (s *session) fail(err error) {
	if s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	if errors.Is(err, errClientLeft) {
		return
	}
	if errors.Is(err, errStopping) || errors.Is(err, process.ErrUnavailable) {
		// Before "started" a clean close is what makes the SDKs try again.
		closeNow(s.ws, s.conn, websocket.StatusNormalClosure, "try again")
		return
	}
	p := s.face.describe(err)
	code := websocket.StatusNormalClosure
	if bad, ok := errors.AsType[*requestError](err); ok && bad.code != 0 {
		code = bad.code
	}
	if s.ws.Write(context.Background(), websocket.MessageText, errorFrame(p.kind, p.text)) == nil {
		closeNow(s.ws, s.conn, code, "")
	}
}
