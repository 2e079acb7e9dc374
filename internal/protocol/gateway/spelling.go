package gateway

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// A provider may repeat a key as its own format writes it: percent-encoded in an address,
// with escapes in JSON, as references in HTML. Each character may be written so, and more
// than once over.
const (
	mostOver    = 3 // how often a character is percent-encoded over
	mostSlashes = 8 // backslashes before an escape
)

// found is what a look for a key at the beginning of a text has shown.
type found int

const (
	absent found = iota
	begun        // the text ends within what may be the key
	whole
)

// spelled looks for the key at the beginning of b; n is how many bytes it has there.
func spelled(b, key []byte) (n int, is found) {
	if bytes.HasPrefix(b, key) {
		return len(key), whole
	}
	if bytes.HasPrefix(key, b) {
		return len(b), begun
	}
	for _, c := range key {
		if n == len(b) {
			return n, begun
		}
		got, size, is := character(b[n:])
		switch {
		case is == begun:
			return len(b), begun
		case got != c:
			return 0, absent
		}
		n += size
	}
	return n, whole
}

// character reads the first character of a text that is not empty. begun: more of the text
// has to be seen.
func character(b []byte) (c byte, size int, is found) {
	switch b[0] {
	case '%':
		return percent(b)
	case '\\':
		return escape(b)
	case '&':
		return reference(b)
	}
	return b[0], 1, whole
}

func percent(b []byte) (byte, int, found) {
	over := 1
	for range mostOver {
		if !bytes.HasPrefix(b[over:], []byte("25")) {
			break
		}
		over += 2
	}
	if len(b) < over+2 {
		return 0, 0, begun
	}
	if c, err := strconv.ParseUint(string(b[over:over+2]), 16, 8); err == nil {
		return byte(c), over + 2, whole
	}
	return '%', over, whole
}

func escape(b []byte) (byte, int, found) {
	n := 1
	for n < len(b) && b[n] == '\\' && n < mostSlashes {
		n++
	}
	if n == len(b) {
		return 0, 0, begun
	}
	switch b[n] {
	case '/', '"', '\'':
		return b[n], n + 1, whole
	case 'u':
		if len(b) < n+5 {
			return 0, 0, begun
		}
		if c, err := strconv.ParseUint(string(b[n+1:n+5]), 16, 8); err == nil {
			return byte(c), n + 5, whole
		}
	case 'x':
		if len(b) < n+3 {
			return 0, 0, begun
		}
		if c, err := strconv.ParseUint(string(b[n+1:n+3]), 16, 8); err == nil {
			return byte(c), n + 3, whole
		}
	}
	return '\\', n, whole
}

// longestReference is how many bytes a reference has at most: &#x0000002F;
const longestReference = 12

// named are the names of references to characters that keys may have, and those characters.
const (
	named      = "amp lt gt quot apos sol plus equals lowbar period colon hyphen dash"
	namedChars = "&<>\"'/+=_.:--"
)

func reference(b []byte) (byte, int, found) {
	end := bytes.IndexByte(b[:min(len(b), longestReference)], ';')
	if end < 0 {
		if len(b) < longestReference {
			return 0, 0, begun
		}
		return '&', 1, whole
	}
	name := string(b[1:end])
	if i := slices.Index(strings.Fields(named), name); i >= 0 {
		return namedChars[i], end + 1, whole
	}
	base := 10
	if len(name) > 1 && name[0] == '#' {
		name = name[1:]
		if name[0] == 'x' || name[0] == 'X' {
			name, base = name[1:], 16
		}
		if c, err := strconv.ParseUint(name, base, 8); err == nil {
			return byte(c), end + 1, whole
		}
	}
	return '&', 1, whole
}

// cover replaces the key in b, however it is written, by as many x. held is how long the
// end of b is that may be the beginning of one; most bounds it.
func cover(b, key []byte, most int) (held int) {
	for i := 0; i < len(b); i++ {
		if c := b[i]; c != key[0] && c != '%' && c != '\\' && c != '&' {
			continue
		}
		switch n, is := spelled(b[i:], key); {
		case is == whole:
			for j := range n {
				b[i+j] = 'x'
			}
			i += n - 1
		case is == begun && len(b)-i <= most:
			return len(b) - i
		}
	}
	return 0
}

// covered is a text without the key.
func covered(text, key string) string {
	b := []byte(text)
	cover(b, []byte(key), 0)
	return string(b)
}
