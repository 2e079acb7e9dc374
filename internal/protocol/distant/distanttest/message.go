package distanttest

import (
	"fmt"

	"github.com/tend-run/tend/internal/protocol/distant/wire"
)

// Message is one payload of a response.
type Message struct {
	Origin string
	Type   string
	ID     uint32
	Data   []byte // of output, blob and text
	// Of proc_done. Code is -1 if there is none.
	Success bool
	Code    int
	// Of error.
	Kind, Description string
	Fields            []wire.Field // all
}

// Receive returns the next message. Answers to batches come one by one.
func (c *Client) Receive() ([]Message, error) {
	frame, err := c.Frame()
	if err != nil {
		return nil, err
	}
	return Parse(frame)
}

// Parse reads a response as strictly as the real client: these keys, in this
// order, and no others.
func Parse(frame []byte) ([]Message, error) {
	v, err := wire.ParsePack(frame)
	if err != nil {
		return nil, err
	}
	fields, err := v.Object()
	if err != nil {
		return nil, err
	}
	if len(fields) != 3 || fields[0].Name != "id" || fields[1].Name != "origin_id" || fields[2].Name != "payload" {
		return nil, fmt.Errorf("a response with the fields %v", fields)
	}
	origin, err := fields[1].Value.Str()
	if err != nil {
		return nil, err
	}
	payloads := []wire.Value{fields[2].Value}
	if fields[2].Value.IsArray() {
		if payloads, err = fields[2].Value.Array(); err != nil {
			return nil, err
		}
	}
	out := make([]Message, len(payloads))
	for i, p := range payloads {
		if out[i], err = parseMessage(p); err != nil {
			return nil, err
		}
		out[i].Origin = origin
	}
	return out, nil
}

func parseMessage(v wire.Value) (m Message, err error) {
	m.Code = -1
	if m.Fields, err = v.Object(); err != nil {
		return m, err
	}
	for _, f := range m.Fields {
		var n uint64
		switch f.Name {
		case "type":
			m.Type, err = f.Value.Str()
		case "id":
			n, err = f.Value.Uint(1<<32 - 1)
			m.ID = uint32(n)
		case "data":
			m.Data, err = f.Value.Bytes()
		case "success":
			m.Success, err = f.Value.Bool()
		case "code":
			n, err = f.Value.Uint(1<<31 - 1)
			m.Code = int(n)
		case "kind":
			m.Kind, err = f.Value.Str()
		case "description":
			m.Description, err = f.Value.Str()
		}
		if err != nil {
			return m, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return m, nil
}
