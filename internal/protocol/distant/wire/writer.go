package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
)

// Writer appends one value after another to a buffer. Objects and arrays say
// their size at the start (MessagePack needs it) and are closed at the end
// (JSON needs it). It does not check that both are right.
type Writer interface {
	Object(n int)
	EndObject()
	Array(n int)
	EndArray()
	// Key is followed by its value: w.Key("id").Uint(7).
	Key(name string) Writer
	Str(s string)
	Uint(n uint64)
	Int(n int64)
	Bool(b bool)
	Null()
	Bytes(b []byte)
	// Buffer returns what was written.
	Buffer() []byte
}

// NewJSON returns a Writer that appends JSON to buf.
func NewJSON(buf []byte) Writer { return &jsonWriter{buf} }

// NewPack returns a Writer that appends MessagePack to buf.
func NewPack(buf []byte) Writer { return &packWriter{buf} }

// Map holds the keys and values of a map in turn, in the order in which they are
// written.
type Map []any

// List is an array of values.
type List []any

// Put writes a value: nil, a bool, a string, an int64, uint32 or uint64, bytes, a Map
// or a List.
func Put(w Writer, v any) {
	switch v := v.(type) {
	case nil:
		w.Null()
	case bool:
		w.Bool(v)
	case string:
		w.Str(v)
	case int64:
		w.Int(v)
	case uint32:
		w.Uint(uint64(v))
	case uint64:
		w.Uint(v)
	case []byte:
		w.Bytes(v)
	case Map:
		w.Object(len(v) / 2)
		for i := 0; i < len(v); i += 2 {
			Put(w.Key(v[i].(string)), v[i+1])
		}
		w.EndObject()
	case List:
		w.Array(len(v))
		for _, item := range v {
			Put(w, item)
		}
		w.EndArray()
	default:
		panic(fmt.Sprintf("wire: a %T is no value", v))
	}
}

// Pack returns a value in MessagePack.
func Pack(v any) []byte {
	w := NewPack(nil)
	Put(w, v)
	return w.Buffer()
}

type jsonWriter struct{ b []byte }

// next puts the comma in front of a value that is not the first one.
func (w *jsonWriter) next() {
	if n := len(w.b); n > 0 {
		switch w.b[n-1] {
		case '{', '[', ':', '\n':
		default:
			w.b = append(w.b, ',')
		}
	}
}

func (w *jsonWriter) Buffer() []byte { return w.b }

func (w *jsonWriter) Object(int) {
	w.next()
	w.b = append(w.b, '{')
}

func (w *jsonWriter) EndObject() { w.b = append(w.b, '}') }

func (w *jsonWriter) Array(int) {
	w.next()
	w.b = append(w.b, '[')
}

func (w *jsonWriter) EndArray() { w.b = append(w.b, ']') }

func (w *jsonWriter) Key(name string) Writer {
	w.Str(name)
	w.b = append(w.b, ':')
	return w
}

func (w *jsonWriter) Str(s string) {
	w.next()
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			w.quoted(s)
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, s...)
	w.b = append(w.b, '"')
}

// quoted leaves the rare characters to the standard library, which replaces
// what is not UTF-8.
func (w *jsonWriter) quoted(s string) {
	text, err := json.Marshal(s)
	if err != nil { // impossible: a string
		text = []byte(`""`)
	}
	w.b = append(w.b, text...)
}

func (w *jsonWriter) Uint(n uint64) {
	w.next()
	w.b = strconv.AppendUint(w.b, n, 10)
}

func (w *jsonWriter) Int(n int64) {
	w.next()
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *jsonWriter) Bool(b bool) {
	w.next()
	w.b = strconv.AppendBool(w.b, b)
}

func (w *jsonWriter) Null() {
	w.next()
	w.b = append(w.b, "null"...)
}

func (w *jsonWriter) Bytes(b []byte) {
	w.next()
	w.b = AppendByteArray(w.b, b)
}

type packWriter struct{ b []byte }

func (w *packWriter) Buffer() []byte { return w.b }
func (w *packWriter) EndObject()     {}
func (w *packWriter) EndArray()      {}
func (w *packWriter) Null()          { w.b = append(w.b, 0xc0) }

func (w *packWriter) Key(s string) Writer {
	w.Str(s)
	return w
}

func (w *packWriter) Object(n int) { w.head(n, 0x80, 15, 0, 0xde) }
func (w *packWriter) Array(n int)  { w.head(n, 0x90, 15, 0, 0xdc) }

// head writes a length: in the marker itself up to fix, else in 8 bits (if
// there is a marker for it), 16 or 32 bits.
func (w *packWriter) head(n int, fixMarker byte, fix int, marker8, marker16 byte) {
	switch {
	case n <= fix:
		w.b = append(w.b, fixMarker|byte(n))
	case marker8 != 0 && n < 1<<8:
		w.b = append(w.b, marker8, byte(n))
	case n < 1<<16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, marker16), uint16(n))
	default:
		w.b = binary.BigEndian.AppendUint32(append(w.b, marker16+1), uint32(n))
	}
}

func (w *packWriter) Str(s string) {
	w.head(len(s), 0xa0, 31, 0xd9, 0xda)
	w.b = append(w.b, s...)
}

func (w *packWriter) Bytes(b []byte) {
	w.b = append(AppendBinHead(w.b, len(b)), b...)
}

// AppendBinHead appends what stands in front of n bytes in MessagePack.
func AppendBinHead(b []byte, n int) []byte {
	w := packWriter{b}
	w.head(n, 0, -1, 0xc4, 0xc5)
	return w.b
}

func (w *packWriter) Uint(n uint64) {
	switch {
	case n < 1<<7:
		w.b = append(w.b, byte(n))
	case n < 1<<8:
		w.b = append(w.b, 0xcc, byte(n))
	case n < 1<<16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xcd), uint16(n))
	case n < 1<<32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xce), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xcf), n)
	}
}

func (w *packWriter) Int(n int64) {
	switch {
	case n >= 0:
		w.Uint(uint64(n))
	case n >= -32:
		w.b = append(w.b, byte(n))
	case n >= -1<<7:
		w.b = append(w.b, 0xd0, byte(n))
	case n >= -1<<15:
		w.b = binary.BigEndian.AppendUint16(append(w.b, 0xd1), uint16(n))
	case n >= -1<<31:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0xd2), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0xd3), uint64(n))
	}
}

func (w *packWriter) Bool(b bool) {
	if b {
		w.b = append(w.b, 0xc3)
	} else {
		w.b = append(w.b, 0xc2)
	}
}
