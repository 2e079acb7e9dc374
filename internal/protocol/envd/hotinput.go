package envd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/protocol"
)

// Input as ordinary clients send it does not pass connect-go, and is not copied on
// its way (docs/decisions/0008-own-input-decoder.md has the figures).

// hotMessage bounds the messages that are read into pooled buffers, in bytes.
// SDKs send pieces of 64 KiB. What is larger gets memory only as it arrives.
const hotMessage = 128 << 10

// inputBuffers hold one message and its payload. A write keeps none of the bytes that
// it is given, so the next message may use the buffers.
type inputBuffers struct{ message, payload []byte }

// putInput gives buffers back. The payload of a large message is left to the
// garbage collector: an idle server would keep it for minutes.
func putInput(b *inputBuffers) {
	if cap(b.payload) > hotMessage {
		b.payload = nil
	}
	inputPool.Put(b)
}

var inputPool = sync.Pool{New: func() any { return new(inputBuffers) }}

// room returns the message buffer with n bytes.
func (b *inputBuffers) room(n int) []byte {
	if cap(b.message) < n {
		b.message = make([]byte, max(n, 4<<10))
	}
	return b.message[:n]
}

func (f *Face) serveSendInput(w http.ResponseWriter, r *http.Request) {
	var req pb.SendInputRequest
	parse := func(b *inputBuffers, c codec, message []byte) error {
		if !b.parseSendInput(c, message, &req) {
			return errRequest
		}
		return nil
	}
	f.serveCall(w, r, hotMessage, parse, func(ctx context.Context) error { return f.sendInput(ctx, &req) })
}

// serveStreamInput answers StreamInput.
func (f *Face) serveStreamInput(w http.ResponseWriter, r *http.Request) {
	r, stopWatching := f.watchClient(r)
	defer stopWatching()
	c := hotCodec(r)
	if c != codecJSON && c != codecProto {
		f.serveRPC(w, r)
		return
	}
	ctx, stop := inputContext(r)
	defer stop()
	rc := http.NewResponseController(w)
	// Half duplex, net/http reads on to the end of the body before it sends a
	// response: a client that has not finished sending would get no error.
	_ = rc.EnableFullDuplex() // HTTP/2 is so always
	defer endReadsWith(ctx, rc)()
	err := wireErr(f.guarded(ctx, func() error { return f.readInput(ctx, r.Body, c) }))
	w.Header().Set("Content-Type", c.contentType())
	w.Header().Set("Connect-Accept-Encoding", "gzip")
	if err != nil && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the rest of the messages is not read
	}
	var answer []byte
	if err == nil {
		answer = appendEnvelope(answer, 0, 0)
		if c == codecJSON {
			answer = append(appendEnvelope(answer[:0], 0, 2), "{}"...)
		}
	}
	_, _ = w.Write(c.appendTrailer(answer, err)) // fails when the client has left
}

// watchClient ends the request's context AfterHangup after its client has left.
// While a process does not read its input, the request is not read either. net/http
// would notice that the client has left at the next read, when the process continues;
// until then the request holds its connection and a message. If the client's bytes
// still lie in its own kernel, it looks like a client that waits until that kernel
// gives up (minutes).
// Call the function that it returns at the end.
func (f *Face) watchClient(r *http.Request) (*http.Request, func()) {
	conn := protocol.ConnOf(r.Context())
	if conn == nil || !canWatch || r.ProtoMajor != 1 || r.TLS != nil { // HTTP/2 always reads
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	late := time.AfterFunc(time.Hour, func() { cancel(errClientLeft) })
	late.Stop()
	var over sync.Mutex // held to change late, which is let go of at the end
	token, err := f.hangups.add(conn, func() {
		over.Lock()
		defer over.Unlock()
		if ctx.Err() == nil {
			late.Reset(f.afterHangup)
		}
	})
	return r.WithContext(ctx), func() {
		if err == nil {
			f.hangups.remove(token)
		}
		cancel(nil)
		over.Lock()
		defer over.Unlock()
		late.Stop()
	}
}

// endReadsWith ends the reads of a request's body with ctx, whose deadline may
// pass while the client is silent. Call the function that it returns at the end
// of the request.
func endReadsWith(ctx context.Context, rc *http.ResponseController) func() {
	if _, ok := ctx.Deadline(); !ok {
		return func() {}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = rc.SetReadDeadline(time.Now()) // not all connections can; then the next message ends the call
	})
	return func() {
		if !stop() {
			<-ended // or the deadline would be the next request's
		}
	}
}

// readInput applies the messages of one StreamInput call, to its end.
func (f *Face) readInput(ctx context.Context, body io.Reader, c codec) error {
	var to inputTarget
	for {
		// Without a buffer: the next message may be hours away.
		size, err := nextEnvelope(body)
		if err == nil {
			err = f.readMessage(ctx, body, size, c, &to)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
	}
}

func (f *Face) readMessage(ctx context.Context, body io.Reader, size int64, c codec, to *inputTarget) error {
	b := inputPool.Get().(*inputBuffers)
	defer putInput(b)
	message, err := b.read(body, size)
	if err != nil {
		return err
	}
	var req pb.StreamInputRequest
	if !b.parseStreamInput(c, message, &req) {
		req.Reset()
		// No bytes are the empty message in JSON, too: connect-go reads it so.
		if err := unmarshal(c, message, &req); err != nil && size > 0 {
			return errorf(connect.CodeInvalidArgument, "unmarshal message: %s", clipped(err.Error()))
		}
	}
	return f.streamInput(ctx, to, &req)
}

// nextEnvelope returns the size of the next message; io.EOF is the end of the
// body between two.
func nextEnvelope(body io.Reader) (int64, error) {
	var head [envelopeSize]byte
	if n, err := io.ReadFull(body, head[:]); err == io.EOF {
		return 0, io.EOF
	} else if err != nil {
		return 0, bodyErr(err, "the stream ended in the envelope of a message, after %d of %d bytes", n, envelopeSize)
	}
	if head[0] != 0 {
		return 0, errorf(connect.CodeInternal,
			"protocol error: a message has the flags %#02x; messages of this method come uncompressed, with flags 0", head[0])
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if size > maxMessage {
		// Most clients read the answer only when all is sent.
		_, _ = io.CopyN(io.Discard, body, min(size, 4*maxMessage))
		return 0, errorf(connect.CodeResourceExhausted, "message size %d is larger than configured max %d", size, maxMessage)
	}
	return size, nil
}

// read reads a message of this size.
func (b *inputBuffers) read(body io.Reader, size int64) ([]byte, error) {
	var message []byte
	var n int64
	var err error
	if size > hotMessage {
		var large bytes.Buffer
		n, err = io.CopyN(&large, body, size)
		message = large.Bytes()
	} else {
		message = b.room(int(size))
		var read int
		read, err = io.ReadFull(body, message)
		n = int64(read)
	}
	if err != nil {
		return nil, bodyErr(err, "the stream ended in a message, after %d of %d bytes", n, size)
	}
	return message, nil
}

func bodyErr(err error, format string, a ...any) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errorf(connect.CodeInvalidArgument, "protocol error: "+format, a...)
	}
	if refused, ok := errors.AsType[*connect.Error](err); ok {
		return refused // by the body itself
	}
	return connect.NewError(connect.CodeUnknown, err)
}

// guarded turns a panic into an error of the request.
func (f *Face) guarded(ctx context.Context, do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = f.recovered(ctx, connect.Spec{Procedure: "input"}, nil, v)
		}
	}()
	return do()
}

// inputContext is the request's context with the deadline its headers set.
func inputContext(r *http.Request) (context.Context, context.CancelFunc) {
	if d, _ := timeoutOf(r.Header); r.Header.Get(headerTimeout) != "" {
		return context.WithTimeout(r.Context(), d)
	}
	return r.Context(), func() {}
}

// hotUnary decides whether a unary call takes the hot path, and in which form.
func hotUnary(r *http.Request) codec {
	h := r.Header
	if v := h.Get("Connect-Protocol-Version"); r.Method != http.MethodPost || v != "" && v != "1" {
		return 0
	}
	if h.Get("Content-Encoding") != "" {
		return 0
	}
	if _, ok := timeoutOf(h); !ok {
		return 0
	}
	switch h.Get("Content-Type") {
	case "application/json":
		return codecJSON
	case "application/proto":
		return codecProto
	}
	return 0
}

func (b *inputBuffers) parseSendInput(c codec, message []byte, req *pb.SendInputRequest) bool {
	if c == codecJSON {
		p := inputParser{b: message, payload: &b.payload}
		return p.sendInput(req)
	}
	return protoFields(message, func(field protowire.Number, v []byte) bool {
		switch {
		case field == 1 && req.Process == nil:
			req.Process = new(pb.ProcessSelector)
			return protocol.CheckProto(v, req.Process) == nil && proto.Unmarshal(v, req.Process) == nil
		case field == 2 && req.Input == nil:
			req.Input = new(pb.ProcessInput)
			return protoInput(v, req.Input)
		}
		return false
	})
}

func (b *inputBuffers) parseStreamInput(c codec, message []byte, req *pb.StreamInputRequest) bool {
	if c == codecJSON {
		p := inputParser{b: message, payload: &b.payload}
		return p.streamInput(req)
	}
	return protoFields(message, func(field protowire.Number, v []byte) bool {
		if field != 2 || req.Event != nil { // start and keepalive are rare
			return false
		}
		data := new(pb.StreamInputRequest_DataEvent)
		req.Event = &pb.StreamInputRequest_Data{Data: data}
		return protoFields(v, func(field protowire.Number, v []byte) bool {
			if field != 2 || data.Input != nil {
				return false
			}
			data.Input = new(pb.ProcessInput)
			return protoInput(v, data.Input)
		})
	})
}

// protoInput reads a ProcessInput without copying its payload.
func protoInput(b []byte, in *pb.ProcessInput) bool {
	return protoFields(b, func(field protowire.Number, v []byte) bool {
		switch {
		case in.Input != nil:
			return false
		case field == 1:
			in.Input = &pb.ProcessInput_Stdin{Stdin: v}
			return true
		case field == 2:
			in.Input = &pb.ProcessInput_Pty{Pty: v}
			return true
		}
		return false
	})
}

// protoFields calls back with each field of a message that has only fields
// with a length, and reports false for any other message.
func protoFields(b []byte, field func(protowire.Number, []byte) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return false
		}
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 || !field(num, v) {
			return false
		}
		b = b[n+m:]
	}
	return true
}
