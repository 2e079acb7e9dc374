package guard

// view is a text that stands in another, the source, encoded or not. Each byte knows where
// in the source it comes from.
type view struct {
	text     []byte
	from, to []int32 // without: the view is the source
}

func (v *view) add(c byte, from, to int32) {
	v.text, v.from, v.to = append(v.text, c), append(v.from, from), append(v.to, to)
}

func (v *view) reset() { v.text, v.from, v.to = v.text[:0], v.from[:0], v.to[:0] }

// scratch is memory for views that are used one after another.
type scratch struct {
	views   []*view
	free    []*numbers
	partial bool // more may come of what is looked at
}

// least is how many bytes at least a decoded text has: the least of a secret, or one where more
// may come.
func (s *scratch) least() int {
	if s.partial {
		return 1
	}
	return minSecret
}

// view returns an empty one. Give it back with put.
func (s *scratch) view() *view {
	k := len(s.views) - 1
	if k < 0 {
		return &view{}
	}
	v := s.views[k]
	s.views = s.views[:k]
	v.reset()
	return v
}

func (s *scratch) put(v *view) { s.views = append(s.views, v) }

// at is where byte i is in the source.
func (v *view) at(i int) (from, to int32) {
	if len(v.from) == 0 {
		return int32(i), int32(i + 1)
	}
	return v.from[i], v.to[i]
}

// back reports whether the view was read from the end of its source.
func (v *view) back() bool {
	if len(v.text) == 0 {
		return false
	}
	first, _ := v.at(0)
	last, _ := v.at(len(v.text) - 1)
	return last < first
}

// span is where bytes i to j-1 are in the source. In a reversed view the last is the first.
func (v *view) span(i, j int) (from, to int32) {
	f, t := v.at(i)
	f2, t2 := v.at(j - 1)
	return min(f, f2), max(t, t2)
}

// reverse adds a view from its end to its beginning.
func (v *view) reverse(of *view) {
	for i := len(of.text) - 1; i >= 0; i-- {
		from, to := of.at(i)
		v.add(of.text[i], from, to)
	}
}

// join adds a view without its white space.
func (v *view) join(of *view) {
	for i, c := range of.text {
		if classes[c]&isWhite == 0 {
			from, to := of.at(i)
			v.add(c, from, to)
		}
	}
}

// loosened are the bytes that the normal form leaves out: white space, quotes, backslashes,
// NUL, and the plus that is a space in a form.
func loosened(c byte) bool {
	switch c {
	case '"', '\'', '`', '\\', 0, '+':
		return true
	}
	return white(c)
}

func white(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '\v', '\f':
		return true
	}
	return false
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// classes of bytes. A table is ten times as quick as the functions.
const (
	isLoosened = 1 << iota
	isWhite
	in64
	in32
	inWord
	isPrint // or white space, or ESC
	inBits
)

var classes = func() (t [256]uint8) {
	for i := range t {
		c := byte(i)
		if loosened(c) {
			t[i] |= isLoosened
		}
		if white(c) {
			t[i] |= isWhite
		}
		if base64Value(c) >= 0 {
			t[i] |= in64
		}
		if base32Value(c) >= 0 {
			t[i] |= in32
		}
		if base2Value(c) >= 0 {
			t[i] |= inBits
		}
		if white(c) || c == 0x1b || c >= 0x20 && c <= 0x7e {
			t[i] |= isPrint
		}
		if c >= '0' && c <= '9' || lower(c) >= 'a' && lower(c) <= 'z' {
			t[i] |= inWord
		}
	}
	return t
}()

// loose is the normal form of a secret without its escapes: see [loosened]. The case of
// ASCII letters is ignored.
func loose(text []byte) []byte { return left(text, isLoosened) }

// bare leaves out white space alone.
func bare(text []byte) []byte { return left(text, isWhite) }

func left(text []byte, skip uint8) (out []byte) {
	for _, c := range text {
		if classes[c]&skip == 0 {
			out = append(out, lower(c))
		}
	}
	return out
}
