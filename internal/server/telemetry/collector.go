package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// warnAgain is how long the log says nothing of a collector that has failed, was well
// again and fails once more.
const warnAgain = 10 * time.Minute

// collector takes one kind of telemetry.
type collector struct {
	to    *Endpoint
	kind  string // "traces": for people
	http  *http.Client
	agent string
	log   *slog.Logger

	mu     sync.Mutex
	failed error     // guarded by mu: what the last try has met
	warned time.Time // guarded by mu: when the log had a warning last
}

// client follows no redirect: what is sent, and the headers with their keys, are for the
// URL that was named.
func client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refusedError is an answer that says that the same bytes will not be taken later either.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return "the answer was " + e.status }

// post sends one message, once. Errors are noted for the log, and say nothing of the URL.
func (c *collector) post(ctx context.Context, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		err = &refusedError{"none: " + err.Error()}
	} else {
		err = c.send(ctx, body)
	}
	c.note(ctx, err)
	return err
}

func (c *collector) send(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.to.timeout)
	defer cancel()
	if c.to.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(body)
		_ = w.Close()
		body = b.Bytes()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.to.url.String(), bytes.NewReader(body))
	if err != nil {
		return withoutURL(err)
	}
	req.Header.Set("User-Agent", c.agent)
	for k, v := range c.to.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if c.to.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	// The text of an answer is the collector's, and may be anything: its number is enough.
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		return nil
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		return &refusedError{status}
	}
	return errors.New("the answer was " + status)
}

// withoutURL is what net/url and net/http say, without the URL that they put before it.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// note logs the first failure and the recovery from it. A try that was cut off by the end
// of this server is none.
func (c *collector) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.failed
	c.failed = err
	where := slog.String("collector", c.to.url.Host)
	switch {
	case err != nil && before == nil && (c.warned.IsZero() || time.Since(c.warned) > warnAgain):
		c.warned = time.Now()
		c.log.Warn("the collector does not take "+c.kind+"; processes go on, and what fits into the queue is sent later",
			where, slog.Any("err", err))
	case err == nil && before != nil:
		c.log.Info("the collector takes "+c.kind+" again", where)
	}
}

// status is for `tend status`.
func (c *collector) status() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return fmt.Sprintf("to %s: fails: %v", c.to.url.Host, c.failed)
	}
	return "to " + c.to.url.Host
}

// The methods of otlptrace.Client.

func (c *collector) Start(context.Context) error { return nil }

func (c *collector) Stop(context.Context) error { return nil }

// UploadTraces sends what the exporter has made of spans. TracesData is on the wire what
// ExportTraceServiceRequest is; the package that has that one links all of gRPC in.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	return c.post(ctx, &tracepb.TracesData{ResourceSpans: spans})
}
