// Package wire reads and writes the messages of the distant protocol (0.20) in
// its two encodings: MessagePack, which the native transport carries, and JSON.
// Both hold the same maps; only bytes differ (bin, or an array of numbers).
//
//	request   {["header": map,] "id": string, "payload": request | [request…]}
//	response  {["header",] "id": string, "origin_id": string, "payload": …}
//
// A request payload is a map with the key "type". Package distant
// defines the fields: this package knows values, not messages.
//
// [Value] is read lazily: its form is checked once, when the message arrives, and a
// field is decoded when it is requested, so that a message of many megabytes needs no
// tree in memory. [Writer] appends.
//
// # MessagePack as distant writes it (do not change)
//
// Structures are maps with string keys in the order of declaration, unit
// variants are strings, other variants maps of one key, None is nil or left
// out, bytes are bin, and integers take their shortest form. The
// reader accepts every width of integer, and an array of integers or a string for
// bytes.
package wire

import "fmt"

// Limits on what a message may hold.
const (
	// MaxDepth is the deepest nesting of arrays and maps.
	MaxDepth = 32
	// MaxItems is the most entries of one array of values, or of one map.
	MaxItems = 1 << 16
)

// Error says what is wrong with a message.
type Error struct {
	Field  string // "pty.rows"; empty for the whole message
	Reason string // completes "<field> …"
}

func (e *Error) Error() string {
	if e.Field == "" {
		return "the message " + e.Reason
	}
	return fmt.Sprintf("field %q %s", e.Field, e.Reason)
}

func malformed(format string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(format, args...)}
}

// Value is one value of a message, well-formed but not decoded yet. The bytes
// behind it are the message's: nothing may change them meanwhile. Methods fail
// with an *[Error] when the value is something else.
type Value interface {
	// Null reports whether the value is null (nil, None).
	Null() bool
	// Str returns a string.
	Str() (string, error)
	// Uint returns an integer of 0 to max.
	Uint(max uint64) (uint64, error)
	Bool() (bool, error)
	// Bytes returns bytes: a bin, an array of integers 0 to 255, or a string's
	// UTF-8 bytes. The result may be part of the message.
	Bytes() ([]byte, error)
	// Array returns at most MaxItems values.
	Array() ([]Value, error)
	// Object returns at most MaxItems entries of a map with string keys, in
	// their order. A key that comes twice is an error.
	Object() ([]Field, error)
	// IsArray and IsObject answer without decoding.
	IsArray() bool
	IsObject() bool
}

// Field is an entry of a map.
type Field struct {
	Name  string
	Value Value
}

// unique checks that no name comes twice: which one counts would depend on the
// decoder.
func unique(fields []Field) error {
	if len(fields) <= 16 {
		for i := range fields {
			for j := range i {
				if fields[i].Name == fields[j].Name {
					return &Error{Field: fields[i].Name, Reason: "is there twice"}
				}
			}
		}
		return nil
	}
	seen := make(map[string]struct{}, len(fields))
	for i := range fields {
		if _, twice := seen[fields[i].Name]; twice {
			return &Error{Field: fields[i].Name, Reason: "is there twice"}
		}
		seen[fields[i].Name] = struct{}{}
	}
	return nil
}
