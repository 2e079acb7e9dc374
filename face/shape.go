package face

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
	// fewFields is the size of messages that are not looked at, in bytes: they
	// cannot have many.
	fewFields = 64 << 10
	// maxNesting is how deep messages are looked into. None of ours is deeper.
	maxNesting = 16
)

// FieldsError refuses a message of too many fields.
type FieldsError struct{}

func (*FieldsError) Error() string {
	return fmt.Sprintf("the message has more than %d fields (array elements and map entries are fields, too)", MaxFields)
}

// CheckJSON refuses JSON text of too many fields before it is decoded.
func CheckJSON(text []byte) error {
	if len(text) <= fewFields {
		return nil
	}
	n := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case ',', ':', '[', '{':
			n++
		}
	}
	if n > MaxFields {
		return new(FieldsError)
	}
	return nil
}

// CheckProto refuses a message in binary protobuf that has too many fields,
// before it is decoded. What is malformed is left to the decoder.
func CheckProto(b []byte, m proto.Message) error {
	if len(b) <= fewFields {
		return nil
	}
	left := MaxFields
	countFields(b, m.ProtoReflect().Descriptor(), maxNesting, &left)
	if left < 0 {
		return new(FieldsError)
	}
	return nil
}

func countFields(b []byte, m protoreflect.MessageDescriptor, depth int, left *int) {
	for len(b) > 0 && *left >= 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		*left--
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			return
		}
		if f := m.Fields().ByNumber(num); kind == protowire.BytesType && f != nil && f.Kind() == protoreflect.MessageKind && depth > 0 {
			if inner, k := protowire.ConsumeBytes(b); k >= 0 {
				countFields(inner, f.Message(), depth-1, left)
			}
		}
		b = b[n:]
	}
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
