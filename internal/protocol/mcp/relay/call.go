package relay

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"
)

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
