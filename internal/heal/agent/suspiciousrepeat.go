package agent

import (
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

var (
	interval = lazyregexp.New(`\bsetInterval\s*\(`)
	timeout  = lazyregexp.New(`\bsetTimeout\s*\(\s*(\w+)\s*[,)]`)
)

// maxLooked bounds how many names and definitions of a file are looked at for a timer of their own:
// each look reads as far as the definition goes.
const maxLooked = 32

// repeatRule: what was done again and again is done once. A function that sets a timer for
// itself is done again and again, too.
func repeatRule(files []FileDiff, say sayer) {
	lost, at := 0, ""
	for _, f := range files {
		if languageOf(f.Path) != js || testFile.MatchString(f.Path) {
			continue
		}
		d := repeated(code(js, f.Before)) - repeated(code(js, f.After))
		if lost += d; d > 0 {
			at = f.Path
		}
	}
	if lost > 0 {
		say(at, "work that was done again and again is done once, or not at all")
	}
}

// repeated counts what a program does again and again.
func repeated(s string) int {
	n, seen, looks := len(interval.FindAllStringIndex(s, -1)), map[string]bool{}, maxLooked
	for _, m := range timeout.FindAllStringSubmatch(s, -1) {
		if name := m[1]; !seen[name] && looks > 0 && len(seen) < maxLooked {
			if seen[name] = true; setsItself(s, name, &looks) {
				n++
			}
		}
	}
	return n
}

// setsItself reports whether a timer for a function is set within that function.
func setsItself(s, name string, looks *int) bool {
	for from := 0; ; {
		i := strings.Index(s[from:], name)
		if i < 0 || *looks == 0 {
			return false
		}
		at := from + i
		from = at + len(name)
		before := strings.TrimRight(s[:at], " \t*")
		rest := strings.TrimLeft(s[from:], " \t")
		if !strings.HasSuffix(before, "function") && !(strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "==")) {
			continue // it is no definition
		}
		open := strings.IndexByte(s[from:], '{')
		if open < 0 {
			continue
		}
		*looks--
		for _, m := range timeout.FindAllStringSubmatch(call(s[from+open+1:]), -1) {
			if m[1] == name {
				return true
			}
		}
	}
}
