package relay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Codes of JSON-RPC.
const (
	codeParse    = -32700
	codeInvalid  = -32600
	codeInternal = -32603
)

var errBrokeOff = errors.New("the answer broke off")

// answer reads the answer to one attempt. Notifications on the way are passed on; event
// is where an answer continues that breaks off.
func (r *Relay) answer(m *message, resp *http.Response, event *string, progress func()) ([]byte, error) {
	defer resp.Body.Close()
	kind := resp.Header.Get("Content-Type")
	switch {
	case resp.StatusCode == http.StatusAccepted, resp.StatusCode == http.StatusNoContent:
		progress()
		return nil, nil
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusBadGateway,
		resp.StatusCode == http.StatusGatewayTimeout:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // a hint
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	case !bytes.HasPrefix([]byte(kind), []byte("text/event-stream")):
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
		if err != nil {
			return nil, err
		}
		return plain(m, resp, text), nil
	}
	progress()
	if m.Method == "subscriptions/listen" {
		*event = "" // it begins again
	}
	return r.events(m, bufio.NewReaderSize(resp.Body, 64<<10), event, progress)
}

// plain is an answer that is no stream, in the form of the protocol.
func plain(m *message, resp *http.Response, text []byte) []byte {
	var a struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Message string          `json:"message"`
		Error   *struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data,omitempty"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(text, &a); {
	case err != nil:
		return failure(m.ID, codeInvalid, fmt.Sprintf("%s: %.300s", resp.Status, bytes.TrimSpace(text)))
	case a.JSONRPC != "" && a.Error == nil && bytes.Equal(a.ID, m.ID):
		return oneLine(text)
	case a.Error != nil:
		answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": a.Error})
		if err != nil { // impossible: it was just decoded
			return failure(m.ID, codeInternal, err.Error())
		}
		return answer
	}
	return failure(m.ID, codeInvalid, resp.Status+": "+a.Message)
}

func oneLine(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return bytes.TrimSpace(text)
	}
	return b.Bytes()
}

// events reads a stream of events up to the answer.
func (r *Relay) events(m *message, in *bufio.Reader, event *string, progress func()) ([]byte, error) {
	var id string
	var data []byte
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBrokeOff, err)
		}
		progress()
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) > 0 && string(name) == "id":
			id = string(value)
		case len(line) > 0 && string(name) == "data":
			data = append(data, value...)
		case len(line) > 0:
		default:
			if id != "" && m.Method != "subscriptions/listen" {
				*event = id
			}
			if len(data) > 0 {
				var what struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}
				if err := json.Unmarshal(data, &what); err != nil {
					return nil, fmt.Errorf("an event that is no message: %w", err)
				}
				if what.Method == "" && bytes.Equal(what.ID, m.ID) {
					r.agreed(m, data)
					return data, nil
				}
				r.write(data)
			}
			id, data = "", nil
		}
	}
}

// agreed notes the version of the protocol that the answer to initialize names.
func (r *Relay) agreed(m *message, answer []byte) {
	if m.Method != "initialize" {
		return
	}
	var a struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &a) == nil && a.Result.Version != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.version = a.Result.Version
	}
}

func failure(id json.RawMessage, code int, text string) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil { // the id is valid JSON
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"an error that cannot be said"}}`)
	}
	return b
}
