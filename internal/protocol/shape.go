package protocol

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// MaxFields bounds the fields of one message, those inside others included:
	// the arguments and variables that a process may have, three for each. A
	// field of two bytes becomes an object of a hundred.
	MaxFields = 3*(1<<16) + 1<<16 + 4096
	// MaxDepth is the deepest nesting of JSON text. The decoders go 10,000 deep, and a
	// stack that has grown stays with its stream.
	MaxDepth = 100
	// maxNesting is how deep messages are looked into. None of ours is deeper.
	maxNesting = 16
)

const (
	// madeOfMessage is how many bytes are held for each byte of a message that is read and
	// decoded, and madeOfField how many of them are objects for fields at most, of which a byte
	// may be half a one; madeOfFields, how many all fields of a message take at most.
	madeOfMessage = 3
	madeOfField   = 13
	madeOfFields  = MaxFields * 128
)

// Decoding is how many bytes are held for a message of size bytes that is decoded.
func Decoding(size int64) int64 { return size*madeOfMessage + min(size*madeOfField, madeOfFields) }

// FieldsError refuses a message of too many fields.
type FieldsError struct{}

func (*FieldsError) Error() string {
	return fmt.Sprintf("the message has more than %d fields (array elements and map entries are fields, too)", MaxFields)
}

// DepthError refuses JSON text that is nested too deep.
type DepthError struct{}

func (*DepthError) Error() string {
	return fmt.Sprintf("the message is nested deeper than %d levels of arrays and objects, which is the limit", MaxDepth)
}

// GroupError refuses a binary message with a group, the one form that nests without the
// message's type saying so. No message of ours has one.
type GroupError struct{ Field protowire.Number }

func (e *GroupError) Error() string {
	return fmt.Sprintf("field %d of the message is a protobuf group; send no groups", e.Field)
}

// CheckJSON refuses JSON text of too many fields, or nested too deep, before it is decoded.
func CheckJSON(text []byte) error {
	if len(text) <= MaxDepth {
		return nil
	}
	n, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case ',', ':':
			n++
		case '[', '{':
			n++
			if depth++; depth > MaxDepth {
				return new(DepthError)
			}
		case ']', '}':
			depth--
		}
	}
	if n > MaxFields {
		return new(FieldsError)
	}
	return nil
}

// CheckProto refuses a message in binary protobuf that has too many fields, or a group,
// before it is decoded. What is otherwise malformed is left to the decoder.
func CheckProto(b []byte, m proto.Message) error {
	left := MaxFields
	return countFields(b, m.ProtoReflect().Descriptor(), maxNesting, &left)
}

func countFields(b []byte, m protoreflect.MessageDescriptor, depth int, left *int) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if *left--; *left < 0 {
			return new(FieldsError)
		}
		if kind == protowire.StartGroupType {
			return &GroupError{num} // before ConsumeFieldValue, which goes as deep as groups do
		}
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			return nil
		}
		if f := m.Fields().ByNumber(num); kind == protowire.BytesType && f != nil && f.Kind() == protoreflect.MessageKind && depth > 0 {
			if inner, k := protowire.ConsumeBytes(b); k >= 0 {
				if err := countFields(inner, f.Message(), depth-1, left); err != nil {
					return err
				}
			}
		}
		b = b[n:]
	}
	return nil
}

// Codecs make connect check the shape of messages before it decodes them.
func Codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(ProtoCodec{}), connect.WithCodec(jsonCodec{"json", false}), connect.WithCodec(jsonCodec{"json; charset=utf-8", false}))
}

// StrictCodecs are [Codecs] that refuse unknown names in JSON, so that a misspelt name
// does not silently become the default.
func StrictCodecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(ProtoCodec{}), connect.WithCodec(jsonCodec{"json", true}), connect.WithCodec(jsonCodec{"json; charset=utf-8", true}))
}

var errNoMessage = errors.New("not a protobuf message")

// ProtoCodec is connect's codec of binary protobuf with [CheckProto] before it.
type ProtoCodec struct{}

func (ProtoCodec) Name() string { return "proto" }

func (c ProtoCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (ProtoCodec) MarshalAppend(b []byte, m any) ([]byte, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return proto.MarshalOptions{}.MarshalAppend(b, msg)
}

func (ProtoCodec) Unmarshal(b []byte, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return errNoMessage
	}
	if err := CheckProto(b, msg); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, msg); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", m, err)
	}
	return nil
}

// jsonCodec is connect's codec of protobuf in JSON with [CheckJSON] before it.
type jsonCodec struct {
	name   string
	strict bool
}

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (jsonCodec) MarshalAppend(b []byte, m any) ([]byte, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return protojson.MarshalOptions{}.MarshalAppend(b, msg)
}

func (c jsonCodec) Unmarshal(b []byte, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return errNoMessage
	}
	if len(b) == 0 {
		return errors.New("zero-length payload is not a valid JSON object")
	}
	if err := CheckJSON(b); err != nil {
		return err
	}
	// Unless strict, unknown fields and words are dropped: client and server need not
	// have the same version of the messages.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: !c.strict}).Unmarshal(b, msg); err != nil {
		return fmt.Errorf("unmarshal into %T: %w", m, err)
	}
	return nil
}
