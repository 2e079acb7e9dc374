package guard

import (
	"slices"
	"strings"
)

const (
	// maxDepth is how many encodings in one another are taken off, without escapes.
	maxDepth = 3
	// maxLevels is how many levels of escapes are taken off.
	maxLevels = 5
	// lookLevels is how many are taken off around a secret that looks like escapes itself.
	lookLevels = 4
	// maxWork is how many bytes are looked at for each byte of what was decoded once. More is
	// needed by a text only that was made for it; it is hidden.
	maxWork = 64
	// nearEnd is how far from the end of a text what may go on there can end.
	nearEnd = 128
)

// finder finds the known secrets in one text.
//
// The text is brought into a normal form in which each secret has one face, and each encoding
// is a step towards it: escapes are taken off level by level ([view.unescape]), what numbers
// and alphabets of bytes stand for is taken as a text of its own ([scratch.dumps], [scratch.bases]),
// again and again, and the text is also read from its end. Each text that comes out of this is
// searched without white space, quotes, backslashes and letter case ([loose]), for the secrets
// in the same form and for the secrets reversed.
//
// The work is linear in the size of the text: the levels and the readings of each are few, a
// reading has less bytes than what it reads, and what is decoded more than once is bounded by
// maxWork.
type finder struct {
	r     *Redactor
	size  int32
	found []span
	open  int32   // where the first secret may begin that is not complete
	work  int     // that is left for what is being decoded
	at    []int32 // reused
	scratch
}

func (f *finder) text(s string) {
	source := &view{text: []byte(s)}
	f.search(source)
	f.layers(source, 0)
	back := f.view()
	back.reverse(source)
	f.layers(back, 0)
	f.put(back)
	// Lines may have been broken within an escape.
	if joined := f.view(); strings.ContainsAny(s, "%&\\\x1b") {
		if joined.join(source); len(joined.text) < len(s) {
			f.layers(joined, 0)
		}
		f.put(joined)
	}
}

// layers looks below the surface of a view.
func (f *finder) layers(v *view, depth int) {
	for level := range maxLevels + 1 {
		f.dumps(v, func(in *view) { f.inner(in, depth+1) })
		f.bases(v, func(in *view, ended bool) {
			if partial := f.partial; ended {
				f.partial = false
				defer func() { f.partial = partial }()
			}
			f.inner(in, depth+1)
		})
		next := f.view()
		defer f.put(next)
		kinds := next.unescape(v, allKinds, f.partial)
		if kinds == 0 || level == maxLevels || !f.step(next, depth) {
			return
		}
		// What a secret has in it may look like an escape: then not all kinds are escapes.
		if level < 2 && !f.eachKind(v, kinds, depth) {
			return
		}
		if level == 0 {
			for _, look := range f.r.looks {
				if !f.around(v, look, depth, lookLevels) {
					return
				}
			}
		}
		v = next
	}
}

// around looks for a secret that itself looks like escapes of some kinds. The levels of each of
// those are taken off alone, and of all other kinds together, in each order.
func (f *finder) around(v *view, look kind, depth, levels int) bool {
	if levels == 0 {
		return true
	}
	of := allKinds &^ look
	for left := look; ; left &= left - 1 {
		next := f.view()
		defer f.put(next)
		if next.unescape(v, of, f.partial) != 0 && (!f.step(next, depth) || !f.around(next, look, depth, levels-1)) {
			return false
		}
		if left == 0 {
			return true
		}
		of = left & -left
	}
}

// eachKind looks for escapes of each kind alone, and of all but that.
func (f *finder) eachKind(v *view, kinds kind, depth int) bool {
	tried := kind(0)
	for one := percents; one < allKinds; one <<= 1 {
		for _, some := range []kind{kinds & one, kinds &^ one} {
			if some == 0 || some == kinds || some == tried {
				continue
			}
			if tried = some; !f.some(v, some, depth) {
				return false
			}
		}
	}
	return true
}

// some looks for escapes of some kinds alone, and for the others that they may have been in.
func (f *finder) some(v *view, some kind, depth int) bool {
	for range 3 {
		part, rest := f.view(), f.view()
		defer f.put(part)
		defer f.put(rest)
		if part.unescape(v, some, f.partial) == 0 {
			return true
		}
		if !f.step(part, depth) || rest.unescape(part, allKinds, f.partial) != 0 && !f.step(rest, depth) {
			return false
		}
		v = part
	}
	return true
}

// step searches a view with less escapes.
func (f *finder) step(v *view, depth int) bool {
	if depth > 0 && !f.afford(len(v.text)) {
		return false
	}
	f.search(v)
	return true
}

// inner looks at what was decoded.
func (f *finder) inner(v *view, depth int) {
	if len(v.text) == 0 {
		return
	}
	if depth == 1 {
		f.work = maxWork*len(v.text) + 4<<10
	}
	if f.afford(len(v.text)) {
		f.search(v)
		if depth < maxDepth && mayHoldMore(v.text) {
			f.layers(v, depth)
		}
	}
	if depth == 1 && f.work < 0 {
		from, to := v.span(0, len(v.text))
		f.found = append(f.found, span{int(from), int(to), noMark})
	}
}

// mayHoldMore reports whether something in a text may be an encoding: each has at least eight
// characters that can be seen for a secret. What was decoded wrongly hardly ever has.
func mayHoldMore(text []byte) bool {
	n := 0
	for _, c := range text {
		if n++; classes[c]&isPrint == 0 {
			n = 0
		} else if n == 8 {
			return true
		}
	}
	return false
}

func (f *finder) afford(n int) bool {
	if f.work >= 0 {
		f.work -= n
	}
	return f.work >= 0
}

func (f *finder) search(v *view) {
	f.scan(v, f.r.loose, isLoosened)
	if f.r.bare.empty() {
		return
	}
	// What the normal form leaves out matters here, and shells and forms have ways of their
	// own to write it.
	f.scan(v, f.r.bare, isWhite)
	for _, plus := range []byte("+ ") {
		shell := f.view()
		if shell.unquote(v, plus) {
			f.scan(shell, f.r.bare, isWhite)
		}
		f.put(shell)
	}
}

// scan searches one normal form of a view.
func (f *finder) scan(v *view, a *automaton, skip uint8) {
	if a.empty() || len(v.text) == 0 {
		return
	}
	at, mine := f.at[:0], len(f.found)
	var node int32
	for i, c := range v.text {
		if classes[c]&skip != 0 {
			continue
		}
		at = append(at, int32(i))
		node = a.step(node, lower(c))
		end := a.nodes[node].ends
		if end == 0 {
			continue
		}
		start, id := int(at[len(at)-int(a.nodes[end].depth)]), int(a.nodes[end].id)
		if a == f.r.bare {
			k := slices.IndexFunc(f.r.bares[id], func(b bareSecret) bool { return contains(v.text[start:i+1], b.text) })
			if k < 0 {
				continue
			}
			id = f.r.bares[id][k].id
		}
		from, to := v.span(start, i+1)
		f.hit(span{int(from), int(to), f.r.marks[id]}, mine)
	}
	if f.at = at; f.partial {
		f.begun(v, a, skip, node)
	}
}

// begun notes where a secret begins that may go on behind the text. node is that of the view's
// end; where the view was read from its end, what has begun is at its beginning, reversed.
func (f *finder) begun(v *view, a *automaton, skip uint8, node int32) {
	_, end := v.at(len(v.text) - 1)
	if v.back() {
		_, end = v.at(0)
		node, f.at = 0, f.at[:0]
		for i := len(v.text) - 1; i >= 0; i-- {
			if c := v.text[i]; classes[c]&skip == 0 {
				f.at = append(f.at, int32(i))
				node = a.step(node, lower(c))
			}
		}
	}
	if depth := int(a.nodes[node].depth); depth > 0 && f.size-end < nearEnd {
		from, _ := v.at(int(f.at[len(f.at)-depth]))
		f.open = min(f.open, from)
	}
}

// hit adds what was found, or makes the one before it larger: a text of one letter alone must
// not fill the memory.
func (f *finder) hit(s span, mine int) {
	if n := len(f.found) - 1; n >= mine {
		last := &f.found[n]
		if s.start < last.end && last.start < s.end {
			if s.start <= last.start && s.end >= last.end {
				last.mark = s.mark
			}
			last.start, last.end = min(last.start, s.start), max(last.end, s.end)
			return
		}
	}
	f.found = append(f.found, s)
}

// contains reports whether a text has all bytes of another in their order.
func contains(text, all []byte) bool {
	for _, c := range text {
		if len(all) > 0 && lower(c) == lower(all[0]) {
			all = all[1:]
		}
	}
	return len(all) == 0
}
