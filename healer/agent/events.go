package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// post sends a request as JSON, and returns the answer if its status is 200. The caller closes
// the body.
func (x *exchange) post(ctx context.Context, header http.Header, request any) (*http.Response, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, &ModelError{Kind: Invalid, Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.place.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &ModelError{Kind: Invalid, Err: err}
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	res, err := x.do(req)
	var mine *ModelError
	if errors.As(err, &mine) {
		return nil, mine
	}
	if err != nil {
		return nil, &ModelError{Kind: Unavailable, Err: err}
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return nil, refused(res.StatusCode, errorText(b))
	}
	return res, nil
}

// errorText finds the message in the body of an error: {"error": {"message"}} or
// {"error": "message"}.
func errorText(b []byte) string {
	var whole struct{ Error json.RawMessage }
	var shaped struct{ Message string }
	var text string
	switch {
	case json.Unmarshal(b, &whole) != nil || len(whole.Error) == 0:
		return string(b)
	case json.Unmarshal(whole.Error, &text) == nil:
		return text
	case json.Unmarshal(whole.Error, &shaped) == nil && shaped.Message != "":
		return shaped.Message
	}
	return string(whole.Error)
}

// readEvents reads server-sent events, and calls event with the data of each until it is done.
// The end of the body is no error between two events.
func readEvents(body io.Reader, event func(data []byte) (done bool, err error)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), maxAnswer)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) > 0 {
			// Other fields (event, id, retry) and comments say nothing here: the data has its type.
			if v, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				if data = append(append(data, bytes.TrimPrefix(v, []byte(" "))...), '\n'); len(data) > maxAnswer {
					return errLarge
				}
			}
			continue
		}
		if done, err := event(data); done || err != nil {
			return err
		}
		data = data[:0]
	}
	if err := lines.Err(); err != nil {
		var mine *ModelError
		if errors.As(err, &mine) {
			return mine
		}
		return &ModelError{Kind: Broken, Err: err}
	}
	if len(bytes.TrimSpace(data)) > 0 { // an event is whole only with the empty line after it
		return &ModelError{Kind: Broken, Message: "the stream ended in the middle of an event"}
	}
	return nil
}
