package langsmith

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/langsmith/transcode"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// abandoned is how long a command lives whose server has died under its request.
const abandoned = 10 * time.Second

// executeHTTP runs a command to its end: POST /execute. The output is written
// from the spool, so that its size costs no memory.
func (f *Face) executeHTTP(w http.ResponseWriter, r *http.Request, box driver.Sandbox) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxMessage)
	var req struct {
		executeRequest
		Timeout *seconds `json:"timeout"`
	}
	if err := decode(r, &req); err != nil {
		return err
	}
	info, err := box.Info(r.Context())
	if err != nil {
		return err
	}
	budget.Of(r.Context()).For(budget.Sandbox(info.ID))
	spec, err := req.executeRequest.spec(&info, false)
	if err != nil {
		return err
	}
	timeout := or(req.Timeout, defaultTimeout)
	if timeout < 0 {
		return requestErrorf("timeout is %v; a number of seconds is wanted, 0 for none", float64(timeout))
	}
	spec.Timeout = timeout.duration()
	// Nobody can find this command again: it ends with its request, also when
	// the server dies, whose reader it loses then.
	spec.Retention.TTL = time.Minute
	spec.KillWithoutReaders = abandoned
	p, err := f.start(r.Context(), box, spec)
	if err != nil {
		return err
	}
	budget.Of(r.Context()).Release()
	reader, err := p.Read(r.Context(), process.ReadOptions{})
	if err != nil {
		f.kill(p)
		return err
	}
	defer reader.Close()
	exit, err := waitExit(r.Context(), p)
	if err != nil {
		if r.Context().Err() != nil {
			f.kill(p)
		}
		return err
	}
	if err := endError(exit); err != nil {
		return err
	}
	writeResult(r.Context(), w, p, exit)
	return nil
}

// waitExit waits for the exit, and for the end of the output for a moment.
func waitExit(ctx context.Context, p process.Process) (*process.Exit, error) {
	res, err := p.Wait(ctx, process.Until{})
	if err != nil {
		return nil, err
	}
	if res.Exit == nil {
		return nil, process.ErrNotFound
	}
	short, cancel := context.WithTimeout(ctx, drainAfterExit)
	defer cancel()
	if _, err := p.Wait(short, process.Until{EOF: true}); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return res.Exit, nil
}

// writeResult answers with both streams and the code. What goes wrong now cuts
// the answer off, which no client takes for a whole one.
func writeResult(ctx context.Context, w http.ResponseWriter, p process.Process, exit *process.Exit) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// Without room for a large piece, many small ones are written.
	most := chunkSize
	if budget.Of(ctx).Add(2*chunkSize*transcode.MaxEscaped) != nil {
		most = protocol.SmallPiece
	}
	buf := []byte(`{"stdout":"`)
	var err error
	if buf, err = writeStream(ctx, w, buf, p, process.Stdout, most); err == nil {
		buf = append(buf, `","stderr":"`...)
		buf, err = writeStream(ctx, w, buf, p, process.Stderr, most)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	buf = append(buf, `","exit_code":`...)
	buf = strconv.AppendInt(buf, int64(exit.ShellStatus()), 10)
	_, _ = w.Write(append(buf, "}\n"...)) // the client may have left
}

// writeStream writes the text of one stream behind what is in buf, and returns
// what is still to be written. It reads at most so many bytes at a time.
func writeStream(
	ctx context.Context, w http.ResponseWriter, buf []byte, p process.Process, s process.Stream, most int,
) ([]byte, error) {
	var held []byte
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{s}, NoFollow: true, MaxChunk: most}) {
		switch {
		case err != nil:
			return buf, err
		case ev.Kind == process.EventGap:
			return buf, &process.GapError{Gap: ev.Gap}
		case ev.Kind != process.EventOutput:
			continue
		}
		raw := ev.Data
		if len(held) > 0 {
			raw = append(held, raw...)
		}
		n := transcode.Settled(raw)
		buf, _ = transcode.AppendJSON(buf, raw[:n])
		held = append([]byte(nil), raw[n:]...)
		if len(buf) >= most/2 {
			if _, err := w.Write(buf); err != nil {
				return buf, err
			}
			buf = buf[:0]
		}
	}
	buf, _ = transcode.AppendJSON(buf, held)
	return buf, nil
}
