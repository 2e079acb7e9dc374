package tend

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// maxWrite bounds the data of one write request in bytes: what the server accepts
// as a whole or not at all.
const maxWrite = process.MaxWhole

// writer is the name and position under which a handle writes. Any number of
// handles may write to one process, and each repeats what was lost on the way.
type writer struct {
	turn
	name   string // "": the next write begins again; held with turn
	offset int64  // of the next byte; held with turn
}

// Write sends input in requests of at most maxWrite, which are repeated when the
// answer is lost. Without an offset it is the handle that counts.
func (p *remote) Write(ctx context.Context, in process.Input) (process.Accepted, error) {
	if err := in.Validate(); err != nil {
		return process.Accepted{}, err
	}
	if in.Offset != nil {
		at := *in.Offset
		in.Offset = &at
		return p.writeParts(ctx, in)
	}
	if len(in.Data) == 0 { // closing does not wait for other writes
		at := int64(0)
		in.Writer, in.Offset = rand.Text(), &at
		return p.write(ctx, in)
	}
	w := &p.writer
	switch {
	case w.free():
	case in.NoWait: // nor for another write of this handle, which may wait for room
		return p.writeAs(ctx, rand.Text(), 0, in)
	default:
		if err := w.acquire(ctx); err != nil {
			return process.Accepted{}, err
		}
	}
	defer w.give()
	for {
		known := w.name != ""
		if !known {
			w.name, w.offset = rand.Text(), 0
		}
		accepted, err := p.writeAs(ctx, w.name, w.offset, in)
		switch {
		case err == nil:
			w.offset += int64(len(in.Data))
			return accepted, nil
		case known && errors.Is(err, errForgottenAtOnce):
			w.name = "" // nothing is open: all before was acknowledged
		default:
			w.name = ""
			return accepted, err
		}
	}
}

// writeAs sends a write under a name that is used no more if it fails. What is accepted
// of it then stays without its rest, and others do not wait for that.
func (p *remote) writeAs(ctx context.Context, name string, at int64, in process.Input) (process.Accepted, error) {
	in.Writer, in.Offset = name, &at
	accepted, err := p.writeParts(ctx, in)
	if err != nil && len(in.Data) > maxWrite && !errors.Is(err, errForgottenAtOnce) {
		p.endWrite(ctx, name)
	}
	return accepted, err
}

// endWithin bounds how long the end of a write that was given up is sent, beyond the life of
// the caller's context, and of the client.
const endWithin = 2 * time.Second

// endWrite tells the server that the rest of a write never comes. If it does not learn it,
// other writers wait for ten seconds. A part that is still on its way is not accepted any
// more: on a connection of HTTP/2 the server knows that it was cancelled before it reads this.
func (p *remote) endWrite(ctx context.Context, writer string) {
	p.client.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		defer cancel()
		_, _ = p.write(ctx, process.Input{Writer: writer, Offset: new(int64)})
	})
}

// writeParts sends a write with an offset, which it moves on.
func (p *remote) writeParts(ctx context.Context, in process.Input) (process.Accepted, error) {
	more := in.More
	for first := true; ; first = false {
		part, at := in, *in.Offset
		part.Offset = &at
		if len(part.Data) > maxWrite {
			part.Data, part.EOF = part.Data[:maxWrite], false
			part.More = part.Writer != ""
		} else {
			part.More = more
		}
		accepted, err := p.write(ctx, part)
		if err != nil {
			if !first && errors.Is(err, errForgottenAtOnce) { // what it followed is gone
				err = process.ErrWriterForgotten
			}
			return accepted, err
		}
		in.Data = in.Data[len(part.Data):]
		*in.Offset += int64(len(part.Data))
		if len(in.Data) == 0 {
			return accepted, nil
		}
	}
}

// forgottenAtOnce is an ErrWriterForgotten of a request that was sent once: it
// is known that nothing of it was accepted.
type forgottenAtOnce struct{ error }

var errForgottenAtOnce = errors.New("forgotten")

func (e forgottenAtOnce) Is(target error) bool { return target == errForgottenAtOnce }
func (e forgottenAtOnce) Unwrap() error        { return e.error }

// write sends one request, again and again while its answer is lost.
func (p *remote) write(ctx context.Context, in process.Input) (process.Accepted, error) {
	c := p.client
	msg := &tendv1.WriteRequest{Process: p.selector(), Data: in.Data, Eof: in.EOF, More: in.More, Again: in.Again, NoWait: in.NoWait}
	if in.Writer == "" {
		msg.Offset = in.Offset
	} else {
		msg.Writer, msg.WriterOffset = in.Writer, in.Offset
	}
	var accepted process.Accepted
	send := unary(c.rpc.Write, msg, func(m *tendv1.WriteResponse) error {
		if at, n := m.GetOffset(), m.GetWritten(); at < 0 || at > maxOffset || n < 0 || n > maxOffset {
			return strange("%d as the bytes of input, and %d as those of one writer", at, n)
		}
		accepted = process.Accepted{Offset: m.GetOffset(), Written: m.GetWritten()}
		return nil
	})
	tries := 0
	lost := func(err error) bool {
		// A server of a former version, which does not know writers, has appended
		// it, or not.
		return p.afterKill(err) || in.Writer != "" && !c.server.Load().GetInputWriters()
	}
	err := c.repeatCall(ctx, "write", lost, func(ctx context.Context) error {
		msg.Again = msg.Again || tries > 0
		tries++
		return send(ctx)
	})
	closed := errors.Is(err, process.ErrStdinClosed) || errors.Is(err, process.ErrExited)
	switch {
	case tries == 1 && errors.Is(err, process.ErrWriterForgotten):
		err = forgottenAtOnce{err}
	case tries > 1 && closed && in.EOF && len(in.Data) == 0:
		err = nil // closed by the very request whose answer was lost
	case tries > 1 && closed && in.Writer == "":
		// Perhaps by the very write whose answer was lost.
		end := *in.Offset + int64(len(in.Data))
		if info, e := p.Info(ctx); e == nil && info.Stdin.Accepted == end {
			return process.Accepted{Offset: end}, nil
		}
	}
	return accepted, err
}
