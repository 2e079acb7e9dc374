// Package webhook sends a message to a URL until it is accepted. The healer's reports
// and the exit hooks use it.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Timeout of one try, and how long somebody is tried at all.
const (
	Timeout = 15 * time.Second
	For     = 24 * time.Hour
)

const (
	first   = time.Second // before the second try, doubled each time
	longest = time.Minute
)

// Client follows no redirect: a message is for the URL that was named.
func Client() *http.Client {
	return &http.Client{Timeout: Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Message is one thing to be told.
type Message struct {
	URL  string
	Body []byte // JSON
	// Key goes with it as a bearer token, if there is one.
	Key string
	// ID is the same each time that the message is sent. With one, the message has the
	// headers Webhook-Id and Webhook-Timestamp, and with a Secret Webhook-Signature: as
	// the convention of Standard Webhooks has it, "v1," and the base64 of the
	// HMAC-SHA256 of ID.TIMESTAMP.BODY.
	ID     string
	Secret []byte
	// Header goes with it, too. nil: nothing more.
	Header http.Header
}

// Send tries once. The message is taken if the answer is 2xx. Of the URL an error has no
// more than the host: the rest is often a secret, and errors are logged.
func Send(ctx context.Context, c *http.Client, m *Message) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, m.Header)
	if m.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.Key)
	}
	if m.ID != "" {
		now := strconv.FormatInt(time.Now().Unix(), 10)
		req.Header.Set("Webhook-Id", m.ID)
		req.Header.Set("Webhook-Timestamp", now)
		if len(m.Secret) > 0 {
			req.Header.Set("Webhook-Signature", "v1,"+Sign(m.Secret, m.ID, now, m.Body))
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", req.URL.Host, withoutURL(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the answer was %s", resp.Status)
	}
	return nil
}

// withoutURL is what net/url and net/http say, without the URL that they put before it.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Sign is the signature of a message, without its version.
func Sign(secret []byte, id, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%s.%s.", id, timestamp)
	h.Write(body)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// Pause is how long to wait before the next try. The zero value is ready.
type Pause struct{ next time.Duration }

// Next doubles it, from a second to a minute.
func (p *Pause) Next() time.Duration {
	if p.next == 0 {
		p.next = first
	}
	d := p.next
	p.next = min(2*d, longest)
	return d
}

// Reset begins again.
func (p *Pause) Reset() { p.next = 0 }
