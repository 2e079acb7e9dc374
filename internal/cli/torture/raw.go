//go:build linux

package torture

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// The raw clients know the wire alone: Connect's envelopes (a flag byte, a length,
// JSON), and how each face resumes a stream at an offset. They check one process's
// stdout from its first byte to its end.

// rawEvent is one message of either face, in its JSON form.
type rawEvent struct {
	data   string // base64
	offset int64  // -1: the face does not say
	exited bool
	code   int
}

// errCut: the stream broke. It can be resumed at the offset reached.
var errCut = errors.New("the stream was cut")

// rawFace is one protocol.
type rawFace struct {
	name string
	path string
	body func(id string, pid int, at int64) (string, map[string]string)
}

var nativeFace = rawFace{
	name: "native", path: "/tend.v1.ProcessService/Read",
	body: func(id string, _ int, at int64) (string, map[string]string) {
		return fmt.Sprintf(`{"process":{"id":%q},"streams":["STREAM_STDOUT"],"from":[{"stream":"STREAM_STDOUT","offset":"%d"}]}`, id, at), nil
	},
}

var envdFace = rawFace{
	name: "envd", path: "/process.Process/Connect",
	body: func(_ string, pid int, at int64) (string, map[string]string) {
		return fmt.Sprintf(`{"process":{"pid":%d}}`, pid), map[string]string{"Tend-From": fmt.Sprintf("stdout=%d", at)}
	},
}

// parseRaw reads a message of either face: output and exited are the native one's, data and end
// envd's.
func parseRaw(msg []byte) (rawEvent, error) {
	var m struct {
		Event struct {
			Output *struct{ Offset, Data string }
			Exited *struct{ Code int }
			Data   *struct{ Stdout string }
			End    *struct{ ExitCode int }
		}
	}
	ev := rawEvent{offset: -1}
	err := json.Unmarshal(msg, &m)
	if o := m.Event.Output; o != nil {
		ev.data = o.Data
		ev.offset, _ = strconv.ParseInt("0"+o.Offset, 10, 64)
	}
	if e := m.Event.Exited; e != nil {
		ev.exited, ev.code = true, e.Code
	}
	if d := m.Event.Data; d != nil {
		ev.data = d.Stdout
	}
	if e := m.Event.End; e != nil {
		ev.exited, ev.code = true, e.ExitCode
	}
	return ev, err
}

// follow reads to the exit and checks every byte. It connects again, at the
// offset reached, as often as it must.
func (f *rawFace) follow(ctx context.Context, b *bench, id string, pid int, n int64, code int) error {
	at := int64(0)
	for {
		done, err := f.once(ctx, b, id, pid, &at, n, code)
		switch {
		case done:
			return nil
		case err != nil && !errors.Is(err, errCut):
			return fmt.Errorf("%s, at byte %d: %w", f.name, at, err)
		case ctx.Err() != nil:
			return fmt.Errorf("%s, at byte %d of %d: %w (last: %v)", f.name, at, n, ctx.Err(), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// request is the one that opens the stream.
func (f *rawFace) request(ctx context.Context, url, id string, pid int, at int64) (*http.Request, error) {
	body, header := f.body(id, pid, at)
	var frame bytes.Buffer
	frame.WriteByte(0)
	binary.Write(&frame, binary.BigEndian, uint32(len(body)))
	frame.WriteString(body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+f.path, &frame)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/connect+json")
	req.Header.Set("Connect-Protocol-Version", "1")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	return req, nil
}

// stall opens the stream and never reads it.
func (f *rawFace) stall(ctx context.Context, b *bench, id string, pid int) {
	req, err := f.request(ctx, b.url, id, pid, 0)
	if err != nil {
		return
	}
	var wire bytes.Buffer
	if req.Write(&wire) == nil {
		stall(ctx, req.URL.Host, wire.Bytes())
	}
}

func (f *rawFace) once(ctx context.Context, b *bench, id string, pid int, at *int64, n int64, code int) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := func() {}
	if b.cut { // a half-open connection delivers nothing: give it up then
		silence := time.AfterFunc(shortSilence, cancel)
		defer silence.Stop()
		heard = func() { silence.Reset(shortSilence) }
	}
	req, err := f.request(ctx, b.url, id, pid, *at)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errCut, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("status %s", resp.Status)
	}
	for {
		var head [5]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			return false, fmt.Errorf("%w: %w", errCut, err)
		}
		heard()
		msg := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, msg); err != nil {
			return false, fmt.Errorf("%w: %w", errCut, err)
		}
		if head[0]&2 != 0 { // the end of the stream, with its error
			return false, endOfStream(msg)
		}
		ev, err := parseRaw(msg)
		if err != nil {
			return false, err
		}
		data, err := base64.StdEncoding.DecodeString(ev.data)
		if err != nil {
			return false, err
		}
		if len(data) > 0 && ev.offset >= 0 && ev.offset != *at {
			return false, fmt.Errorf("the server says offset %d", ev.offset)
		}
		if err := Check(data, *at); err != nil {
			return false, err
		}
		*at += int64(len(data))
		if ev.exited {
			if *at != n || ev.code != code {
				return false, fmt.Errorf("ended after %d bytes with status %d; want %d and %d", *at, ev.code, n, code)
			}
			return true, nil
		}
	}
}

// endOfStream separates ends that are worth another try from those that are not.
func endOfStream(msg []byte) error {
	var end struct {
		Error *struct{ Code, Message string } `json:"error"`
	}
	if err := json.Unmarshal(msg, &end); err != nil {
		return err
	}
	if end.Error == nil || end.Error.Code == "unavailable" || end.Error.Code == "canceled" {
		return errCut
	}
	return fmt.Errorf("%s: %s", end.Error.Code, end.Error.Message)
}
