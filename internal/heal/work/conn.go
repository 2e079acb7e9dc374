package work

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/process"
)

const (
	// pieceSize is how much is written at once.
	pieceSize = 256 << 10
	// maxStderr is how much is kept of what a process says besides its answers.
	maxStderr = 2 << 10
)

// conn leads to a process of tend. Each byte is written once, and read once, whatever becomes
// of the server meanwhile.
type conn struct {
	w      *worker
	p      process.Process
	ctx    context.Context
	cancel context.CancelFunc
	writer string
	input  sync.Mutex // of who writes
	offset int64      // that the next byte is written at; guarded by input
	next   func() (process.Event, error, bool)
	stop   func()
	rest   []byte
	said   string // on stderr
}

func newConn(w *worker, p process.Process) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{w: w, p: p, ctx: ctx, cancel: cancel, writer: rand.Text()[:16]}
	c.next, c.stop = iter.Pull2(process.Events(ctx, p, process.ReadOptions{}))
	return c
}

// Write implements io.Writer.
func (c *conn) Write(data []byte) (n int, err error) {
	c.input.Lock()
	defer c.input.Unlock()
	for n < len(data) {
		piece := data[n:min(len(data), n+pieceSize)]
		offset := c.offset
		if _, err := c.p.Write(c.ctx, process.Input{Data: piece, Writer: c.writer, Offset: &offset}); err != nil {
			return n, err
		}
		n += len(piece)
		c.offset += int64(len(piece))
	}
	return n, nil
}

// Read implements io.Reader. After an error there is nothing more to read.
func (c *conn) Read(to []byte) (n int, err error) {
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	for len(c.rest) == 0 {
		ev, err, ok := c.next()
		switch {
		case !ok:
			return 0, io.EOF
		case err != nil:
			return 0, err
		}
		switch ev.Kind {
		case process.EventOutput:
			if ev.Stream == process.Stdout {
				c.rest = append(c.rest[:0], ev.Data...)
				continue
			}
			c.said += string(ev.Data)
			c.said = c.said[max(0, len(c.said)-maxStderr):]
		case process.EventGap:
			return 0, fmt.Errorf("a part of its output is lost")
		case process.EventExited:
			return 0, fmt.Errorf("it has ended: %v: %s", ev.Exit, strings.ToValidUTF8(strings.TrimSpace(c.said), "?"))
		}
	}
	n = copy(to, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// endTime is how long a process may take to end by itself: one that works on a project removes
// what it has left there, on a machine that may stand still meanwhile.
const endTime = 30 * time.Second

// Close ends the process: by the end of its input, or else by force. One that does not take
// what is being written would not see its end.
func (c *conn) Close() error {
	if c.input.TryLock() {
		ctx, cancel := context.WithTimeout(c.ctx, endTime)
		offset := c.offset
		if _, err := c.p.Write(ctx, process.Input{Writer: c.writer, Offset: &offset, EOF: true}); err == nil {
			_, _ = c.p.Wait(ctx, process.Until{}) // else it is killed
		}
		cancel()
		c.input.Unlock()
	}
	err := c.w.discard(c.p)
	c.cancel()
	return err
}
