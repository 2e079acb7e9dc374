package mcp

import "strings"

// listing is an answer of lines, as many as fit.
type listing struct {
	head  string
	lines int
	line  func(i int) string // with its newline
	none  string             // what stands there if there are no lines
	more  string             // the note on those that do not fit, with %d for their number
}

// answer writes lines until left is used up, then the notes.
func (l listing) answer(n notes, left int) *answer {
	var b strings.Builder
	b.WriteString(l.head)
	for i := range l.lines {
		line := l.line(i)
		if left -= cost(line); left < 0 {
			n.add(l.more, l.lines-i)
			break
		}
		b.WriteString(line)
	}
	if l.lines == 0 {
		b.WriteString(l.none)
	}
	for _, s := range n {
		b.WriteString("Note: " + s + "\n")
	}
	return text("%s", b.String())
}
