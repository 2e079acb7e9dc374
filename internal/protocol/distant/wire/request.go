package wire

import "errors"

// Request is the envelope of one or more requests.
type Request struct {
	// ID is what the answers name as their origin. Opaque.
	ID string
	// Sequence: the requests run one after the other, up to the first error.
	Sequence bool
	// Batch: the payload is an array, and so is the answer's.
	Batch    bool
	Payloads []Value
	// Trace is what the header has of W3C Trace Context.
	Trace Trace
}

// Trace says for whom a request is made (www.w3.org/TR/trace-context).
type Trace struct{ Parent, State string }

// Get returns what it says under a key, "" if nothing.
func (t Trace) Get(key string) string {
	switch key {
	case "traceparent":
		return t.Parent
	case "tracestate":
		return t.State
	}
	return ""
}

// MaxBatch is the most requests of one envelope.
const MaxBatch = 1024

// ParseRequest takes an envelope apart. With an error the ID is set if it could
// be read, so that the error can name the request.
func ParseRequest(v Value) (Request, error) {
	var req Request
	fields, err := v.Object()
	if err != nil {
		return req, err
	}
	hasID, hasPayload := false, false
	for _, f := range fields {
		if f.Name == "id" {
			if req.ID, err = f.Value.Str(); err != nil {
				return req, in("id", err)
			}
			hasID = true
		}
	}
	for _, f := range fields {
		switch f.Name {
		case "id":
		case "header":
			if err := req.header(f.Value); err != nil {
				return req, err
			}
		case "payload":
			hasPayload = true
			if err := req.payload(f.Value); err != nil {
				return req, err
			}
		default:
			return req, &Error{Field: f.Name, Reason: "is not known in an envelope"}
		}
	}
	if !hasID {
		return req, &Error{Field: "id", Reason: "is missing"}
	}
	if !hasPayload {
		return req, &Error{Field: "payload", Reason: "is missing"}
	}
	return req, nil
}

// MaxTrace bounds what is kept of a trace context, in bytes of each of its two texts.
const MaxTrace = 512

// header may hold anything; only sequence means something, and the trace context.
func (req *Request) header(v Value) error {
	if v.Null() {
		return nil
	}
	fields, err := v.Object()
	if err != nil {
		return in("header", err)
	}
	for _, f := range fields {
		switch f.Name {
		case "sequence":
			if req.Sequence, err = f.Value.Bool(); err != nil {
				return in("header.sequence", err)
			}
		case "traceparent", "tracestate": // another's, if it is no text
			if text, err := f.Value.Str(); err == nil && len(text) <= MaxTrace {
				if f.Name == "traceparent" {
					req.Trace.Parent = text
				} else {
					req.Trace.State = text
				}
			}
		}
	}
	return nil
}

func (req *Request) payload(v Value) error {
	if !v.IsArray() {
		req.Payloads = []Value{v}
		return nil
	}
	req.Batch = true
	var err error
	if req.Payloads, err = v.Array(); err != nil {
		return in("payload", err)
	}
	if len(req.Payloads) > MaxBatch {
		return &Error{Field: "payload", Reason: "has too many requests; send at most 1024 at once"}
	}
	return nil
}

// in names the field that an error of a value is about.
func in(field string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	if e.Field != "" {
		field += "." + e.Field
	}
	return &Error{Field: field, Reason: e.Reason}
}

// In returns err, which a method of a [Value] has returned, with the name of
// the field that held the value.
func In(field string, err error) error { return in(field, err) }
