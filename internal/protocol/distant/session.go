package distant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
	"github.com/tend-run/tend/process"
)

// session is one client of the native transport, over any number of
// connections, one at a time.
//
// Lock order: serving, send, journal. The journal's lock is held for the time
// of a write to a file only, so that requests are answered while the client
// does not read.
type session struct {
	native *Native
	id     uint32
	nonce  string
	client *client
	cancel context.CancelFunc // of the client's context
	room   *gate
	held   budget.Charge // for the frames that are being answered

	serving sync.Mutex                         // held while a connection is served
	hang    atomic.Pointer[context.CancelFunc] // ends the connection that is served

	send sync.Mutex   // held while a frame is numbered and written
	conn *secure.Conn // guarded by send; nil: frames are only noted
	// now is conn for goroutines that prepare a frame before they take the lock.
	now atomic.Pointer[secure.Conn]

	journal sync.Mutex
	log     *journal.Log // guarded by journal
	closed  bool         // guarded by journal

	// What follows is guarded by serving.
	received uint64 // frames read
	// answered says which requests had their answer when the session was
	// loaded: they are not done again when the client repeats them.
	answered    func(uint64) bool
	unconfirmed []byte // a password that is good once a frame has come
}

// sessionOf makes the session of a journal.
func (n *Native) sessionOf(log *journal.Log) *session {
	state := log.State()
	s := &session{native: n, id: state.ID, nonce: state.Nonce, log: log, received: state.Answered, room: newGate()}
	s.held.On(n.face.budget)
	s.answered = func(uint64) bool { return false }
	ctx, cancel := context.WithCancel(n.ctx)
	s.cancel = cancel
	s.client = n.face.newClient(ctx, s)
	s.client.keys = s
	s.client.slots = state.Slots
	return s
}

// restore sets the session to what the journal says.
func (s *session) restore(ctx context.Context) {
	state := s.log.State()
	above := append([]uint64(nil), state.Above...)
	upTo := state.Answered
	old := journal.State{Answered: upTo, Above: above}
	s.answered = old.WasAnswered
	for slot, js := range state.Streams {
		// A stream whose number was never sent begins again with its request.
		if js.Done > 0 || !state.WasAnswered(js.Request) {
			continue
		}
		st := &stream{slot: slot, id: js.Number, origin: origin{id: js.Origin}, pty: js.PTY, next: js.Next}
		p, err := s.native.face.manager.Get(ctx, process.Selector{ID: js.Process})
		if err == nil {
			st.proc = p
		}
		if js.Own {
			s.client.streams[st.id] = st
		}
		s.client.add(st)
	}
	s.client.rewatch(state.Watches)
	s.client.endSearches(state.Searches)
}

// admits reports whether a password is good now, in constant time.
func (s *session) admits(otp secure.Key) bool {
	s.journal.Lock()
	defer s.journal.Unlock()
	good := false
	for _, b := range s.log.State().OTPs {
		if len(b) == secure.KeySize && otp.Equal(secure.Key(b)) {
			good = true
		}
	}
	return good
}

// resumption is what a client that comes back has said.
type resumption struct {
	shown, next secure.Key
	stats       secure.Stats
}

// hangUp ends the connection that is served, if there is one.
func (s *session) hangUp() {
	if cancel := s.hang.Load(); cancel != nil {
		(*cancel)()
	}
}

// serve serves a connection until it ends. One that is served already ends
// first: the caller that has the password is the client.
func (s *session) serve(conn *secure.Conn, r *resumption) {
	ctx, cancel := context.WithCancel(s.native.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for !s.serving.TryLock() {
		s.hangUp()
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	defer s.serving.Unlock()
	s.hang.Store(&cancel)
	defer s.hang.Store(nil)
	var reading budget.Charge
	reading.On(s.native.face.budget)
	defer reading.Release()
	conn.Charge(&reading)

	err := s.begin(ctx, conn, r)
	if err == nil {
		s.client.attach(ctx)
		var beats sync.WaitGroup
		beats.Go(func() { s.beat(ctx) })
		err = s.read(ctx, conn)
		cancel()
		beats.Wait()
	}
	cancel()
	s.send.Lock()
	s.conn = nil
	s.now.Store(nil)
	s.send.Unlock()
	s.client.detach()
	switch {
	case errors.Is(err, journal.ErrForgotten), errors.Is(err, errLog):
		s.native.face.log.Warn("session lost", slog.String("face", "distant"), slog.Any("err", err))
		s.native.drop(s)
	case errors.Is(err, secure.ErrFrame):
		s.native.face.log.Info("connection dropped", slog.String("face", "distant"), slog.Any("err", err))
	}
}

// begin brings client and session to the same point.
func (s *session) begin(ctx context.Context, conn *secure.Conn, r *resumption) error {
	if r == nil {
		s.goLive(conn)
		return nil
	}
	// Until a frame has come, the client may not have the new password.
	if err := s.note(journal.Record{Kind: journal.KindOTP, Data: append(r.shown[:], r.next[:]...)}); err != nil {
		return err
	}
	s.unconfirmed = r.next[:]
	// The client expects none of our frames during the synchronization. The frames
	// that it lacks come later as ordinary ones, which it counts correctly.
	if err := conn.WriteStats(secure.Stats{Sent: r.stats.Received, Received: s.received}); err != nil {
		return err
	}
	if r.stats.Sent > s.received {
		for range min(r.stats.Sent-s.received, r.stats.Available) {
			frame, err := conn.ReadFrame()
			if err != nil {
				return err
			}
			if err := s.handleFrame(ctx, frame); err != nil {
				return err
			}
		}
		s.received = r.stats.Sent
	}
	return s.catchUp(ctx, conn, r.stats.Received)
}

func (s *session) goLive(conn *secure.Conn) {
	s.conn = conn
	s.now.Store(conn)
}

// read takes requests until the connection ends.
func (s *session) read(ctx context.Context, conn *secure.Conn) error {
	for {
		frame, err := conn.ReadFrame()
		if err != nil {
			return err
		}
		if len(frame) == 0 {
			continue // a heartbeat, which clients do not count
		}
		if s.unconfirmed != nil {
			if err := s.note(journal.Record{Kind: journal.KindOTP, Data: s.unconfirmed}); err != nil {
				return err
			}
			s.unconfirmed = nil
		}
		if err := s.handleFrame(ctx, frame); err != nil {
			return err
		}
	}
}

// handleFrame starts the work on a frame. It waits while there is too much of it.
func (s *session) handleFrame(ctx context.Context, frame []byte) error {
	s.received++
	number := s.received
	if s.answered(number) {
		return nil
	}
	if err := s.room.enter(ctx, len(frame)); err != nil {
		s.received-- // it comes again
		return err
	}
	held := heldOf(len(frame))
	if err := s.held.Add(held); err != nil {
		s.room.leave(len(frame))
		s.received-- // it comes again, by a later connection
		return err
	}
	p, err := packOf(frame)
	if err != nil {
		defer s.held.Give(held)
		defer s.room.leave(len(frame))
		return s.answer(number, p, &answer{messages: []message{&fault{kindInvalidData, err.Error()}}})
	}
	for i := range p.calls {
		p.calls[i].frame = number
		p.calls[i].key = fmt.Sprintf("distant-%s-%d-%d", s.nonce, number, i)
	}
	leave := p.leaving(s.room, len(frame))
	s.client.admit(p)
	s.client.calls.Go(func() {
		defer s.held.Give(held)
		defer leave()
		a := s.client.run(p)
		if s.client.ctx.Err() != nil && a.interrupted() {
			return // it was broken off: the client repeats it
		}
		if s.answer(number, p, &a) != nil {
			s.hangUp()
		}
	})
	return nil
}

// heldOf is what is held for a frame until it is answered, in bytes: the frame, and what is
// made of it.
func heldOf(size int) int64 {
	if size <= 4<<10 {
		return 0
	}
	return 2 * int64(size)
}

// packOf reads a request. With an error the packet has its origin, if that
// could be read.
func packOf(frame []byte) (*packet, error) {
	v, err := wire.ParsePack(frame)
	if err != nil {
		return &packet{}, err
	}
	req, err := wire.ParseRequest(v)
	return packetOf(&req), err
}

// close ends what runs and leaves the session on disk.
func (s *session) close() error {
	s.cancel()
	s.hangUp()
	s.client.detach()
	s.client.close()
	s.journal.Lock()
	defer s.journal.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.log.Close()
}
