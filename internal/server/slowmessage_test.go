package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// deadlines is the answer of a request, whose read deadline takes a while to set.
type deadlines struct {
	*httptest.ResponseRecorder
	begun chan struct{}
	set   atomic.Bool
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	close(d.begun)
	time.Sleep(100 * time.Millisecond) // a request that does not wait ends before
	d.set.Store(true)
	return nil
}

// TestNoDeadlineIsSetBehindARequest: with HTTP/2 the answer belongs to another request then,
// or to none, and the server would panic.
func TestNoDeadlineIsSetBehindARequest(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{})}
	b := new(messageBody)
	b.ReadCloser, b.rc = io.NopCloser(strings.NewReader("")), http.NewResponseController(d)
	b.late = time.AfterFunc(0, b.end)
	<-d.begun
	if b.release(); !d.set.Load() {
		t.Error("the request has ended while its deadline is being set")
	}
	b.late.Reset(0)
	b.end() // that the timer is late: nothing is set, or the channel would be closed again
}
