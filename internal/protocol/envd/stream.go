package envd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/process"
)

// deadlineGrace is how long after its deadline a Start still waits for the
// process's end, so that the last output before the kill is delivered.
const deadlineGrace = time.Second

var unmarshalJSON = protojson.UnmarshalOptions{DiscardUnknown: true}

func (f *Face) serveStart(w http.ResponseWriter, r *http.Request) {
	f.serveStream(w, r, new(pb.StartRequest), func(ctx context.Context, req proto.Message) (*opened, error) {
		return f.openStart(ctx, r.Header, req.(*pb.StartRequest))
	})
}

func (f *Face) serveConnect(w http.ResponseWriter, r *http.Request) {
	f.serveStream(w, r, new(pb.ConnectRequest), func(ctx context.Context, req proto.Message) (*opened, error) {
		return f.openConnect(ctx, r.Header, req.(*pb.ConnectRequest))
	})
}

// serveStream answers Start and Connect. Requests as SDKs send them take the
// hot path; all others go to connect-go, which words the refusals.
func (f *Face) serveStream(w http.ResponseWriter, r *http.Request, req proto.Message, open func(context.Context,
	proto.Message) (*opened, error)) {
	c := hotCodec(r)
	if c == 0 {
		f.serveRPC(w, r)
		return
	}
	if _, ok := timeoutOf(r.Header); !ok {
		if c != codecLines {
			f.serveRPC(w, r)
			return
		}
		f.refuse(w, r, c, errorf(connect.CodeInvalidArgument, "%s is %.40q; a whole number of milliseconds of at most 10 digits is needed",
			headerTimeout, r.Header.Get(headerTimeout)))
		return
	}
	f.limitBody(w, r)
	read, msg, err := readRequest(r.Body, c)
	if err == nil {
		err = unmarshal(c, msg, req)
	}
	if err != nil {
		if c != codecLines {
			f.replay(w, r, read)
			return
		}
		refused, ok := errors.AsType[*connect.Error](err) // by the body itself
		if !ok {
			refused = errorf(connect.CodeInvalidArgument, "the body is not a request of this method in JSON: %v", err)
		}
		f.refuse(w, r, c, refused)
		return
	}
	o, err := open(r.Context(), req)
	if err != nil {
		f.refuse(w, r, c, wireErr(err))
		return
	}
	budget.Of(r.Context()).Release()
	reader, err := o.proc.Read(r.Context(), o.opts)
	if err != nil {
		f.refuse(w, r, c, wireErr(err))
		return
	}
	setHeaders(w.Header(), o)
	s := &stream{face: f, opened: o, target: targetOf(r.Context()), reader: reader, keepalive: protocol.KeepaliveOf(r.Header),
		sink: frameSink{codec: c}}
	if s.takeOver(w, r) {
		f.taken.Add(1)
		f.streams.Go(func() {
			defer f.taken.Add(-1)
			s.runTaken()
		})
		return
	}
	s.runHere(w, r)
}

// serveRPC answers everything that has no path of its own.
func (f *Face) serveRPC(w http.ResponseWriter, r *http.Request) {
	f.limitBody(w, r)
	f.rpc.ServeHTTP(w, r)
}

// hotCodec decides whether a request takes the hot path, and in which form.
// 0: it does not.
func hotCodec(r *http.Request) codec {
	h := r.Header
	if v := h.Get("Connect-Protocol-Version"); r.Method != http.MethodPost || v != "" && v != "1" {
		return 0
	}
	if v := h.Get("Connect-Content-Encoding"); v != "" && v != "identity" {
		return 0
	}
	if strings.Contains(h.Get("Connect-Accept-Encoding"), "gzip") {
		return 0
	}
	switch kind := strings.ToLower(strings.ReplaceAll(h.Get("Content-Type"), " ", "")); kind {
	case "application/connect+json", "application/connect+json;charset=utf-8":
		return codecJSON
	case "application/connect+proto":
		return codecProto
	case "application/json", "application/json;charset=utf-8":
		if h.Get("Content-Encoding") == "" {
			return codecLines
		}
	}
	return 0
}

var errRequest = errors.New("not one whole message")

// readRequest reads the one message of a server-streaming request. read is
// all that was read from body, for connect-go to look at again.
func readRequest(body io.Reader, c codec) (read, msg []byte, err error) {
	read, err = io.ReadAll(io.LimitReader(body, maxMessage+envelopeSize+1))
	if err != nil {
		return read, nil, err
	}
	if c == codecLines {
		if len(read) > maxMessage {
			return read, nil, errors.New("it is larger than 16 MiB")
		}
		return read, read, nil
	}
	if len(read) < envelopeSize || len(read) > maxMessage+envelopeSize || read[0] != 0 ||
		uint64(binary.BigEndian.Uint32(read[1:])) != uint64(len(read)-envelopeSize) {
		return read, nil, errRequest
	}
	return read, read[envelopeSize:], nil
}

func unmarshal(c codec, msg []byte, req proto.Message) error {
	if c == codecProto {
		if err := protocol.CheckProto(msg, req); err != nil {
			return err
		}
		return proto.Unmarshal(msg, req)
	}
	if err := protocol.CheckJSON(msg); err != nil {
		return err
	}
	return unmarshalJSON.Unmarshal(msg, req)
}

// replay leaves a request of which a part was read to connect-go.
func (f *Face) replay(w http.ResponseWriter, r *http.Request, read []byte) {
	r.Body = &struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), r.Body), r.Body}
	f.rpc.ServeHTTP(w, r)
}

// refuse answers a request that did not come to stream: with an end frame and
// HTTP status 200, or for plain JSON as a unary error.
func (f *Face) refuse(w http.ResponseWriter, r *http.Request, c codec, e *connect.Error) {
	if e.Code() == connect.CodeInternal || e.Code() == connect.CodeUnavailable {
		f.log.Warn("request failed", "face", "envd", "code", e.Code().String(), "err", e)
	}
	// Writes fail when the client has left.
	if c == codecLines {
		_ = f.errors.Write(w, r, e)
		return
	}
	w.Header().Set("Content-Type", c.contentType())
	w.Header().Set("Connect-Accept-Encoding", "gzip")
	_, _ = w.Write(c.appendTrailer(nil, e))
}

// stream is one response of Start or Connect on the hot path.
type stream struct {
	face *Face
	*opened
	target    *route.Target // nil: the default one
	reader    process.Reader
	keepalive time.Duration
	sink      frameSink
	taken     taken // set if the connection was taken over
}

// runHere streams through net/http, until the client leaves.
func (s *stream) runHere(w http.ResponseWriter, r *http.Request) {
	defer s.reader.Close()
	h := w.Header()
	h.Set("Content-Type", s.sink.codec.contentType())
	if s.sink.codec != codecLines {
		h.Set("Connect-Accept-Encoding", "gzip")
	}
	s.sink.out = newHTTPOutlet(w, budget.Of(r.Context()))
	ctx, cancel := s.face.joined(r.Context())
	defer cancel()
	ctx, stop := s.deadline(ctx)
	defer stop()
	// Another error here means that the client has left.
	if err := s.finish(s.pump(ctx)); errors.Is(err, errSandboxEnded) {
		panic(http.ErrAbortHandler)
	}
}

// finish ends the response. One whose sandbox has ended is not ended but cut, which the
// caller does for errSandboxEnded: as with the original, SDKs look then for the sandbox.
func (s *stream) finish(err *connect.Error) error {
	if err == nil || s.sink.codec == codecLines || !errors.Is(err, errSandboxEnded) {
		return s.sink.finish(err)
	}
	if err := s.sink.Flush(); err != nil {
		return err
	}
	return errSandboxEnded
}

// pump moves the output and returns how the stream ends.
func (s *stream) pump(ctx context.Context) *connect.Error {
	err := protocol.Stream(ctx, s.reader, &s.sink, s.keepalive)
	if lost, ok := errors.AsType[*process.GapError](err); ok {
		// The reader knows how far it continues behind what was lost.
		if ev, ok, _ := s.reader.Next(); ok && ev.Kind == process.EventGap && ev.Gap.Stream == lost.Stream {
			lost.To = ev.Gap.To
		}
	}
	if err == nil && s.timedOut(s.sink.exit) {
		err = context.DeadlineExceeded
	}
	if err == nil && s.face.ended(s.target, s.sink.exit) {
		err = errSandboxEnded
	}
	if errors.Is(err, errStopping) {
		if info, ierr := s.proc.Info(context.WithoutCancel(ctx)); ierr == nil && info.Exit != nil {
			err = errEnded
		}
	}
	return wireErr(err)
}

// deadline bounds the stream by its timeout. A Start ends when its process
// does, which is killed at the deadline: the bound here is only the fallback.
func (s *stream) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.timeout == 0 {
		return ctx, func() {}
	}
	d := s.timeout
	if s.lifetime {
		d += deadlineGrace
	}
	return context.WithTimeout(ctx, d)
}
