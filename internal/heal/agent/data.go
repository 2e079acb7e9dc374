package agent

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxResult   = 16 << 10 // of one result of a call
	maxEvidence = 32 << 10 // of one piece of evidence
	maxStory    = 96 << 10 // of all evidence, and of all that is told of attempts before
)

// asData wraps text that comes from outside, so that a model can tell where it
// begins and ends. The marks are made from a hash of the text, and it is made sure
// that the text does not contain them: nothing in it can pretend that it has
// ended.
func asData(label, text string) string {
	text = plain(text)
	mark := ""
	for salt := 0; mark == "" || strings.Contains(text, mark); salt++ {
		mark = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%d\n%s\n%s", salt, label, text)))[:16]
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fmt.Sprintf("<data %s: %s>\n%s</data %s>", mark, name(label), text, mark)
}

// name makes one short line of what is to be shown outside of data.
func name(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) || r == '<' || r == '>' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
	return clip(strings.Join(strings.Fields(s), " "), 200)
}

// plain takes out what is no text: control characters but tabs and ends of lines.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// clip cuts at the end.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:runeStart(s, n)] + "…"
}

// bound keeps the head and the tail of a long text, whole lines where there
// are any nearby: a message is often at one end, and its cause at the other.
func bound(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := runeStart(s, n/3), runeStart(s, len(s)-(n-n/3))
	if i := strings.LastIndexByte(s[:head], '\n'); i >= head/2 {
		head = i + 1
	}
	if i := strings.IndexByte(s[tail:], '\n'); i >= 0 && i < (len(s)-tail)/2 {
		tail += i + 1
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", s[:head], tail-head, s[tail:])
}

// runeStart is the index of the rune that i is in.
func runeStart(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}
