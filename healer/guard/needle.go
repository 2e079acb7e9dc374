package guard

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// reading is how text is taken apart before it is compared.
type reading int

const (
	// looseText leaves out white space, quotes, backslashes and NUL, and ignores case.
	looseText reading = iota
	// exactText leaves out white space and backslashes where the needle has none, and ignores
	// case.
	exactText
	// base64Text is looseText with case, in which both alphabets are one.
	base64Text
)

// needles are texts that are looked for, as a tree of their bytes. A byte may be written
// in different ways in the text; [unitsAt] lists them.
type needles struct {
	how   reading
	next  map[uint64]int32 // node<<8|byte
	ends  map[int32]int    // node: id
	inner map[int32]bool   // nodes that others follow
	first [256]bool
	nodes int32
}

func newNeedles(how reading) *needles {
	return &needles{how: how, next: map[uint64]int32{}, ends: map[int32]int{}, inner: map[int32]bool{}, nodes: 1}
}

func (n *needles) add(text string, id int) {
	var node int32
	for i := range len(text) {
		c := n.canonical(text[i])
		key := uint64(node)<<8 | uint64(c)
		to, ok := n.next[key]
		if !ok {
			to = n.nodes
			n.nodes++
			n.next[key] = to
			n.inner[node] = true
		}
		if i == 0 {
			n.first[c] = true
		}
		node = to
	}
	if _, ok := n.ends[node]; !ok {
		n.ends[node] = id
	}
}

func (n *needles) canonical(c byte) byte {
	switch {
	case n.how != base64Text && c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	case n.how == base64Text && c == '-':
		return '+'
	case n.how == base64Text && c == '_':
		return '/'
	}
	return c
}

// each calls back for the longest needle at each place of the text, with -1 for a place
// that can be read in too many ways to try all of them. open is lowered to the
// first place at which one may begin that ends behind the text.
func (n *needles) each(s string, found func(start, end, id int), open *int) {
	if n.nodes == 1 {
		return
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case n.first[n.canonical(c)], c == '%', c == '\\', c == '&', c == '\'':
		default:
			continue
		}
		m := match{n: n, s: s, end: -1}
		m.from(i, 0)
		if m.tired {
			found(i, m.reach, -1)
			i = m.reach - 1
			continue
		}
		if m.end > i {
			found(i, m.end, m.id)
		}
		if m.open {
			*open = min(*open, i)
		}
	}
}

// match is a search at one place.
type match struct {
	n    *needles
	s    string
	end  int
	id   int
	open bool // the text ends before the needle
	seen map[place]bool

	tired bool // seen is full
	reach int  // how far the search has come
}

// maxSeen bounds the search at one place. Text that was made to be read in many ways,
// such as a thousand backslashes, is hidden instead.
const maxSeen = 1 << 12

type place struct {
	at   int
	node int32
}

// from follows the needles from a node on, in all ways to read the text at this place.
func (m *match) from(at int, node int32) {
	var units [8]unit
	for {
		if id, ok := m.n.ends[node]; ok && at > m.end {
			m.end, m.id = at, id
		}
		if !m.n.inner[node] {
			return
		}
		if at == len(m.s) {
			m.open = true
			return
		}
		list, open := m.n.unitsAt(units[:0], m.s, at)
		m.open = m.open || open
		// One way is the rule, and needs no new frame.
		var ways [len(units)]place
		n := 0
		for _, u := range list {
			if to, ok := m.step(node, u); ok {
				ways[n] = place{at + u.size, to}
				n++
			}
		}
		switch n {
		case 0:
			return
		case 1:
			at, node = ways[0].at, ways[0].node
			continue
		}
		m.reach = max(m.reach, at+1)
		for _, w := range ways[:n] {
			if m.seen == nil {
				m.seen = map[place]bool{}
			}
			if m.tired = m.tired || len(m.seen) == maxSeen; m.tired {
				return
			}
			if !m.seen[w] {
				m.seen[w] = true
				m.from(w.at, w.node)
			}
		}
		return
	}
}

func (m *match) step(node int32, u unit) (int32, bool) {
	for i := range u.n {
		c := m.n.canonical(u.bytes[i])
		if u.decoded && m.n.skips(c) {
			if node == 0 {
				return 0, false
			}
			continue
		}
		to, ok := m.n.next[uint64(node)<<8|uint64(c)]
		if !ok {
			return 0, false
		}
		node = to
	}
	return node, u.n > 0 || node != 0
}

// unit is a way to read the beginning of a text: the bytes that it stands for, none for
// what is passed over.
type unit struct {
	bytes   [utf8.UTFMax]byte
	n       int
	size    int
	decoded bool
}

func raw(c byte) unit { return unit{bytes: [4]byte{c}, n: 1, size: 1} }

func pass(size int) unit { return unit{size: size} }

func char(c rune, size int) unit {
	u := unit{size: size, decoded: true}
	u.n = utf8.EncodeRune(u.bytes[:], c)
	return u
}

func octet(c byte, size int) unit { return unit{bytes: [4]byte{c}, n: 1, size: size, decoded: true} }

// strip leaves out of a needle what is passed over in a text.
func strip(s string) string {
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if !loosened(s[i]) {
			b = append(b, s[i])
		}
	}
	return string(b)
}

func loosened(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '\v', '\f', '"', '\'', '`', '\\', 0:
		return true
	}
	return false
}

// skips reports whether a byte is passed over.
func (n *needles) skips(c byte) bool { return n.how != exactText && loosened(c) }

// unitsAt lists the ways to read the text at a place. open says that the text ends within one.
func (n *needles) unitsAt(list []unit, s string, at int) (_ []unit, open bool) {
	c := s[at]
	if n.skips(c) {
		list = append(list, pass(1))
	} else {
		list = append(list, raw(c))
	}
	text := s[at:]
	switch c {
	case '\n', '\r', '\t', ' ':
		if n.how == exactText {
			list = append(list, pass(1))
		}
	case '+':
		if n.how == looseText {
			list = append(list, pass(1)) // a space in a form, or two strings that are joined
		} else if n.how == exactText {
			list = append(list, octet(' ', 1))
		}
	case 0x1b:
		if size, whole := escapeSequence(text); size > 0 {
			list = append(list, pass(size))
		} else if !whole {
			open = true
		}
	case '%':
		i := 1
		for range 4 { // encoded more than once, % becomes %25
			if b, ok := hexByte(text[i:]); ok {
				list = append(list, octet(b, i+2))
			} else if len(text) < i+2 {
				open = true
			}
			if !strings.HasPrefix(text[i:], "25") {
				break
			}
			i += 2
		}
	case '&':
		if u, whole := entity(text); u.size > 0 {
			list = append(list, u)
		} else if !whole {
			open = true
		}
	case '\'':
		if n.how == exactText && strings.HasPrefix(text, `'\''`) {
			list = append(list, octet('\'', 4))
		} else if n.how == exactText && strings.HasPrefix(`'\''`, text) {
			open = true
		}
	case '\\':
		return n.backslash(list, text)
	}
	return list, open
}

// maxRun is how many backslashes are looked at together.
const maxRun = 16

// backslash reads a backslash, and those behind it: a text that was quoted several times
// has several.
func (n *needles) backslash(list []unit, text string) (_ []unit, open bool) {
	i := 1
	for i < len(text) && text[i] == '\\' && i < maxRun {
		i++
	}
	if i == len(text) {
		return list, true
	}
	if n.how == exactText {
		list = append(list, pass(1)) // one that quotes
		i = 1
	}
	switch c := text[i]; c {
	case 'n', 'r', 't', 'f', 'v', 'b', 'a':
		list = append(list, octet("\n\r\t\f\v\b\a"[strings.IndexByte("nrtfvba", c)], i+1))
		if n.how == exactText && (c == 'n' || c == 'r') {
			list = append(list, pass(i+1))
		}
	case 'x':
		if b, ok := hexByte(text[i+1:]); ok {
			list = append(list, octet(b, i+3))
		} else if len(text) < i+3 {
			open = true
		}
	case 'u', 'U':
		u, whole := unicodeEscape(text, i+1)
		if u.size > 0 {
			list = append(list, u)
		} else if !whole {
			open = true
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		end := i
		for end < len(text) && end < i+3 && text[end] >= '0' && text[end] <= '7' {
			end++
		}
		if v, err := strconv.ParseUint(text[i:end], 8, 8); err == nil {
			list = append(list, octet(byte(v), end))
		}
		open = end == len(text) && end < i+3
	default:
		if n.how == exactText && c != '\\' {
			list = append(list, octet(c, i+1))
		}
	}
	return list, open
}

func hexByte(s string) (byte, bool) {
	if len(s) < 2 {
		return 0, false
	}
	v, err := strconv.ParseUint(s[:2], 16, 8)
	return byte(v), err == nil
}

// unicodeEscape reads the digits of \uHHHH, and of two that are one character.
func unicodeEscape(text string, at int) (_ unit, whole bool) {
	four := func(at int) (rune, bool) {
		if len(text) < at+4 {
			return 0, false
		}
		v, err := strconv.ParseUint(text[at:at+4], 16, 16)
		return rune(v), err == nil
	}
	c, ok := four(at)
	if !ok {
		return unit{}, len(text) >= at+4
	}
	if c < 0xd800 || c > 0xdbff {
		return char(c, at+4), true
	}
	next := at + 4
	for next < len(text) && text[next] == '\\' {
		next++
	}
	if next < len(text) && text[next] != 'u' {
		return unit{}, true
	}
	low, ok := four(next + 1)
	if !ok || low < 0xdc00 || low > 0xdfff {
		return unit{}, len(text) >= next+5
	}
	return char((c-0xd800)<<10+(low-0xdc00)+0x10000, next+5), true
}

// entity reads an entity of HTML.
func entity(text string) (_ unit, whole bool) {
	end := strings.IndexByte(text[:min(len(text), 10)], ';')
	if end < 0 {
		return unit{}, len(text) >= 10
	}
	name := text[1:end]
	for entity, c := range map[string]rune{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\''} {
		if name == entity {
			return char(c, end+1), true
		}
	}
	if digits, ok := strings.CutPrefix(name, "#"); ok {
		base := 10
		if hex := strings.TrimLeft(digits, "xX"); hex != digits {
			digits, base = hex, 16
		}
		if v, err := strconv.ParseUint(digits, base, 21); err == nil && v <= utf8.MaxRune {
			return char(rune(v), end+1), true
		}
	}
	return unit{}, true
}

// escapeSequence is the size of a terminal's control sequence, ESC [ … letter.
func escapeSequence(text string) (size int, whole bool) {
	if len(text) < 2 {
		return 0, false
	}
	if text[1] != '[' {
		return 0, true
	}
	for i := 2; i < len(text) && i < 32; i++ {
		if c := text[i]; c >= 0x40 && c <= 0x7e {
			return i + 1, true
		} else if c < 0x20 || c > 0x3f {
			return 0, true
		}
	}
	return 0, len(text) >= 32
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}
