package distanttest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant/secure"
	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// Client is one session. Receive is for one goroutine; requests may be sent by
// others.
type Client struct {
	// Dial opens connections. It may fail: it is tried again.
	Dial func() (net.Conn, error)
	// Retry is the pause after a failed attempt; 0: 5 ms.
	Retry time.Duration
	// Resumed is called after each resumption with the time it took, from the
	// first successful dial.
	Resumed func(took time.Duration)

	key secure.Key
	id  uint32

	mu       sync.Mutex
	conn     *secure.Conn // guarded by mu
	otp      secure.Key   // guarded by mu
	sent     uint64       // guarded by mu; frames, as the real client counts
	backup   [][]byte     // guarded by mu; the newest frames that were sent
	received uint64       // of the receiving goroutine
	buf      []byte       // of the receiving goroutine
	serial   uint64       // guarded by mu; of request ids
	closed   bool         // guarded by mu
}

// Connect begins a session.
func Connect(dial func() (net.Conn, error), key secure.Key) (*Client, error) {
	nc, err := dial()
	if err != nil {
		return nil, err
	}
	conn, err := secure.Client(nc, secure.Hello{})
	if err != nil {
		nc.Close()
		return nil, err
	}
	c := &Client{Dial: dial, key: key, conn: conn, buf: make([]byte, 256<<10), sent: secure.ConnectReceived, received: secure.ConnectSent}
	if c.id, err = conn.Login(key); err == nil {
		c.otp, err = conn.Exchange()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// ID is the number of the session.
func (c *Client) ID() uint32 { return c.id }

// Close leaves the session on the server.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.conn.Close()
}

// Cut closes the connection and nothing else: the next Receive resumes.
func (c *Client) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.Close()
}

// maxBackup bounds the frames that are kept.
const maxBackup = 1 << 16

// Send sends one request and returns its id. It does not fail when the
// connection is cut: what was sent is sent again.
func (c *Client) Send(typ string, n int, put func(w wire.Writer)) string {
	return c.Envelope(func(w wire.Writer) {
		w.Object(n + 1)
		w.Key("type").Str(typ)
		if put != nil {
			put(w)
		}
		w.EndObject()
	})
}

// Envelope sends a request with any payload.
func (c *Client) Envelope(payload func(w wire.Writer)) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	id := strconv.FormatUint(c.serial, 10)
	w := wire.NewPack(nil)
	w.Object(2)
	w.Key("id").Str(id)
	w.Key("payload")
	payload(w)
	w.EndObject()
	c.rawLocked(w.Buffer())
	return id
}

// Raw sends a frame as it is.
func (c *Client) Raw(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rawLocked(frame)
}

func (c *Client) rawLocked(frame []byte) {
	c.sent++
	if c.backup = append(c.backup, frame); len(c.backup) > maxBackup {
		c.backup = c.backup[1:]
	}
	// A failure shows on the receiving side, which resumes.
	_ = c.conn.WriteFrame(frame)
}

// ErrClosed: the client was closed.
var ErrClosed = errors.New("the client was closed")

// Frame returns the next frame of the server, and resumes when the connection
// is cut. Heartbeats are left out. The bytes are good until the next call.
func (c *Client) Frame() ([]byte, error) {
	for {
		c.mu.Lock()
		conn := c.conn
		c.mu.Unlock()
		frame, err := conn.ReadFrameInto(c.buf)
		if err == nil {

			c.received++ // heartbeats, too
			if len(frame) > 0 {
				return frame, nil
			}
			continue
		}
		conn.Close()
		if err := c.Resume(); err != nil {
			return nil, err
		}
	}
}

// patience is how long a resumption may take, with all its attempts.
const patience = 2 * time.Minute

// Resume connects again until it succeeds.
func (c *Client) Resume() error {
	retry := c.Retry
	if retry == 0 {
		retry = 5 * time.Millisecond
	}
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(retry) {
		c.mu.Lock()
		if c.closed {
			err = ErrClosed
		} else {
			err = c.resumeLocked()
		}
		c.mu.Unlock()
		if err == nil || errors.Is(err, ErrClosed) {
			return err
		}
	}
	return fmt.Errorf("not resumed in %v: %w", patience, err)
}

func (c *Client) resumeLocked() error {
	nc, err := c.Dial()
	if err != nil {
		return err
	}
	begin := time.Now()
	conn, err := secure.Client(nc, secure.Hello{Resume: true, ID: c.id, OTP: c.otp})
	if err != nil {
		nc.Close()
		return err
	}
	otp, err := c.synchronize(conn)
	if err != nil {
		nc.Close()
		return err
	}
	c.conn, c.otp = conn, otp // only now, as the real client does
	if c.Resumed != nil {
		c.Resumed(time.Since(begin))
	}
	return nil
}

func (c *Client) synchronize(conn *secure.Conn) (secure.Key, error) {
	otp, err := conn.Exchange()
	if err != nil {
		return otp, err
	}
	mine := secure.Stats{Sent: c.sent, Received: c.received, Available: uint64(len(c.backup))}
	if err := conn.WriteStats(mine); err != nil {
		return otp, err
	}
	theirs, err := conn.ReadStats()
	if err != nil {
		return otp, err
	}
	if theirs.Received > c.sent {
		return otp, fmt.Errorf("the server has received %d of %d frames", theirs.Received, c.sent)
	}
	again := min(c.sent-theirs.Received, uint64(len(c.backup)))
	for _, frame := range c.backup[uint64(len(c.backup))-again:] {
		if err := conn.WriteFrame(frame); err != nil {
			return otp, err
		}
	}
	if theirs.Sent != c.received {
		// It would count what is sent again twice.
		return otp, fmt.Errorf("the server says that it has sent %d frames, and wants to send some within the synchronization; %d were received",
			theirs.Sent, c.received)
	}
	return otp, nil
}
