package envd

import (
	"context"
	"net/http"
	"time"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/process"
)

// opened is a process whose output a request is about to read.
type opened struct {
	proc process.Process
	opts process.ReadOptions
	// offset is the value of Tend-Offset, for Connect.
	offset string
	// timeout of the stream; 0: none.
	timeout time.Duration
	// lifetime: the timeout is the process's, too (Start).
	lifetime bool
}

// openStart starts a process and reads it from its first byte.
func (f *Face) openStart(ctx context.Context, h http.Header, req *pb.StartRequest) (*opened, error) {
	timeout := timeoutIn(ctx, h)
	p, err := f.start(ctx, h, req, timeout)
	if err != nil {
		return nil, err
	}
	return &opened{proc: p, opts: readAll(req.GetPty() != nil, [4]int64{}), timeout: timeout, lifetime: timeout > 0}, nil
}

// openConnect reads a process from now on, or from where Tend-From says.
func (f *Face) openConnect(ctx context.Context, h http.Header, req *pb.ConnectRequest) (*opened, error) {
	p, info, err := f.resolve(ctx, req.GetProcess())
	if err != nil {
		return nil, err
	}
	var now [4]int64
	for _, s := range info.Streams {
		if int(s.Stream) < len(now) {
			now[s.Stream] = s.End
		}
	}
	from, err := fromOf(h.Get(headerFrom), now)
	if err != nil {
		return nil, err
	}
	o := &opened{proc: p, timeout: timeoutIn(ctx, h), offset: offsets(&info, from)}
	o.opts = readAll(info.Spec.PTY != nil, from)
	return o, nil
}

// readAll reads all streams. A terminal has one, which needs no index to be in
// order.
func readAll(pty bool, from [4]int64) process.ReadOptions {
	return process.ReadOptions{From: from, Drain: drainAfterExit, Unordered: pty}
}

// timeoutIn is the deadline that connect-go took from the request's headers,
// or the header itself where it was not asked.
func timeoutIn(ctx context.Context, h http.Header) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), time.Millisecond)
	}
	d, _ := timeoutOf(h) // a malformed one was refused before
	return d
}

// timedOut reports whether the stream ends because the process was killed at
// the deadline that this very request has set. Clients expect the error then,
// and no end event.
func (o *opened) timedOut(exit *process.Exit) bool {
	return o.lifetime && exit != nil && exit.Cause == process.CauseTimeout
}

// setHeaders sets what a client needs to read on elsewhere or later.
func setHeaders(h http.Header, o *opened) {
	h[headerID] = []string{string(o.proc.ID())}
	if o.offset != "" {
		h[headerOffset] = []string{o.offset}
	}
}

// joined is ctx that also ends with the face.
func (f *Face) joined(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(f.ctx, func() { cancel(context.Cause(f.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
