package agent

import (
	"path"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// FileDiff is one file that a repair changed.
type FileDiff struct {
	Path          string // from the root of the project, with slashes
	Before, After string // the whole text, at most 1 MiB; "" if there was none, or no text
	Added         bool   // there was no such file
	Deleted       bool
	Dirty         bool // Before is not what HEAD has: it holds uncommitted work
	AtHead        bool // After is what HEAD has
	// Named are lines of Before, without surrounding blanks, that the error of the repair
	// names. They may be removed.
	Named []string
}

// language is what a file is written in, as far as rules must know.
type language uint8

const (
	other language = iota
	js             // and TypeScript
	py
	golang
	shell
	data // JSON, YAML and the like
)

func languageOf(name string) language {
	base := strings.ToLower(path.Base(name))
	switch path.Ext(base) {
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte":
		return js
	case ".py", ".pyi":
		return py
	case ".go":
		return golang
	case ".sh", ".bash", ".mk":
		return shell
	case ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".toml", ".ini", ".csv", ".tsv", ".xml", ".sql":
		return data
	}
	switch base {
	case "dockerfile", "makefile", "procfile":
		return shell
	}
	return other
}

var testFile = lazyregexp.New(`(?i)(^|/)(tests?|__tests__|specs?|e2e)/|(^|/)tests?\.[cm]?[jt]sx?$|[._-](test|spec)s?\.[cm]?[jt]sx?$|_test\.go$|(^|/)test_[^/]*\.py$|_tests?\.py$|(^|/)conftest\.py$`)

var (
	blockComment = lazyregexp.New(`(?s)/\*.*?\*/`)
	lineComment  = lazyregexp.New(`(?m)(^|[\s;{}])//[^\n]*`)
	hashComment  = lazyregexp.New(`(?m)(^|\s)#[^\n]*`)
)

// code is a text without its comments: what is commented out is gone.
func code(lang language, s string) string {
	switch lang {
	case js, golang:
		return lineComment.ReplaceAllString(blockComment.ReplaceAllString(s, " "), "$1")
	case py, shell:
		return hashComment.ReplaceAllString(s, "$1")
	}
	return s
}

// hunk is one place of a change. Lines that are the same but for their indentation
// are in neither.
type hunk struct{ removed, added []string }

func hunks(before, after string) (all []hunk) {
	var h hunk
	flush := func() {
		both := map[string]int{}
		for _, s := range h.added {
			both[strings.TrimSpace(s)]++
		}
		var removed []string
		for _, s := range h.removed {
			if t := strings.TrimSpace(s); both[t] > 0 {
				both[t]--
			} else if t != "" {
				removed = append(removed, t)
			}
		}
		gone := map[string]int{}
		for _, s := range h.removed {
			gone[strings.TrimSpace(s)]++
		}
		var added []string
		for _, s := range h.added {
			if t := strings.TrimSpace(s); gone[t] > 0 {
				gone[t]--
			} else if t != "" {
				added = append(added, t)
			}
		}
		if len(removed)+len(added) > 0 {
			all = append(all, hunk{removed, added})
		}
		h = hunk{}
	}
	inside := false
	for line := range strings.Lines(udiff.Unified("a", "b", before, after)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "@@"):
			flush()
			inside = true
		case !inside:
		case strings.HasPrefix(line, "-"):
			h.removed = append(h.removed, line[1:])
		case strings.HasPrefix(line, "+"):
			h.added = append(h.added, line[1:])
		}
	}
	flush()
	return all
}
