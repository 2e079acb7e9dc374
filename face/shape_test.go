package face

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

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
