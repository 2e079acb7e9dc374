package guard

import (
	"bytes"
	"html"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escape is what stands at a place of a text for other bytes.
type escape struct {
	bytes [8]byte
	n     int  // of bytes
	size  int  // in the text; 0: nothing is escaped here
	cut   bool // the text ends within one
}

func char(c rune, size int) escape {
	e := escape{size: size}
	e.n = utf8.EncodeRune(e.bytes[:], c)
	return e
}

func octet(c byte, size int) escape { return escape{bytes: [8]byte{c}, n: 1, size: size} }

// kind is one of escapes, or several.
type kind uint8

const (
	percents kind = 1 << iota
	backslashes
	entities
	nothings // what stands for nothing: colours, and what joins the parts of a string in code
	equals   // quoted-printable
	allKinds = percents | backslashes | entities | nothings | equals
)

// kindOf is that of what begins with a byte.
var kindOf = [256]kind{
	'%': percents, '\\': backslashes, '&': entities, '=': equals, 0x1b: nothings, '"': nothings, '\'': nothings, '`': nothings,
}

// unescape adds a view without one level of escapes of some kinds, and returns the kinds that
// there were; if there were none it adds nothing. If partial, one in which the text ends, and
// which may go on, is left out.
func (v *view) unescape(in *view, of kind, partial bool) (found kind) {
	done := 0
	for i := 0; i < len(in.text); {
		k := kindOf[in.text[i]] & of
		if k == 0 {
			i++
			continue
		}
		e := escaped(in.text[i:])
		cut := e.cut && partial
		if e.size == 0 && !cut {
			i++
			continue
		}
		found |= k
		v.copy(in, done, i)
		if done = len(in.text); cut {
			break
		}
		from, to := in.span(i, i+e.size)
		for _, c := range e.bytes[:e.n] {
			v.add(c, from, to)
		}
		i += e.size
		done = i
	}
	if found != 0 {
		v.copy(in, done, len(in.text))
	}
	return found
}

// unquote adds a view without the quotes that a shell has in quotes, and with a space or itself
// for each plus. If there are none it adds nothing.
func (v *view) unquote(in *view, plus byte) (ok bool) {
	quote := []byte(`'\''`)
	if !bytes.Contains(in.text, quote) && (plus == '+' || bytes.IndexByte(in.text, '+') < 0) {
		return false
	}
	for i := 0; i < len(in.text); {
		c, size := in.text[i], 1
		if c == '+' {
			c = plus
		} else if c == '\'' && bytes.HasPrefix(in.text[i:], quote) {
			size = 4
		}
		from, to := in.span(i, i+size)
		v.add(c, from, to)
		i += size
	}
	return true
}

func (v *view) copy(of *view, from, to int) {
	v.text = append(v.text, of.text[from:to]...)
	if len(of.from) > 0 {
		v.from, v.to = append(v.from, of.from[from:to]...), append(v.to, of.to[from:to]...)
		return
	}
	for i := from; i < to; i++ {
		v.from, v.to = append(v.from, int32(i)), append(v.to, int32(i+1))
	}
}

// escaped reads what a text begins with.
func escaped(text []byte) escape {
	switch text[0] {
	case '%':
		if len(text) > 1 && lower(text[1]) == 'u' {
			return codeUnits(text, 2, `%u`)
		}
		if b, ok := hexByte(text[1:]); ok {
			return octet(b, 3)
		}
		return escape{cut: len(text) < 3}
	case '&':
		return entity(text)
	case '=':
		return quotedPrintable(text)
	case 0x1b:
		return escapeSequence(text)
	case '\\':
		return backslash(text)
	}
	return joint(text)
}

// quotedPrintable reads a byte of mails, and the end of a line that goes on (RFC 2045, 6.7).
func quotedPrintable(text []byte) escape {
	for _, end := range []string{"\n", "\r\n"} {
		if bytes.HasPrefix(text[1:], []byte(end)) {
			return escape{size: 1 + len(end)}
		}
	}
	if b, ok := hexByte(text[1:]); ok && bytes.IndexByte([]byte("abcdef"), text[1]) < 0 && bytes.IndexByte([]byte("abcdef"), text[2]) < 0 {
		return octet(b, 3)
	}
	return escape{cut: len(text) < 3}
}

// backslash reads the escapes of C, JSON, JavaScript and Python.
func backslash(text []byte) escape {
	if len(text) < 2 {
		return escape{cut: true}
	}
	c := text[1]
	switch lower(c) {
	case '\\', '"', '\'':
		return octet(c, 2)
	case 'n', 'r', 't', 'f', 'v', 'b', 'a':
		return octet("\n\r\t\f\v\b\a"[strings.IndexByte("nrtfvba", lower(c))], 2)
	case 'x':
		if b, ok := hexByte(text[2:]); ok {
			return octet(b, 4)
		}
		return escape{cut: len(text) < 4}
	case 'u':
		if len(text) > 2 && text[2] == '{' {
			return braces(text)
		}
		if r, ok := hexNumber(text[2:], 8); ok && c == 'U' && r <= utf8.MaxRune {
			return char(r, 10)
		}
		return codeUnits(text, 2, `\u`)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		end := 1
		for end < len(text) && end < 4 && text[end] >= '0' && text[end] <= '7' {
			end++
		}
		if v, err := strconv.ParseUint(string(text[1:end]), 8, 8); err == nil {
			return octet(byte(v), end)
		}
	}
	return escape{}
}

func hexByte(s []byte) (byte, bool) {
	r, ok := hexNumber(s, 2)
	return byte(r), ok
}

func hexNumber(s []byte, digits int) (rune, bool) {
	if len(s) < digits {
		return 0, false
	}
	var v rune
	for _, c := range s[:digits] {
		d := hexValue(c)
		if d < 0 || v >= 1<<26 {
			return 0, false
		}
		v = v<<4 | rune(d)
	}
	return v, true
}

func hexValue(c byte) int {
	switch c := lower(c); {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// braces reads \u{68}.
func braces(text []byte) escape {
	head := text[3:min(len(text), 12)]
	end := bytes.IndexByte(head, '}')
	if end < 0 {
		return escape{cut: len(text) < 12 && allHex(head)}
	}
	if v, err := strconv.ParseUint(string(head[:end]), 16, 21); err == nil && v <= utf8.MaxRune {
		return char(rune(v), 3+end+1)
	}
	return escape{}
}

// codeUnits reads \uHHHH, and two of them that are one character.
func codeUnits(text []byte, at int, again string) escape {
	c, ok := hexNumber(text[at:], 4)
	if !ok {
		return escape{cut: len(text) < at+4 && allHex(text[at:])}
	}
	if !utf16.IsSurrogate(c) {
		return char(c, at+4)
	}
	next := text[at+4:]
	if len(next) >= 2 && strings.EqualFold(string(next[:2]), again) {
		if low, ok := hexNumber(next[2:], 4); ok {
			if r := utf16.DecodeRune(c, low); r != utf8.RuneError {
				return char(r, at+10)
			}
		}
	}
	return escape{cut: len(next) < 6 && strings.HasPrefix(again, string(next[:min(len(next), 2)]))}
}

// maxEntity is the most bytes of an entity that is read.
const maxEntity = 32

// entity reads an entity of HTML. A number and the oldest names do without the semicolon.
func entity(text []byte) escape {
	text = text[:min(len(text), maxEntity)]
	start, base := 1, 0
	if bytes.HasPrefix(text, []byte("&#")) {
		start, base = 2, 10
		if len(text) > 2 && lower(text[2]) == 'x' {
			start, base = 3, 16
		}
	}
	end := start
	for end < len(text) && classes[text[end]]&inWord != 0 && (base == 0 || base == 16 && hexValues[text[end]] >= 0 || text[end] <= '9') {
		end++
	}
	e := named(string(text[start:end]), base, end, end < len(text) && text[end] == ';')
	e.cut = end == len(text) && end < maxEntity
	return e
}

// named is an entity of so many bytes without the semicolon. base is that of a number, or 0.
func named(name string, base, size int, closed bool) (e escape) {
	if base > 0 {
		if v, err := strconv.ParseUint(name, base, 21); err == nil && v <= utf8.MaxRune {
			e = char(rune(v), size)
		}
	} else if closed {
		for _, name := range []string{name, strings.ToLower(name)} {
			if plain := html.UnescapeString("&" + name + ";"); plain[0] != '&' || name == "amp" {
				e.size, e.n = size, copy(e.bytes[:], plain)
				break
			}
		}
	} else {
		for old, c := range map[string]byte{"amp": '&', "lt": '<', "gt": '>', "quot": '"'} {
			if len(name) >= len(old) && strings.EqualFold(name[:len(old)], old) {
				return octet(c, 1+len(old))
			}
		}
	}
	if closed && e.size > 0 {
		e.size++
	}
	return e
}

// escapeSequence reads a terminal's control sequence, ESC [ … letter, which stands for nothing.
func escapeSequence(text []byte) escape {
	if len(text) < 2 {
		return escape{cut: true}
	}
	if text[1] != '[' {
		return escape{}
	}
	for i := 2; i < len(text) && i < 32; i++ {
		if c := text[i]; c >= 0x40 && c <= 0x7e {
			return escape{size: i + 1}
		} else if c < 0x20 || c > 0x3f {
			return escape{}
		}
	}
	return escape{cut: len(text) < 32}
}

// maxJoint bounds the space between two parts of a string.
const maxJoint = 64

// joint reads what is between two parts of a string, or two characters of a list, in code:
// "a" + "b", 'a', 'b'.
func joint(text []byte) escape {
	i := 1
	skip := func() {
		for i < len(text) && i < maxJoint && white(text[i]) {
			i++
		}
	}
	for _, next := range []string{"+,.", "\"'`"} {
		skip()
		if i == len(text) {
			return escape{cut: i < maxJoint}
		}
		if strings.IndexByte(next, text[i]) < 0 {
			return escape{}
		}
		i++
	}
	return escape{size: i}
}

func allHex(s []byte) bool {
	for _, c := range s {
		if hexValue(c) < 0 {
			return false
		}
	}
	return true
}
