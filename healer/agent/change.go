package agent

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/tend-run/tend/internal/lazyregexp"
)

// FileDiff is one file that a repair has changed.
type FileDiff struct {
	Path          string // from the root of the project, with slashes
	Before, After string // the whole text, at most 1 MiB; "" if there was none, or no text
	Added         bool   // there was no such file
	Deleted       bool
	Dirty         bool // Before is not what HEAD has: it holds uncommitted work
	AtHead        bool // After is what HEAD has
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
	for line := range strings.Lines(string(diff.Diff("a", []byte(before), "b", []byte(after)))) {
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

// ParseDiff reads the output of `git diff`. Of each file, Before and After hold only
// the lines that the diff shows; Dirty and AtHead are not known. Whole files are
// better.
func ParseDiff(unified string) (files []FileDiff) {
	var f *FileDiff
	var before, after strings.Builder
	flush := func() {
		if f != nil {
			f.Before, f.After = before.String(), after.String()
			files = append(files, *f)
		}
		f = nil
		before.Reset()
		after.Reset()
	}
	inHunk := false
	for line := range strings.Lines(unified) {
		if strings.HasPrefix(line, "diff --git ") {
			flush()
			f, inHunk = &FileDiff{}, false
			continue
		}
		if f == nil {
			continue
		}
		text := strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "@@ "):
			inHunk = true
		case inHunk && strings.HasPrefix(line, " "):
			before.WriteString(line[1:])
			after.WriteString(line[1:])
		case inHunk && strings.HasPrefix(line, "-"):
			before.WriteString(line[1:])
		case inHunk && strings.HasPrefix(line, "+"):
			after.WriteString(line[1:])
		case inHunk:
		case strings.HasPrefix(line, "new file"):
			f.Added = true
		case strings.HasPrefix(line, "deleted file"):
			f.Deleted = true
		case strings.HasPrefix(line, "--- ") && f.Path == "":
			f.Path = diffPath(text[4:])
		case strings.HasPrefix(line, "+++ ") && text[4:] != "/dev/null":
			f.Path = diffPath(text[4:])
		}
	}
	flush()
	return slices.DeleteFunc(files, func(f FileDiff) bool { return f.Path == "" }) // modes, or binary
}

func diffPath(s string) string {
	s = strings.TrimSuffix(s, "\t") // after a name with spaces
	if s == "/dev/null" {
		return ""
	}
	if strings.HasPrefix(s, `"`) {
		if plain, err := strconv.Unquote(s); err == nil {
			s = plain
		}
	}
	_, rest, _ := strings.Cut(s, "/")
	return rest
}
