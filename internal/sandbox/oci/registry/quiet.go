package registry

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// quietReader ends a body that sends nothing for too long.
type quietReader struct {
	io.ReadCloser
	limit time.Duration
	timer *time.Timer
	over  atomic.Bool
}

func quiet(body io.ReadCloser, limit time.Duration) io.ReadCloser {
	q := &quietReader{ReadCloser: body, limit: limit}
	q.timer = time.AfterFunc(limit, func() {
		q.over.Store(true)
		_ = body.Close()
	})
	return q
}

// short is a body of which no more than [maxAnswer] is read, and for no longer than limit in all.
func short(body io.ReadCloser, limit time.Duration) io.ReadCloser {
	s := &shortReader{Reader: io.LimitReader(body, maxAnswer), body: body}
	s.timer = time.AfterFunc(limit, func() { _ = body.Close() })
	return s
}

type shortReader struct {
	io.Reader
	body  io.Closer
	timer *time.Timer
}

func (s *shortReader) Close() error {
	s.timer.Stop()
	return s.body.Close()
}

func (q *quietReader) Read(b []byte) (int, error) {
	n, err := q.ReadCloser.Read(b)
	if q.over.Load() && err != nil && err != io.EOF {
		return n, fmt.Errorf("the registry has sent nothing for %s: %w", q.limit, io.ErrUnexpectedEOF)
	}
	q.timer.Reset(q.limit)
	return n, err
}

func (q *quietReader) Close() error {
	q.timer.Stop()
	return q.ReadCloser.Close()
}
