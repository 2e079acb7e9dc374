// Package relay speaks MCP on stdin and stdout and passes each message on to /mcp of a
// server (package internal/protocol/mcp), which has the tools. Its calls survive the death of the
// server: each call has a key, and a call whose answer breaks off is repeated under it,
// so it is executed once and answered once.
package relay

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// defaultPatience is how long a server may not answer.
const defaultPatience = 30 * time.Second

// Relay passes messages on. Connect is needed.
type Relay struct {
	// Connect finds the server, or starts it. It is called before the first message, and
	// again when nobody has answered, one call at a time.
	Connect func(ctx context.Context) (Target, error)
	// Patience is how long a server may not answer before a call fails; 0: 30 s.
	Patience time.Duration

	session    string
	connecting sync.Mutex
	connected  time.Time // guarded by connecting
	mu         sync.Mutex
	target     Target              // guarded by mu
	version    string              // that was agreed on; guarded by mu
	pending    map[string]*pending // guarded by mu
	out        *bufio.Writer       // guarded by outMu
	outErr     error               // guarded by outMu
	outMu      sync.Mutex
}

// Target is where messages go.
type Target struct {
	Client *http.Client
	URL    string // of /mcp
	// Header is sent with each request, and not changed any more.
	Header http.Header
}

// Run reads messages from in, one a line, until its end, and writes answers to out. It
// returns when the calls have ended, too, or ctx has.
func (r *Relay) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	r.session, r.out, r.pending = rand.Text(), bufio.NewWriter(out), map[string]*pending{}
	if r.Patience <= 0 {
		r.Patience = defaultPatience
	}
	ctx, stop := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer stop()
	if err := r.connect(ctx); err != nil {
		return err
	}
	read := make(chan error, 1)
	// a read from stdin cannot be broken off: the end of the program does it
	go func() { read <- r.read(ctx, bufio.NewReaderSize(in, 64<<10), &calls, stop) }()
	select {
	case err := <-read:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return r.broken()
	}
	r.endListening()
	ended := make(chan struct{})
	go func() { calls.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return r.broken()
}

func (r *Relay) broken() error {
	r.outMu.Lock()
	defer r.outMu.Unlock()
	return r.outErr
}

// connect finds the server again, unless somebody just has.
func (r *Relay) connect(ctx context.Context) error {
	r.connecting.Lock()
	defer r.connecting.Unlock()
	if time.Since(r.connected) < 100*time.Millisecond {
		return nil
	}
	t, err := r.Connect(ctx)
	if err != nil {
		return err
	}
	r.connected = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = t
	return nil
}

func (r *Relay) fail(id json.RawMessage, code int, text string) { r.write(failure(id, code, text)) }

// write sends one message to the client.
func (r *Relay) write(message []byte) {
	r.outMu.Lock()
	defer r.outMu.Unlock()
	_, _ = r.out.Write(message) // Flush has the error
	_ = r.out.WriteByte('\n')
	if err := r.out.Flush(); err != nil && r.outErr == nil {
		r.outErr = err
	}
}
