package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// countsIfAsked are the paths whose providers count what a stream uses only if they are
// asked.
var countsIfAsked = map[string]bool{"chat/completions": true, "completions": true}

// askForUsage adds the question for the usage to a stream, unless the client asks it.
func (q *question) askForUsage() {
	streamed := false
	if !fields(q.body, func(name string, value json.RawMessage) bool {
		switch name {
		case "stream":
			streamed = isSet(value)
		case "stream_options":
			q.options = bytes.Clone(value)
		}
		return true
	}) || !streamed {
		return
	}
	options, asked := q.options, false
	if options == nil || string(options) == "null" {
		options = json.RawMessage("{}")
	}
	if !fields(options, func(name string, value json.RawMessage) bool {
		asked = asked || name == "include_usage" && string(value) == "true"
		return true
	}) || asked { // options that are none are the provider's to refuse
		return
	}
	q.asked = true
	q.body = withField(q.body, "stream_options", withField(options, "include_usage", json.RawMessage("true")))
}

// withField is an object whose field has this value; nil: it has no such field.
func withField(object []byte, field string, value json.RawMessage) []byte {
	var b bytes.Buffer
	b.Grow(len(object) + len(field) + len(value) + len(`"":,`))
	write := func(name string, value json.RawMessage) bool {
		if value == nil {
			return true
		}
		b.WriteByte("{,"[min(b.Len(), 1)])
		text, _ := json.Marshal(name) // a string can be written
		b.Write(text)
		b.WriteByte(':')
		b.Write(value)
		return true
	}
	fields(object, func(name string, old json.RawMessage) bool { return name == field || write(name, old) })
	write(field, value)
	if b.Len() == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes()
}

// trip sends a request. A provider that refuses the question for the usage, which the
// client did not ask, is sent the request without it.
func (f *Face) trip(r *http.Request, p *passed) (*http.Response, error) {
	resp, err := f.transport.RoundTrip(r)
	if err != nil || !p.q.asked || resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusUnprocessableEntity {
		return resp, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 256<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	p.q.asked, p.q.body = false, withField(p.q.body, "stream_options", p.q.options)
	again := r.Clone(r.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(p.q.body)), int64(len(p.q.body))
	return f.transport.RoundTrip(again)
}

// tripper is [Face.trip] for one request.
type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// maxUsageLine bounds what is held of a line of a stream, in bytes: a longer one is no
// usage.
const maxUsageLine = 64 << 10

// unaskedUsage passes a stream on without the event that tells the usage, for a client
// that did not ask for it: some fail at an event without choices.
type unaskedUsage struct {
	body io.ReadCloser

	line  []byte // begun
	long  bool   // what is passed on is the rest of a long line
	blank bool   // the end of an event that was left out may follow
	ready []byte
	err   error // after ready
	buf   [16 << 10]byte
}

func (u *unaskedUsage) Close() error { return u.body.Close() }

func (u *unaskedUsage) Read(b []byte) (int, error) {
	for len(u.ready) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		var n int
		n, u.err = u.body.Read(u.buf[:])
		u.ready = u.ready[:0]
		for line := range bytes.Lines(u.buf[:n]) {
			u.addPiece(line)
		}
		if u.err != nil && !tellsUsage(u.line) {
			u.ready = append(u.ready, u.line...)
			u.line = nil
		}
	}
	n := copy(b, u.ready)
	u.ready = u.ready[n:]
	return n, nil
}

// addPiece takes a piece of a line, or the end of one.
func (u *unaskedUsage) addPiece(piece []byte) {
	ended := piece[len(piece)-1] == '\n'
	if !u.long {
		u.line = append(u.line, piece...)
		if piece = u.line; !ended && len(u.line) <= maxUsageLine {
			return
		}
		u.line = u.line[:0]
		out := ended && tellsUsage(piece)
		if out || u.blank && len(bytes.TrimSpace(piece)) == 0 {
			u.blank = out
			return
		}
		u.blank = false
	}
	u.long = !ended
	u.ready = append(u.ready, piece...)
}

// tellsUsage reports whether a line is an event of the usage alone.
func tellsUsage(line []byte) bool {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || !bytes.Contains(data, []byte(`"usage"`)) {
		return false
	}
	var m struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   *counts           `json:"usage"`
	}
	return json.Unmarshal(data, &m) == nil && m.Choices != nil && len(m.Choices) == 0 && m.Usage != nil
}
