package relay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
)

const (
	// maxLine bounds a message of the client in bytes; a longer one is refused.
	maxLine = 4 << 20
	// maxCalls bounds the calls under way.
	maxCalls = 256
)

// pending is a call that has no answer yet.
type pending struct {
	// cancelled: the client wants no answer any more. Guarded by Relay.mu.
	cancelled bool
	cancel    context.CancelFunc
	listens   bool // it ends when it is cancelled, and not before
}

// read takes the client's messages until their end. gone is called when there is nobody to
// answer.
func (r *Relay) read(ctx context.Context, in *bufio.Reader, calls *sync.WaitGroup, gone func()) error {
	for n := 1; ; n++ {
		line, err := readLine(in)
		switch {
		case errors.Is(err, errLong):
			r.fail(nil, codeInvalid, fmt.Sprintf("a message has more than %d bytes, which is the limit", maxLine))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(line) > 0:
			r.message(ctx, line, n, calls)
		}
		if r.broken() != nil {
			gone()
			return nil
		}
	}
}

var errLong = errors.New("long line")

// readLine returns a line without its end. A long one is skipped as a whole.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if line = bytes.TrimSpace(line); err != nil && (!errors.Is(err, io.EOF) || len(line) == 0 && !long) {
			return nil, err
		}
		if long {
			return nil, errLong
		}
		return line, nil
	}
}

// message is what is looked at of one.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`

	text []byte
	key  string
}

func (r *Relay) message(ctx context.Context, line []byte, n int, calls *sync.WaitGroup) {
	m := &message{text: line, key: r.session + "." + strconv.Itoa(n)}
	if line[0] == '[' {
		r.fail(nil, codeInvalid, "a batch; send one message a line")
		return
	}
	if err := json.Unmarshal(line, m); err != nil {
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
			r.fail(nil, codeParse, "a line that is no JSON: "+err.Error())
			return
		}
		if len(m.ID) == 0 {
			r.fail(nil, codeInvalid, "a message of another form: "+err.Error())
			return
		} // the server says what is wrong with it
	}
	switch {
	case m.Method == "notifications/cancelled":
		r.cancelled(ctx, m, calls)
	case m.Method == "" && len(m.ID) == 0:
		r.fail(nil, codeInvalid, "a message without method and id")
	case m.Method == "" || len(m.ID) == 0 || string(m.ID) == "null":
		// An answer, and the server asks nothing; or a notification, and the server has no
		// memory.
	default:
		r.begin(ctx, m, calls)
	}
}

// begin makes a call.
func (r *Relay) begin(ctx context.Context, m *message, calls *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(ctx)
	p := &pending{cancel: cancel, listens: m.Method == "subscriptions/listen"}
	r.mu.Lock()
	_, twice := r.pending[string(m.ID)]
	full := len(r.pending) >= maxCalls
	if !twice && !full {
		r.pending[string(m.ID)] = p
	}
	r.mu.Unlock()
	switch {
	case twice:
		r.fail(m.ID, codeInvalid, "a request with this id is under way")
	case full:
		r.fail(m.ID, codeInternal, fmt.Sprintf("%d calls are under way, which is the limit; wait until some have ended", maxCalls))
	default:
		calls.Go(func() {
			defer cancel()
			answer := r.call(ctx, m)
			r.mu.Lock()
			delete(r.pending, string(m.ID))
			unwanted := p.cancelled
			r.mu.Unlock()
			if answer != nil && !unwanted {
				r.write(answer)
			}
		})
		return
	}
	cancel()
}

// cancelled tells the server, which kills what is to be killed; the call is not answered.
func (r *Relay) cancelled(ctx context.Context, m *message, calls *sync.WaitGroup) {
	r.mu.Lock()
	p := r.pending[string(m.Params.RequestID)]
	again := p != nil && p.cancelled
	if p != nil {
		p.cancelled = true
	}
	r.mu.Unlock()
	switch {
	case p == nil, again: // it was answered, or the server is being told: none of a flood waits
	case p.listens:
		p.cancel()
	default:
		m.key += ".cancel"
		calls.Go(func() { r.call(ctx, m) })
	}
}

func (r *Relay) endListening() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pending {
		if p.listens {
			p.cancel()
		}
	}
}
