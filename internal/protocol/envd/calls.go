package envd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/process"
)

// smallCall bounds the requests of the calls here that take the hot path, in
// bytes. Others go to connect-go.
const smallCall = 4 << 10

// parser decodes a message. Its buffers may be used until the call has its answer.
type parser func(b *inputBuffers, c codec, message []byte) error

func into(req proto.Message) parser {
	return func(_ *inputBuffers, c codec, message []byte) error { return unmarshal(c, message, req) }
}

func (f *Face) serveSendSignal(w http.ResponseWriter, r *http.Request) {
	var req pb.SendSignalRequest
	f.serveCall(w, r, smallCall, into(&req), func(ctx context.Context) error { return f.sendSignal(ctx, r.Header, &req) })
}

func (f *Face) serveCloseStdin(w http.ResponseWriter, r *http.Request) {
	var req pb.CloseStdinRequest
	f.serveCall(w, r, smallCall, into(&req), func(ctx context.Context) error { return f.closeStdin(ctx, &req) })
}

func (f *Face) serveUpdate(w http.ResponseWriter, r *http.Request) {
	var req pb.UpdateRequest
	f.serveCall(w, r, smallCall, into(&req), func(ctx context.Context) error { return f.update(ctx, &req) })
}

// serveCall answers a unary call whose answer is empty. As with streams, requests
// as SDKs send them take the hot path, and all else goes to connect-go.
func (f *Face) serveCall(w http.ResponseWriter, r *http.Request, limit int64, parse parser, do func(context.Context) error) {
	c := hotUnary(r)
	if c == 0 || r.ContentLength < 0 || r.ContentLength > limit {
		f.serveRPC(w, r)
		return
	}
	f.limitBody(w, r)
	b := inputPool.Get().(*inputBuffers)
	defer putInput(b)
	message := b.room(int(r.ContentLength))
	n, err := io.ReadFull(r.Body, message)
	if err == nil {
		err = parse(b, c, message)
	}
	if err != nil {
		f.replay(w, r, message[:n])
		return
	}
	ctx, stop := inputContext(r)
	defer stop()
	w.Header().Set("Accept-Encoding", "gzip")
	if err := wireErr(f.guarded(ctx, func() error { return do(ctx) })); err != nil {
		_ = f.errors.Write(w, r, err) // fails when the client has left
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	if c == codecJSON {
		_, _ = w.Write([]byte("{}"))
	}
}

// update resizes the terminal. Without a size there is nothing to do.
func (f *Face) update(ctx context.Context, req *pb.UpdateRequest) error {
	t, err := f.find(ctx, req.GetProcess())
	if err != nil || req.GetPty() == nil {
		return err
	}
	if !t.pty {
		return errorf(connect.CodeInternal, "error resizing tty: tty not assigned to process")
	}
	if _, err := t.proc.Resize(ctx, process.Resize{To: *sizeOf(req.GetPty())}); err != nil {
		return t.wireErr("error resizing tty", err)
	}
	return nil
}

// sendSignal signals the leader alone, unless the request's headers ask for
// the tree or for another signal.
func (f *Face) sendSignal(ctx context.Context, h http.Header, req *pb.SendSignalRequest) error {
	t, err := f.find(ctx, req.GetProcess())
	if err != nil {
		return err
	}
	scope, err := killScopeOf(h)
	if err != nil {
		return err
	}
	var sig int
	if v := h.Get(headerSignal); v != "" {
		if sig, err = signalOf(v); err != nil {
			return err
		}
	} else {
		switch req.GetSignal() {
		case pb.Signal_SIGNAL_SIGKILL, pb.Signal_SIGNAL_SIGTERM:
			sig = int(req.GetSignal())
		default:
			return errorf(connect.CodeUnimplemented, "invalid signal: %s", req.GetSignal())
		}
	}
	if err := t.proc.Signal(ctx, sig, scope); err != nil {
		return t.wireErr("error sending signal", err)
	}
	if sig == int(syscall.SIGKILL) {
		// Callers look next whether it is gone. A kill that takes long is not waited for.
		ctx, cancel := context.WithTimeout(ctx, killWait)
		defer cancel()
		_, _ = t.proc.Wait(ctx, process.Until{})
	}
	return nil
}

// killWait is how long the answer to a kill waits until the process has ended.
const killWait = time.Second

// closeStdin may be repeated, and is no error if stdin was never open.
func (f *Face) closeStdin(ctx context.Context, req *pb.CloseStdinRequest) error {
	t, err := f.find(ctx, req.GetProcess())
	if err != nil {
		return err
	}
	if t.pty {
		return errorf(connect.CodeUnknown, "error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead")
	}
	if _, err := t.proc.Write(ctx, process.Input{EOF: true}); err != nil && !errors.Is(err, process.ErrStdinClosed) {
		return t.wireErr("error closing stdin", err)
	}
	return nil
}
