package observe

import (
	"bytes"
	"regexp"

	"github.com/tend-run/tend/internal/lib/saferegexp"
	"github.com/tend-run/tend/process"
)

const (
	// window bounds what is kept of one line, in bytes. A longer line is
	// searched in windows that overlap by half, so a match of up to half a
	// window is found wherever it lies.
	window = 64 << 10
	// maxText bounds the text of a match that is returned, in bytes.
	maxText = 4 << 10
)

// Matcher searches output for a line that matches a regular expression,
// whatever the chunks are in which the output comes. A line ends before "\n"
// or "\r\n"; nothing else is taken away, escape sequences neither.
type Matcher struct {
	re    *regexp.Regexp
	lines [4]line
}

// line is the part of a stream after its last line end.
type line struct {
	buf    []byte
	offset int64 // of buf[0]
	// searched: buf was searched as it is and did not match.
	searched bool
}

// Found is a match.
type Found struct {
	Stream process.Stream
	Offset int64  // of Text[0] in the stream
	Text   string // at most 4 KiB of it
}

// NewMatcher returns a matcher for an RE2 expression in Go's syntax, of at most
// 10,000 steps ([saferegexp.MaxSteps]), or an *process.InvalidError.
func NewMatcher(expr string) (*Matcher, error) {
	re, err := saferegexp.Plain(expr)
	if err != nil {
		return nil, &process.InvalidError{Field: "match", Reason: err.Error()}
	}
	return &Matcher{re: re}, nil
}

// Add takes the bytes of s at offset, which follow those of the last call, and
// returns the first match in a line that is now complete.
func (m *Matcher) Add(s process.Stream, offset int64, data []byte) (Found, bool) {
	l := &m.lines[s]
	for len(data) > 0 {
		if len(l.buf) == 0 {
			l.offset = offset
		}
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			break
		}
		for end >= 0 {
			n := min(end, window-len(l.buf))
			l.buf = append(l.buf, data[:n]...)
			data, offset, end = data[n:], offset+int64(n), end-n
			if end == 0 {
				break
			}
			if f, ok := m.slide(s); ok {
				return f, true
			}
		}
		if f, ok := m.search(s, bytes.TrimSuffix(l.buf, []byte{'\r'})); ok {
			return f, true
		}
		data, offset = data[1:], offset+1
		l.buf, l.offset, l.searched = l.buf[:0], offset, false
	}
	for len(data) > 0 {
		n := min(len(data), window-len(l.buf))
		l.buf, l.searched = append(l.buf, data[:n]...), false
		data = data[n:]
		if len(l.buf) == window {
			if f, ok := m.slide(s); ok {
				return f, true
			}
		}
	}
	return Found{}, false
}

// Settle searches the unfinished line of s as it stands.
func (m *Matcher) Settle(s process.Stream) (Found, bool) {
	l := &m.lines[s]
	if len(l.buf) == 0 || l.searched {
		return Found{}, false
	}
	l.searched = true
	return m.search(s, l.buf)
}

// Skip forgets the unfinished line of s: what follows it is missing.
func (m *Matcher) Skip(s process.Stream) { m.lines[s] = line{} }

// slide searches a full window and keeps its second half.
func (m *Matcher) slide(s process.Stream) (Found, bool) {
	l := &m.lines[s]
	if len(l.buf) < window {
		return Found{}, false
	}
	if f, ok := m.search(s, l.buf); ok {
		return f, true
	}
	keep := copy(l.buf, l.buf[window/2:])
	l.buf, l.offset, l.searched = l.buf[:keep], l.offset+window/2, true
	return Found{}, false
}

func (m *Matcher) search(s process.Stream, text []byte) (Found, bool) {
	at := m.re.FindIndex(text)
	if at == nil {
		return Found{}, false
	}
	return Found{Stream: s, Offset: m.lines[s].offset + int64(at[0]), Text: string(text[at[0]:min(at[1], at[0]+maxText)])}, true
}
