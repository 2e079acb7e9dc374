package distant

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant/journal"
	"github.com/tend-run/tend/internal/protocol/distant/secure"
)

const (
	// setupTime is how long a caller may take to show the key.
	setupTime = 20 * time.Second
	// maxSessions bounds the sessions that are kept, connected or not.
	maxSessions = 256
	// keepSessions is how long a session waits for its client.
	keepSessions = 24 * time.Hour
	// heartbeat is how often a client hears something. It gives up after 20 s.
	heartbeat = 5 * time.Second
)

// NativeConfig of the encrypted transport. All but the times are needed.
type NativeConfig struct {
	Face *Face
	// Dir holds the sessions. It is made if it is missing, for its owner alone.
	Dir string
	// Key that callers must show.
	Key secure.Key
	// Keep is how long a session waits for its client; 0: 24 h.
	Keep time.Duration
	// Setup is how long a caller may take to show the key; 0: 20 s.
	Setup time.Duration
}

// Native serves the encrypted transport. Its sessions outlive connections, and
// are on disk, so that they outlive the server, too.
type Native struct {
	face *Face
	dir  string
	key  secure.Key
	keep time.Duration
	// setup is how long a caller may take to show the key.
	setup time.Duration

	ctx    context.Context // ends with Close; parent of the sessions, which outlive connections
	cancel context.CancelFunc
	conns  sync.WaitGroup

	strangers strangers

	mu       sync.Mutex
	sessions map[uint32]*session // guarded by mu; those that are loaded
	open     int                 // guarded by mu; connections
	since    time.Time           // guarded by mu; when open became 0
}

// NewNative makes the directory and removes the sessions whose clients did not
// come back. Close it at the end.
func NewNative(c NativeConfig) (*Native, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the sessions: %w", err)
	}
	n := &Native{face: c.Face, dir: c.Dir, key: c.Key, keep: cmp.Or(c.Keep, keepSessions), setup: cmp.Or(c.Setup, setupTime),
		sessions: map[uint32]*session{}, since: time.Now()}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.sweep(); err != nil {
		return nil, err
	}
	return n, nil
}

// Serve accepts connections until ctx ends, which returns nil, or the listener
// fails. It closes the listener and the connections.
func (n *Native) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	n.conns.Go(func() { n.sweepNowAndThen(ctx) })
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if nc != nil {
				nc.Close()
			}
			return nil
		case err != nil:
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() {
				return err
			}
			// Out of descriptors, or a caller that left at once.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		caller := n.enter(nc) // here, where callers come in their order
		n.conns.Go(func() { n.serveConn(ctx, caller) })
	}
}

// Close ends the connections. The sessions stay on disk.
func (n *Native) Close() error {
	n.cancel()
	n.strangers.closeAll()
	n.mu.Lock()
	sessions := make([]*session, 0, len(n.sessions))
	for _, s := range n.sessions {
		sessions = append(sessions, s)
	}
	n.mu.Unlock()
	n.conns.Wait()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// Idle is how long there has been no connection; 0 while there is one.
func (n *Native) Idle() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open > 0 {
		return 0
	}
	return time.Since(n.since)
}

func (n *Native) serveConn(ctx context.Context, nc net.Conn) {
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	stopAll := context.AfterFunc(n.ctx, func() { nc.Close() })
	defer stopAll()
	defer n.leave(nc)
	if err := n.handshake(nc); err != nil && ctx.Err() == nil && n.ctx.Err() == nil {
		n.face.log.Info("connection refused", slog.String("face", "distant"), slog.String("peer", nc.RemoteAddr().String()), slog.Any("err", err))
	}
}

func (n *Native) enter(nc net.Conn) *stranger {
	n.mu.Lock()
	n.open++
	n.mu.Unlock()
	return n.strangers.enter(nc)
}

func (n *Native) leave(nc net.Conn) {
	n.strangers.leave(nc)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open--; n.open == 0 {
		n.since = time.Now()
	}
}

// handshake lets a caller in and serves it. The error says why it was refused.
func (n *Native) handshake(nc net.Conn) error {
	if err := nc.SetDeadline(time.Now().Add(n.setup)); err != nil {
		return err
	}
	conn, hello, err := secure.Server(nc)
	if err != nil {
		return err
	}
	if hello.Resume {
		return n.resume(conn, hello)
	}
	id := randomID()
	if err := conn.Authenticate(id, n.key); err != nil {
		return err
	}
	// The session is on disk before the client can believe that it has one. If this
	// fails the session stays there: nobody knows how much of it the client got.
	var s *session
	err = conn.ExchangeSecond(func(otp secure.Key) (err error) {
		s, err = n.newSession(id, otp)
		return err
	})
	if err == nil {
		err = n.trusted(conn)
	}
	if err != nil {
		return err
	}
	s.serve(conn, nil)
	return nil
}

// trusted removes the limits that hold for strangers.
func (n *Native) trusted(conn *secure.Conn) error {
	n.strangers.leave(conn.Conn)
	conn.Trust()
	return conn.SetDeadline(time.Time{})
}

// errNoSession is the same for an id that is unknown and a password that is
// wrong.
var errNoSession = errors.New("no session with this id and one-time password")

func (n *Native) resume(conn *secure.Conn, hello secure.Hello) error {
	s, err := n.session(hello.ID)
	if err != nil {
		return err
	}
	if !s.admits(hello.OTP) {
		return errNoSession
	}
	next, err := conn.Exchange()
	if err != nil {
		return err
	}
	stats, err := conn.ReadStats()
	if err != nil {
		return err
	}
	if err := n.trusted(conn); err != nil {
		return err
	}
	s.serve(conn, &resumption{shown: hello.OTP, next: next, stats: stats})
	return nil
}

// random returns n random bytes.
func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}

func randomID() uint32 { return binary.BigEndian.Uint32(random(4)) }

func (n *Native) sessionDir(id uint32) string {
	return filepath.Join(n.dir, fmt.Sprintf("%08x", id))
}

// newSession makes room for a session and begins it.
func (n *Native) newSession(id uint32, otp secure.Key) (*session, error) {
	n.makeRoom()
	log, err := journal.Create(n.sessionDir(id), journal.State{
		ID: id, Nonce: hex.EncodeToString(random(8)), OTPs: [][]byte{otp[:]},
		Sent: secure.ConnectSent, Answered: secure.ConnectReceived,
	})
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	s := n.sessionOf(log)
	n.mu.Lock()
	n.sessions[id] = s
	n.mu.Unlock()
	return s, nil
}

// session finds a session, on disk if it has to.
func (n *Native) session(id uint32) (*session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sessions[id]; s != nil {
		return s, nil
	}
	log, err := journal.Open(n.sessionDir(id))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = errNoSession
		}
		return nil, err
	}
	s := n.sessionOf(log)
	s.restore(n.ctx)
	n.sessions[id] = s
	return s, nil
}

// drop forgets a session for good.
func (n *Native) drop(s *session) {
	n.mu.Lock()
	if n.sessions[s.id] == s {
		delete(n.sessions, s.id)
	}
	n.mu.Unlock()
	if err := errors.Join(s.close(), os.RemoveAll(n.sessionDir(s.id))); err != nil {
		n.face.log.Warn("session not removed", slog.String("face", "distant"), slog.Any("err", err))
	}
}
