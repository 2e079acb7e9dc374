package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The vectors come from the serializer of distant 0.20.0.
const (
	minimalSpawn = "82a26964a131a77061796c6f616482a474797065aa70726f635f737061776ea3636d64a26c73"
	fullSpawn    = "82a26964a131a77061796c6f616485a474797065aa70726f635f737061776ea3636d64a76563686f206869ab656e7669726f6e6d656e7481a141a162ab63757272656e745f646972a42f746d70a370747984a4726f777318a4636f6c7350ab706978656c5f776964746800ac706978656c5f68656967687400"
	batch        = "83a668656164657281a873657175656e6365c3a26964a136a77061796c6f61649281a474797065a776657273696f6e81a474797065ab73797374656d5f696e666f"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := proctest.Value(hex.DecodeString(s))(t)
	return b
}

// tree is a value as Go's encoding/json would decode it, bytes as a string.
func tree(v Value) any {
	switch {
	case v.Null():
		return nil
	case v.IsObject():
		out := map[string]any{}
		fields, err := v.Object()
		if err != nil {
			return err.Error()
		}
		for _, f := range fields {
			out[f.Name] = tree(f.Value)
		}
		return out
	case v.IsArray():
		out := []any{}
		values, err := v.Array()
		if err != nil {
			return err.Error()
		}
		for _, v := range values {
			out = append(out, tree(v))
		}
		return out
	}
	if s, err := v.Str(); err == nil {
		return s
	}
	if b, err := v.Bool(); err == nil {
		return b
	}
	if n, err := v.Uint(1<<64 - 1); err == nil {
		return float64(n)
	}
	return "something else"
}

func TestRequestVectors(t *testing.T) {
	for _, tc := range []struct{ name, hex, want string }{
		{"a minimal proc_spawn", minimalSpawn, `{"id":"1","payload":{"type":"proc_spawn","cmd":"ls"}}`},
		{"a whole proc_spawn", fullSpawn, `{"id":"1","payload":{"type":"proc_spawn","cmd":"echo hi","environment":{"A":"b"},"current_dir":"/tmp","pty":{"rows":24,"cols":80,"pixel_width":0,"pixel_height":0}}}`},
		{"a batch in sequence", batch, `{"header":{"sequence":true},"id":"6","payload":[{"type":"version"},{"type":"system_info"}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			packed := proctest.Value(ParsePack(unhex(t, tc.hex)))(t)
			text := proctest.Value(ParseJSON([]byte(tc.want)))(t)
			var want any
			proctest.Must(t, json.Unmarshal([]byte(tc.want), &want))
			for _, v := range []Value{packed, text} {
				if diff := cmp.Diff(want, tree(v)); diff != "" {
					t.Error(diff)
				}
			}
			req, err := ParseRequest(packed)
			if err != nil || req.Batch != (tc.hex == batch) || req.Sequence != req.Batch || len(req.Payloads) == 0 {
				t.Errorf("%+v, %v", req, err)
			}
		})
	}
}

func TestWritersAgree(t *testing.T) {
	write := func(w Writer) Value {
		w.Object(6)
		w.Key("strings").Array(3)
		for _, s := range []string{"", "plain", "quo\"te \\ \n é 🦀 \x7f " + strings.Repeat("x", 300)} {
			w.Str(s)
		}
		w.EndArray()
		w.Key("numbers").Array(0)
		w.EndArray()
		w.Key("uints").Array(6)
		for _, n := range []uint64{0, 127, 128, 255, 65535, 1 << 32} {
			w.Uint(n)
		}
		w.EndArray()
		w.Key("yes").Bool(true)
		w.Key("nothing").Null()
		w.Key("inner").Object(1)
		w.Key("a").Int(5)
		w.EndObject()
		w.EndObject()
		var v Value
		var err error
		if _, isJSON := w.(*jsonWriter); isJSON {
			v, err = ParseJSON(w.Buffer())
		} else {
			v, err = ParsePack(w.Buffer())
		}
		if err != nil {
			t.Fatalf("%q: %v", w.Buffer(), err)
		}
		return v
	}
	if diff := cmp.Diff(tree(write(NewJSON(nil))), tree(write(NewPack(nil)))); diff != "" {
		t.Error(diff)
	}
}

func TestBytes(t *testing.T) {
	all := make([]byte, 0, 768)
	for i := range 768 {
		all = append(all, byte(i))
	}
	for _, data := range [][]byte{{}, {0}, {255}, all} {
		v := proctest.Value(ParseJSON(AppendByteArray(nil, data)))(t)
		w := NewPack(nil)
		w.Bytes(data)
		p := proctest.Value(ParsePack(w.Buffer()))(t)
		for _, v := range []Value{v, p} {
			if got, err := v.Bytes(); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes became %d, %v", len(data), len(got), err)
			}
		}
	}
	for _, tc := range []struct {
		text string
		want string // "": an error
	}{
		{`[104, 105]`, "hi"}, {`"hé"`, "hé"}, {`[ 1 , 2 ]`, "\x01\x02"},
		{`[256]`, ""}, {`[-1]`, ""}, {`[1.0]`, ""}, {`[1e1]`, ""}, {`["a"]`, ""}, {`[[1]]`, ""}, {`7`, ""}, {`[1234]`, ""}, {`[00001]`, ""},
	} {
		v, err := ParseJSON([]byte(tc.text))
		var got []byte
		if err == nil {
			got, err = v.Bytes()
		}
		if (err != nil) != (tc.want == "") || string(got) != tc.want && err == nil {
			t.Errorf("%s became %q, %v", tc.text, got, err)
		}
	}
}

func TestWidths(t *testing.T) {
	for _, tc := range []struct {
		hex string
		ok  bool
	}{
		{"05", true}, {"cc05", true}, {"cd0005", true}, {"ce00000005", true}, {"cf0000000000000005", true},
		{"d005", true}, {"d10005", true}, {"d200000005", true}, {"d30000000000000005", true},
		{"ff", false}, {"d0ff", false}, {"ca40a00000", false}, {"a135", false},
	} {
		v := proctest.Value(ParsePack(unhex(t, tc.hex)))(t)
		if n, err := v.Uint(255); (err == nil) != tc.ok || tc.ok && n != 5 {
			t.Errorf("%s became %d, %v", tc.hex, n, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, b := range []string{"", "c1", "a2", "81a161", "dd00ffffff", "dfffffffff", "0505", "c4ff00", strings.Repeat("91", 40) + "00"} {
		if v, err := ParsePack(unhex(t, b)); err == nil {
			t.Errorf("%s was taken for %v", b, tree(v))
		}
	}
	for _, text := range []string{"", "{", "{} {}", "\xff", strings.Repeat("[", 40) + strings.Repeat("]", 40), `{"a":1,}`} {
		if v, err := ParseJSON([]byte(text)); err == nil {
			t.Errorf("%s was taken for %v", text, tree(v))
		}
	}
	for _, text := range []string{`{"id":"1"}`, `{"payload":{}}`, `{"id":1,"payload":{}}`, `{"id":"1","id":"2","payload":{}}`, `{"id":"1","payload":{},"x":1}`, `{"id":"1","payload":{},"header":{"sequence":1}}`, `[]`} {
		v := proctest.Value(ParseJSON([]byte(text)))(t)
		if req, err := ParseRequest(v); err == nil {
			t.Errorf("%s was taken for %+v", text, req)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"type":"proc_spawn","cmd":"ls","pty":{"rows":1,"cols":2}}`, `[1,2,[3,{"a":null}],"x\"\\\u00e9",true,1.5,-3e4]`, ` { "a" : [ ] , "b" : { } } `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseJSON(b)
		if err != nil {
			return
		}
		walk(v)
		var want any
		if json.Unmarshal(b, &want) != nil {
			t.Fatalf("%q is no JSON, and was taken", b)
		}
		if s, ok := want.(string); ok {
			if got, err := v.Str(); err != nil || got != s {
				t.Errorf("%q became %q, %v", s, got, err)
			}
		}
		if a, ok := want.([]any); ok {
			if got, err := v.Array(); err != nil || len(got) != len(a) {
				t.Errorf("%d entries became %d, %v", len(a), len(got), err)
			}
		}
	})
}

func FuzzPack(f *testing.F) {
	for _, s := range []string{minimalSpawn, fullSpawn, batch, "dfffffffff", "c7030102ff"} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ParsePack(b); err == nil {
			walk(v)
		}
	})
}

// walk asks for everything: nothing may panic.
func walk(v Value) {
	v.Null()
	v.Str()
	v.Uint(255)
	v.Bool()
	v.Bytes()
	ParseRequest(v)
	if values, err := v.Array(); err == nil {
		for _, v := range values {
			walk(v)
		}
	}
	if fields, err := v.Object(); err == nil {
		for _, f := range fields {
			walk(f.Value)
		}
	}
}
