package protocol

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol/module"
)

// lookAtLogins is how often the logins of running requests are looked at. A handler has as
// long to return once its context has ended; then its connection is cut.
const lookAtLogins = time.Second

// Logins ends the requests of logins that have ended: a stream has no end of its own. It
// does nothing while no login has a request. The zero value is ready.
type Logins struct {
	mu    sync.Mutex
	open  map[*loginRequest]struct{} // guarded by mu
	looks bool                       // guarded by mu: a look is to come
}

// loginRequest is a request that is served because of a login.
type loginRequest struct {
	lasts func() bool
	over  bool // only look uses it
	end   context.CancelCauseFunc
	rc    *http.ResponseController

	mu   sync.Mutex
	done bool // guarded by mu: the handler has returned, and the connection is another's
	cut  bool // guarded by mu
}

// Serve calls the handler as long as the login lasts.
func (l *Logins) Serve(next http.Handler, w http.ResponseWriter, r *http.Request, lasts func() bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	q := &loginRequest{lasts: lasts, end: cancel, rc: http.NewResponseController(w)}
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = loginBody{r.Body, ctx}
	}
	l.add(q)
	defer l.remove(q)
	next.ServeHTTP(w, r)
	if q.returned() {
		panic(http.ErrAbortHandler) // nobody takes the answer for whole
	}
}

func (l *Logins) add(q *loginRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*loginRequest]struct{}{}
	}
	l.open[q] = struct{}{}
	if !l.looks {
		l.looks = true
		time.AfterFunc(lookAtLogins, l.closeEnded)
	}
}

func (l *Logins) remove(q *loginRequest) {
	q.returned() // a handler may have panicked
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, q)
}

func (l *Logins) closeEnded() {
	l.mu.Lock()
	all := make([]*loginRequest, 0, len(l.open))
	for q := range l.open {
		all = append(all, q)
	}
	l.looks = len(all) > 0
	l.mu.Unlock()
	if len(all) == 0 {
		return
	}
	defer func() { time.AfterFunc(lookAtLogins, l.closeEnded) }()
	for _, q := range all {
		switch {
		case q.over:
			q.cutOff()
		case !q.lasts():
			q.over = true
			q.end(module.ErrLoginOver)
		}
	}
}

// cutOff ends what the handler waits for.
func (q *loginRequest) cutOff() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done {
		return
	}
	q.cut = true
	past := time.Unix(1, 0)
	_ = q.rc.SetReadDeadline(past) // fails when the client has left
	_ = q.rc.SetWriteDeadline(past)
}

// returned notes that the handler has returned, and reports whether it was cut off.
func (q *loginRequest) returned() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done = true
	return q.cut
}

// loginBody ends with the login, also where it always has more.
type loginBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b loginBody) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.ReadCloser.Read(p)
}
