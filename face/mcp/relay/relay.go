// Package relay speaks MCP on stdin and stdout and passes each message on to /mcp of a
// server (package face/mcp), which has the tools. It keeps calls over the death of the
// server: each has a key, and one whose answer breaks off is asked for again, so that
// it is made once and answered once.
package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// maxLine bounds a message of the client in bytes; a longer one is refused.
	maxLine = 4 << 20
	// maxCalls bounds the calls under way.
	maxCalls = 256
	// defaultPatience is how long a server may not answer.
	defaultPatience = 30 * time.Second
)

// Codes of JSON-RPC.
const (
	codeParse    = -32700
	codeInvalid  = -32600
	codeInternal = -32603
)

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

// pending is a call that has no answer yet.
type pending struct {
	// cancelled: the client wants no answer any more. Guarded by Relay.mu.
	cancelled bool
	cancel    context.CancelFunc
	listens   bool // it ends when it is cancelled, and not before
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
	go func() { read <- r.read(ctx, bufio.NewReaderSize(in, 64<<10), &calls, stop) }() // a read from stdin cannot be broken off: the end of the program does it
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

// connect finds the server anew, unless somebody just has.
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
	if p != nil {
		p.cancelled = true
	}
	r.mu.Unlock()
	switch {
	case p == nil: // it was answered
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

// request is one attempt of a call: its message, or the id of the event with which its
// answer began.
func (r *Relay) request(ctx context.Context, m *message, event string, again bool) (*http.Request, *http.Client, error) {
	r.mu.Lock()
	to, version := r.target, r.version
	r.mu.Unlock()
	method, body := http.MethodPost, m.text
	if event != "" {
		method, body = http.MethodGet, nil
	}
	req, err := http.NewRequestWithContext(ctx, method, to.URL, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	h := req.Header
	for name, values := range to.Header {
		h[name] = values
	}
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("Mcp-Session-Id", r.session)
	h.Set("Idempotency-Key", m.key)
	if event != "" {
		h.Set("Last-Event-Id", event)
	} else {
		h.Set("Content-Type", "application/json")
	}
	if again {
		h.Set("Tend-Again", "1")
	}
	if v := m.Params.Meta.Version; v != "" && headerValue(v) == v {
		version = v
		h.Set("Mcp-Method", headerValue(m.Method))
		if name := m.Params.Name + m.Params.URI; name != "" {
			h.Set("Mcp-Name", headerValue(name))
		}
	}
	if version != "" && m.Method != "initialize" {
		h.Set("Mcp-Protocol-Version", version)
	}
	return req, to.Client, nil
}

// headerValue is a text as the protocol has it in headers.
func headerValue(text string) string {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == ' ' && (i == 0 || i == len(text)-1) {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
		}
	}
	return text
}

// call makes a call until it is answered, and returns the answer. nil: there is none, as
// ctx has ended or it was a notification.
func (r *Relay) call(ctx context.Context, m *message) []byte {
	event := ""
	heard := time.Now()
	wait := 10 * time.Millisecond
	for again := false; ; again = true {
		req, client, err := r.request(ctx, m, event, again)
		if err != nil {
			return failure(m.ID, codeInvalid, err.Error())
		}
		resp, err := client.Do(req)
		var answer []byte
		if err == nil {
			answer, err = r.answer(m, resp, &event, func() { heard, wait = time.Now(), 10*time.Millisecond })
		}
		switch {
		case err == nil:
			return answer
		case ctx.Err() != nil:
			return nil
		case time.Since(heard) > r.Patience:
			return failure(m.ID, codeInternal, fmt.Sprintf("the daemon has not answered for %v: %v; what was started goes on", r.Patience, err))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		if wait = min(2*wait, time.Second); resp == nil {
			// Nobody may be there any more. The call itself says so if that stays.
			_ = r.connect(ctx)
		}
	}
}

var errBrokeOff = errors.New("the answer broke off")

// answer reads the answer to one attempt. Notifications on the way are passed on; event
// is where an answer goes on that breaks off.
func (r *Relay) answer(m *message, resp *http.Response, event *string, progress func()) ([]byte, error) {
	defer resp.Body.Close()
	kind := resp.Header.Get("Content-Type")
	switch {
	case resp.StatusCode == http.StatusAccepted, resp.StatusCode == http.StatusNoContent:
		progress()
		return nil, nil
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusGatewayTimeout:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // a hint
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	case !bytes.HasPrefix([]byte(kind), []byte("text/event-stream")):
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
		if err != nil {
			return nil, err
		}
		return plain(m, resp, text), nil
	}
	progress()
	if m.Method == "subscriptions/listen" {
		*event = "" // it begins anew
	}
	return r.events(m, bufio.NewReaderSize(resp.Body, 64<<10), event, progress)
}

// plain is an answer that is no stream, in the form of the protocol.
func plain(m *message, resp *http.Response, text []byte) []byte {
	var a struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Message string          `json:"message"`
		Error   *struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data,omitempty"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(text, &a); {
	case err != nil:
		return failure(m.ID, codeInvalid, fmt.Sprintf("%s: %.300s", resp.Status, bytes.TrimSpace(text)))
	case a.JSONRPC != "" && a.Error == nil && bytes.Equal(a.ID, m.ID):
		return oneLine(text)
	case a.Error != nil:
		answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": a.Error})
		if err != nil { // impossible: it was just decoded
			return failure(m.ID, codeInternal, err.Error())
		}
		return answer
	}
	return failure(m.ID, codeInvalid, resp.Status+": "+a.Message)
}

func oneLine(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return bytes.TrimSpace(text)
	}
	return b.Bytes()
}

// events reads a stream of events up to the answer.
func (r *Relay) events(m *message, in *bufio.Reader, event *string, progress func()) ([]byte, error) {
	var id string
	var data []byte
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBrokeOff, err)
		}
		progress()
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) > 0 && string(name) == "id":
			id = string(value)
		case len(line) > 0 && string(name) == "data":
			data = append(data, value...)
		case len(line) > 0:
		default:
			if id != "" && m.Method != "subscriptions/listen" {
				*event = id
			}
			if len(data) > 0 {
				var what struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}
				if err := json.Unmarshal(data, &what); err != nil {
					return nil, fmt.Errorf("an event that is no message: %w", err)
				}
				if what.Method == "" && bytes.Equal(what.ID, m.ID) {
					r.agreed(m, data)
					return data, nil
				}
				r.write(data)
			}
			id, data = "", nil
		}
	}
}

// agreed notes the version of the protocol that the answer to initialize names.
func (r *Relay) agreed(m *message, answer []byte) {
	if m.Method != "initialize" {
		return
	}
	var a struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &a) == nil && a.Result.Version != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.version = a.Result.Version
	}
}

func failure(id json.RawMessage, code int, text string) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil { // the id is valid JSON
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"an error that cannot be said"}}`)
	}
	return b
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
