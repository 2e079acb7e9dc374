package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// exchange is one HTTP request and its answer. It notes that bytes arrive, and
// bounds them.
type exchange struct {
	client *http.Client
	alive  func()
	place  *url.URL // where the request goes
	status int
	after  time.Duration // of retry-after; -1: none
}

// post sends a request as JSON, and returns the answer if that is one: its status is 200.
func (x *exchange) post(ctx context.Context, body any, header http.Header) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, &ModelError{Kind: Invalid, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.place.String(), bytes.NewReader(data))
	if err != nil {
		return nil, &ModelError{Kind: Invalid, Err: err}
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	res, err := x.do(req)
	var mine *ModelError
	if errors.As(err, &mine) {
		return nil, mine
	}
	if err != nil {
		return nil, &ModelError{Kind: Unavailable, Err: err}
	}
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		return nil, refused(res.StatusCode, errorMessage(b))
	}
	return res, nil
}

func (x *exchange) do(req *http.Request) (*http.Response, error) {
	res, err := x.client.Do(req)
	if err != nil {
		return nil, err
	}
	x.alive()
	x.status = res.StatusCode
	if d, ok := retryAfter(res.Header, time.Now()); ok {
		x.after = d
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		res.Body.Close()
		return nil, &ModelError{Kind: Invalid, Status: res.StatusCode,
			Message: "the address leads elsewhere, and is not followed: name the address itself as base_url"}
	}
	m := &metered{body: res.Body, left: maxReplyBytes, full: errLarge, alive: x.alive}
	if res.StatusCode >= 400 {
		m.left, m.full = maxErrorBytes, io.EOF
	}
	res.Body = m
	return res, nil
}

// metered is a body with a bound.
type metered struct {
	body  io.ReadCloser
	left  int64
	full  error // what ends a body that is longer
	alive func()
}

func (m *metered) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, m.full
	}
	n, err := m.body.Read(p[:min(int64(len(p)), m.left)])
	m.left -= int64(n)
	if n > 0 {
		m.alive()
	}
	return n, err
}

func (m *metered) Close() error { return m.body.Close() }

// retryAfter reads how long a provider asks to wait: retry-after-ms, or
// retry-after in seconds or as a date (RFC 9110, 10.2.3).
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	number := func(s string, unit time.Duration) (time.Duration, bool) {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(f >= 0) {
			return 0, false
		}
		return time.Duration(min(f*float64(unit), float64(24*time.Hour))), true
	}
	if d, ok := number(h.Get("retry-after-ms"), time.Millisecond); ok {
		return d, true
	}
	s := h.Get("retry-after")
	if d, ok := number(s, time.Second); ok {
		return d, true
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// refused makes an error of the status and the message of an answer.
func refused(status int, message string) *ModelError {
	e := &ModelError{Status: status, Message: message}
	low := strings.ToLower(message)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired:
		e.Kind = Unauthorized
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooEarly ||
		status == http.StatusTooManyRequests || status >= 500:
		e.Kind = Unavailable
	case status == http.StatusRequestEntityTooLarge,
		strings.Contains(low, "too long"), strings.Contains(low, "context length"), strings.Contains(low, "context_length"),
		strings.Contains(low, "context window"):
		e.Kind = TooLong
	default:
		e.Kind = Invalid
	}
	return e
}

// errorMessage finds the message in the body of an error: {"error": {"message"}} or
// {"error": "message"}.
func errorMessage(b []byte) string {
	var whole struct{ Error json.RawMessage }
	var shaped struct{ Message string }
	var text string
	switch {
	case json.Unmarshal(b, &whole) != nil || len(whole.Error) == 0:
		return string(b)
	case json.Unmarshal(whole.Error, &text) == nil:
		return text
	case json.Unmarshal(whole.Error, &shaped) == nil && shaped.Message != "":
		return shaped.Message
	}
	return string(whole.Error)
}

// readEvents reads server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html), and has take get the data
// of each until it reports the last one. Without that, the stream ended.
func readEvents(body io.Reader, take func(data []byte) (last bool, err error)) (last bool, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), maxAnswer)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) > 0 {
			// Other fields (event, id, retry) and comments say nothing here.
			if v, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				if data = append(append(data, bytes.TrimPrefix(v, []byte(" "))...), '\n'); len(data) > maxAnswer {
					return false, errLarge
				}
			}
			continue
		}
		if len(bytes.TrimSpace(data)) > 0 {
			if last, err := take(data); last || err != nil {
				return last, err
			}
		}
		data = data[:0]
	}
	if err := lines.Err(); err != nil {
		var mine *ModelError
		if errors.As(err, &mine) {
			return false, mine
		}
		return false, &ModelError{Kind: Broken, Err: err}
	}
	if len(bytes.TrimSpace(data)) > 0 { // an event is whole only with the empty line after it
		return false, &ModelError{Kind: Broken, Message: "the stream ended in the middle of an event"}
	}
	return false, nil
}

func notJSON(err error) error { return &ModelError{Kind: Broken, Message: "it is not JSON", Err: err} }
