package wire

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// packValue is the encoding of one well-formed MessagePack value.
type packValue []byte

// ParsePack checks that b is exactly one MessagePack value and returns it.
func ParsePack(b []byte) (Value, error) {
	n, err := packEnd(b, MaxDepth)
	if err != nil {
		return nil, err
	}
	if n != len(b) {
		return nil, malformed("has %d bytes behind its end", len(b)-n)
	}
	return packValue(b), nil
}

type packKind uint8

const (
	packNil packKind = iota
	packBool
	packUint
	packInt
	packFloat
	packStr
	packBin
	packArray
	packMap
	packExt
)

var packNames = [...]string{"nil", "a boolean", "an integer", "an integer", "a float", "a string", "bytes", "an array",
	"a map", "an extension"}

// packHead reads the first bytes of a value: its kind, the length of the head,
// and what the head says: a number, or how many bytes or values follow.
func packHead(b []byte) (kind packKind, head int, n uint64, err error) {
	if len(b) == 0 {
		return 0, 0, 0, malformed("breaks off")
	}
	c := b[0]
	switch {
	case c < 0x80:
		return packUint, 1, uint64(c), nil
	case c < 0x90:
		return packMap, 1, uint64(c & 0x0f), nil
	case c < 0xa0:
		return packArray, 1, uint64(c & 0x0f), nil
	case c < 0xc0:
		return packStr, 1, uint64(c & 0x1f), nil
	case c >= 0xe0:
		return packInt, 1, uint64(int64(int8(c))), nil
	}
	// After the marker: a big-endian number of this many bytes.
	var size int
	extra := uint64(0)
	switch c {
	case 0xc0:
		return packNil, 1, 0, nil
	case 0xc2, 0xc3:
		return packBool, 1, uint64(c & 1), nil
	case 0xc4, 0xc5, 0xc6:
		kind, size = packBin, 1<<(c-0xc4)
	case 0xc7, 0xc8, 0xc9:
		kind, size, extra = packExt, 1<<(c-0xc7), 1 // the type
	case 0xca, 0xcb:
		kind, size = packFloat, 4<<(c-0xca)
	case 0xcc, 0xcd, 0xce, 0xcf:
		kind, size = packUint, 1<<(c-0xcc)
	case 0xd0, 0xd1, 0xd2, 0xd3:
		kind, size = packInt, 1<<(c-0xd0)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return packExt, 1, 1<<(c-0xd4) + 1, nil
	case 0xd9, 0xda, 0xdb:
		kind, size = packStr, 1<<(c-0xd9)
	case 0xdc, 0xdd:
		kind, size = packArray, 2<<(c-0xdc)
	case 0xde, 0xdf:
		kind, size = packMap, 2<<(c-0xde)
	default:
		return 0, 0, 0, malformed("has the byte 0xc1, which MessagePack does not use")
	}
	if len(b) < 1+size {
		return 0, 0, 0, malformed("breaks off")
	}
	var wide [8]byte
	copy(wide[8-size:], b[1:1+size])
	n = binary.BigEndian.Uint64(wide[:]) + extra
	if kind == packInt {
		shift := 64 - 8*size
		n = uint64(int64(n<<shift) >> shift)
	}
	return kind, 1 + size, n, nil
}

// packEnd returns the length of the value that b begins with, and checks it.
func packEnd(b []byte, depth int) (int, error) {
	kind, head, n, err := packHead(b)
	if err != nil {
		return 0, err
	}
	switch kind {
	case packStr, packBin, packExt:
		if n > uint64(len(b)-head) {
			return 0, malformed("breaks off")
		}
		return head + int(n), nil
	case packArray, packMap:
		if depth == 0 {
			return 0, malformed("is nested deeper than %d levels", MaxDepth)
		}
		if kind == packMap {
			n *= 2
		}
		// Each value has at least one byte.
		if n > uint64(len(b)-head) {
			return 0, malformed("breaks off")
		}
		at := head
		for range n {
			size, err := packEnd(b[at:], depth-1)
			if err != nil {
				return 0, err
			}
			at += size
		}
		return at, nil
	}
	return head, nil
}

// read is packHead of a value that was checked.
func (v packValue) read() (packKind, []byte, uint64) {
	kind, head, n, _ := packHead(v)
	return kind, v[head:], n
}

func (v packValue) wrong(want string) error {
	kind, _, _ := v.read()
	return &Error{Reason: "is " + packNames[kind] + ", want " + want}
}

func (v packValue) Null() bool { return v[0] == 0xc0 }

func (v packValue) IsArray() bool {
	kind, _, _ := v.read()
	return kind == packArray
}

func (v packValue) IsObject() bool {
	kind, _, _ := v.read()
	return kind == packMap
}

func (v packValue) Str() (string, error) {
	kind, rest, _ := v.read()
	if kind != packStr {
		return "", v.wrong("a string")
	}
	if !utf8.Valid(rest) {
		return "", &Error{Reason: "is not UTF-8"}
	}
	return string(rest), nil
}

func (v packValue) Uint(max uint64) (uint64, error) {
	kind, _, n := v.read()
	if kind == packUint && n <= max || kind == packInt && n <= math.MaxInt64 && n <= max {
		return n, nil
	}
	return 0, v.wrong("an integer of 0 to " + strconv.FormatUint(max, 10))
}

func (v packValue) Bool() (bool, error) {
	if kind, _, n := v.read(); kind == packBool {
		return n == 1, nil
	}
	return false, v.wrong("true or false")
}

func (v packValue) Bytes() ([]byte, error) {
	kind, rest, n := v.read()
	switch kind {
	case packBin, packStr:
		return rest, nil
	case packArray:
	default:
		return nil, v.wrong("bytes")
	}
	out := make([]byte, 0, n)
	for range n {
		kind, head, b, _ := packHead(rest)
		if kind != packUint && kind != packInt || b > 255 {
			return nil, &Error{Reason: "holds something else than integers of 0 to 255"}
		}
		out = append(out, byte(b))
		rest = rest[head:]
	}
	return out, nil
}

func (v packValue) Array() ([]Value, error) {
	kind, rest, n := v.read()
	switch {
	case kind != packArray:
		return nil, v.wrong("an array")
	case n > MaxItems:
		return nil, &Error{Reason: "has more than " + strconv.Itoa(MaxItems) + " entries"}
	}
	out := make([]Value, 0, n)
	for range n {
		size, err := packEnd(rest, MaxDepth)
		if err != nil {
			return nil, err
		}
		out = append(out, packValue(rest[:size]))
		rest = rest[size:]
	}
	return out, nil
}

func (v packValue) Object() ([]Field, error) {
	kind, rest, n := v.read()
	switch {
	case kind != packMap:
		return nil, v.wrong("a map")
	case n > MaxItems:
		return nil, &Error{Reason: "has more than " + strconv.Itoa(MaxItems) + " entries"}
	}
	out := make([]Field, 0, n)
	for range n {
		size, err := packEnd(rest, MaxDepth)
		if err != nil {
			return nil, err
		}
		name, err := packValue(rest[:size]).Str()
		if err != nil {
			return nil, &Error{Reason: "has a key that is no string"}
		}
		rest = rest[size:]
		if size, err = packEnd(rest, MaxDepth); err != nil {
			return nil, err
		}
		out = append(out, Field{name, packValue(rest[:size])})
		rest = rest[size:]
	}
	return out, unique(out)
}
