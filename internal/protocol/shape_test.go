package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestDeepMessagesAreRefused: by what they are, before a decoder goes as deep as they do.
func TestDeepMessagesAreRefused(t *testing.T) {
	deep := func(n int) []byte {
		return []byte(`{"unknown":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	for _, strict := range []bool{false, true} {
		err := jsonCodec{"json", strict}.Unmarshal(deep(MaxDepth+1), new(emptypb.Empty))
		if _, ok := errors.AsType[*DepthError](err); !ok {
			t.Errorf("JSON that is too deep (strict: %v): %v", strict, err)
		}
	}
	var v any
	if _, ok := errors.AsType[*DepthError](DecodeJSON(deep(9000), &v)); !ok {
		t.Error("JSON that is too deep is decoded")
	}
	wide := []byte("[" + strings.Repeat(`[{"]":"[[["}],`, 10*MaxDepth) + "1]")
	for _, text := range [][]byte{deep(MaxDepth), wide} {
		if err := DecodeJSON(text, &v); err != nil {
			t.Errorf("JSON of %d bytes that is not too deep: %v", len(text), err)
		}
	}
	groups := append(bytes.Repeat([]byte{0x0b}, 9000), bytes.Repeat([]byte{0x0c}, 9000)...)
	inner := append(protowire.AppendTag(nil, 1, protowire.BytesType), protowire.AppendBytes(nil, groups)...)
	for _, b := range [][]byte{groups, inner} {
		group, ok := errors.AsType[*GroupError](ProtoCodec{}.Unmarshal(b, new(structpb.Struct)))
		if !ok || group.Field != 1 {
			t.Errorf("groups of %d bytes are decoded", len(b))
		}
	}
}

// FuzzShape: the checks end without a panic, and what passes them decodes to no
// more fields than they allow.
func FuzzShape(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,"x\"y"],"b":{"c":"d"}}`), 1)
	f.Add([]byte("\x0a\x02\x0a\x00"), 1000)
	f.Add([]byte(`"\`), 70000)
	f.Add([]byte(`[[`), 200000)
	f.Fuzz(func(t *testing.T, b []byte, times int) {
		if times < 1 || times > 1<<18 || len(b)*times > 1<<20 {
			return
		}
		b = []byte(strings.Repeat(string(b), times))
		var m structpb.Struct
		if CheckProto(b, &m) == nil && proto.Unmarshal(b, &m) == nil && len(m.GetFields()) > MaxFields {
			t.Errorf("%d fields passed", len(m.GetFields()))
		}
		var v []json.RawMessage
		if CheckJSON(b) == nil && json.Unmarshal(b, &v) == nil && len(v) > MaxFields {
			t.Errorf("%d elements passed", len(v))
		}
	})
}
