package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// foldedDepth is down to which level names that differ only in the case of letters count as the
// same: below are the names of a tool's own arguments, where a schema may have id and ID.
const foldedDepth = 4

// maxDepth is how deep arrays and objects of a body may be nested.
const maxDepth = 128

var (
	errNoJSON = errors.New("the body must be one JSON value, for a key with rules about models or tokens")
	errDepth  = fmt.Errorf("the body is nested more than %d levels deep; send it flatter, for a key with rules about models or tokens",
		maxDepth)
)

// doubleError: readers may disagree about which of two names counts.
type doubleError struct{ name string }

func (e *doubleError) Error() string {
	return fmt.Sprintf("an object of the body has the name %.40q more than once, in the same or in other letters; for a key with rules about models or tokens a name may be there once", e.name)
}

// plainly writes a JSON value again in the one way that all readers understand alike:
// no name is in an object twice, by escapes or, down to foldedDepth, by the case of letters either; names and
// values have no needless escapes and only whole characters; nesting has a bound.
// Numbers keep their digits, and names their order.
func plainly(body []byte) ([]byte, error) {
	if !json.Valid(body) {
		return nil, errNoJSON
	}
	w := plainWriter{in: body}
	w.out.Grow(len(body))
	w.enc = json.NewEncoder(&w.out)
	w.enc.SetEscapeHTML(false)
	if err := w.write(); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// plainWriter copies valid JSON: it need not check what json.Valid has checked.
type plainWriter struct {
	in     []byte
	out    bytes.Buffer
	enc    *json.Encoder
	levels []level
	names  []string // folded, of all open objects
}

// level is an open array or object.
type level struct {
	object bool
	named  bool            // the name of the next value was read
	from   int             // where its names begin in plainWriter.names
	many   map[string]bool // the names, once there are more than fewNames
}

// fewNames is up to how many names are compared one by one.
const fewNames = 16

func (w *plainWriter) write() error {
	for i := 0; i < len(w.in); {
		var top *level
		if n := len(w.levels); n > 0 {
			top = &w.levels[n-1]
		}
		switch c := w.in[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '{', '[':
			if len(w.levels) == maxDepth {
				return errDepth
			}
			w.levels = append(w.levels, level{object: c == '{', from: len(w.names)})
			w.out.WriteByte(c)
			i++
		case '}', ']':
			w.names = w.names[:top.from]
			w.levels = w.levels[:len(w.levels)-1]
			w.out.WriteByte(c)
			i++
		case ',':
			top.named = false
			w.out.WriteByte(c)
			i++
		case '"':
			end := endOfString(w.in, i)
			text, plain := w.text(w.in[i:end])
			if top != nil && top.object && !top.named {
				top.named = true
				name := text
				if len(w.levels) <= foldedDepth {
					name = fold(text)
				}
				if !w.note(top, name) {
					return &doubleError{text}
				}
			}
			if plain {
				w.out.Write(w.in[i:end])
			} else if err := w.quote(text); err != nil {
				return err
			}
			i = end
		default: // a number, a word, or a colon
			w.out.WriteByte(c)
			i++
		}
	}
	return nil
}

// endOfString is where the string ends that begins at i.
func endOfString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// text is what a quoted string means; it is empty for a value that can be copied, which
// nobody looks at. plain: the string can be copied.
func (w *plainWriter) text(quoted []byte) (text string, plain bool) {
	if !bytes.ContainsRune(quoted, '\\') && utf8.Valid(quoted) {
		if n := len(w.levels); n > 0 && w.levels[n-1].object && !w.levels[n-1].named {
			text = string(quoted[1 : len(quoted)-1])
		}
		return text, true
	}
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text, false
}

func (w *plainWriter) quote(text string) error {
	if err := w.enc.Encode(text); err != nil {
		return err
	}
	w.out.Truncate(w.out.Len() - 1) // the encoder ends each value with a newline
	return nil
}

// note reports whether a name is new in its object.
func (w *plainWriter) note(l *level, name string) bool {
	of := w.names[l.from:]
	if l.many == nil && len(of) == fewNames {
		l.many = map[string]bool{}
		for _, other := range of {
			l.many[other] = true
		}
	}
	if l.many != nil {
		if l.many[name] {
			return false
		}
		l.many[name] = true
		return true
	}
	for _, other := range of {
		if other == name {
			return false
		}
	}
	w.names = append(w.names, name)
	return true
}

// fold is the same for all texts that a reader that ignores case may take for each
// other: U+017F is an s for some, U+212A a k, and U+0131 an i.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case r < utf8.RuneSelf:
			return r
		}
		r = unicode.ToLower(unicode.ToUpper(r))
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return unicode.ToLower(least)
	}, s)
}
