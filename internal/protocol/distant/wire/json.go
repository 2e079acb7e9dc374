package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// jsonValue is the text of one well-formed value, without space around it.
type jsonValue []byte

// ParseJSON checks one JSON text and returns its value.
func ParseJSON(text []byte) (Value, error) {
	text = bytes.Trim(text, " \t\r\n")
	switch {
	case !utf8.Valid(text):
		return nil, malformed("is not UTF-8")
	case !json.Valid(text):
		return nil, malformed("is not one JSON value")
	}
	if _, depth := nested(text); depth > MaxDepth {
		return nil, malformed("is nested deeper than %d levels", MaxDepth)
	}
	return jsonValue(text), nil
}

// stringEnd returns the length of the string that text begins with.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// nested returns the length of the object or array that a well-formed text begins with,
// and its deepest nesting: 0 for any other value.
func nested(text []byte) (end, deepest int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringEnd(text[i:]) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, deepest
			}
		}
	}
	return len(text), deepest
}

// valueEnd returns the length of the value that text begins with.
func valueEnd(text []byte) int {
	switch text[0] {
	case '"':
		return stringEnd(text)
	case '{', '[':
		end, _ := nested(text)
		return end
	}
	if i := bytes.IndexAny(text, ",]} \t\r\n"); i >= 0 {
		return i
	}
	return len(text)
}

// skip drops white space and the separators between values.
func skip(text []byte) []byte {
	for len(text) > 0 {
		switch text[0] {
		case ' ', '\t', '\r', '\n', ',', ':':
			text = text[1:]
		default:
			return text
		}
	}
	return text
}

func (v jsonValue) wrong(want string) error {
	kind := "a number"
	switch v[0] {
	case '"':
		kind = "a string"
	case '{':
		kind = "an object"
	case '[':
		kind = "an array"
	case 't', 'f':
		kind = "a boolean"
	case 'n':
		kind = "null"
	}
	return &Error{Reason: "is " + kind + ", want " + want}
}

func (v jsonValue) Null() bool     { return v[0] == 'n' }
func (v jsonValue) IsArray() bool  { return v[0] == '[' }
func (v jsonValue) IsObject() bool { return v[0] == '{' }

func (v jsonValue) Str() (string, error) {
	if v[0] != '"' {
		return "", v.wrong("a string")
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), nil
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return "", &Error{Reason: "is no string: " + err.Error()}
	}
	return s, nil
}

func (v jsonValue) Uint(max uint64) (uint64, error) {
	n, err := strconv.ParseUint(string(v[:min(len(v), 24)]), 10, 64)
	if err != nil || len(v) > 24 || n > max {
		return 0, &Error{Reason: "is " + short(v) + ", want an integer of 0 to " + strconv.FormatUint(max, 10)}
	}
	return n, nil
}

func short(v []byte) string {
	if len(v) > 40 {
		return string(bytes.ToValidUTF8(v[:40], nil)) + "…"
	}
	return string(v)
}

func (v jsonValue) Bool() (bool, error) {
	switch v[0] {
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return false, v.wrong("true or false")
}

func (v jsonValue) Bytes() ([]byte, error) {
	if v[0] == '"' {
		s, err := v.Str()
		return []byte(s), err
	}
	if v[0] != '[' {
		return nil, v.wrong("an array of numbers")
	}
	// Most numbers have three characters and a comma.
	out := make([]byte, 0, len(v)/3)
	for rest := skip(v[1:]); rest[0] != ']'; rest = skip(rest) {
		n, i := 0, 0
		for i < 4 && rest[i] >= '0' && rest[i] <= '9' {
			n = n*10 + int(rest[i]-'0')
			i++
		}
		if i == 0 || n > 255 || !ends(rest[i]) {
			return nil, &Error{Reason: "holds " + short(rest[:valueEnd(rest)]) + ", want integers of 0 to 255"}
		}
		out = append(out, byte(n))
		rest = rest[i:]
	}
	return out, nil
}

func ends(c byte) bool {
	return c == ',' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n'
}

func (v jsonValue) Array() ([]Value, error) {
	if v[0] != '[' {
		return nil, v.wrong("an array")
	}
	var out []Value
	for rest := skip(v[1:]); rest[0] != ']'; rest = skip(rest) {
		if len(out) == MaxItems {
			return nil, &Error{Reason: "has more than " + strconv.Itoa(MaxItems) + " entries"}
		}
		n := valueEnd(rest)
		out = append(out, jsonValue(rest[:n]))
		rest = rest[n:]
	}
	return out, nil
}

func (v jsonValue) Object() ([]Field, error) {
	if v[0] != '{' {
		return nil, v.wrong("an object")
	}
	var out []Field
	for rest := skip(v[1:]); rest[0] != '}'; rest = skip(rest) {
		if len(out) == MaxItems {
			return nil, &Error{Reason: "has more than " + strconv.Itoa(MaxItems) + " entries"}
		}
		n := stringEnd(rest)
		name, err := jsonValue(rest[:n]).Str()
		if err != nil {
			return nil, err
		}
		rest = skip(rest[n:])
		n = valueEnd(rest)
		out = append(out, Field{name, jsonValue(rest[:n])})
		rest = rest[n:]
	}
	return out, unique(out)
}
