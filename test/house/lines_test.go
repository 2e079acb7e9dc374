package house_test

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/support/proctest"
)

const (
	// lineLimit is how many characters a line of the product has at most: what a reader sees
	// beside a second file.
	lineLimit = 140
	// longText is a text, a comment or a struct tag that may make its line longer: a message
	// in pieces is not found by grep.
	longText = 80
)

// A line of the product is longer than the limit only where a long text is on it.
func TestLinesOfTheProductAreShort(t *testing.T) {
	list := exec.Command("git", "ls-files", "*.go", ":!*_test.go", ":!gen", ":!internal/gen", ":!test", ":!bench", ":!tools", ":!examples")
	files := strings.Fields(string(proctest.Value(list.Output())(t)))
	if len(files) < 500 {
		t.Fatalf("git names %d files of the product", len(files))
	}
	for _, name := range files {
		src := proctest.Value(os.ReadFile(name))(t)
		for n, line := range tooLong(src) {
			t.Errorf("%s:%d has %d characters, and %d are the limit; break it", name, n, utf8.RuneCountInString(line), lineLimit)
		}
	}
}

// tooLong are the lines of a file, by number, that are too long without a long text in them.
func tooLong(src []byte) map[int]string {
	lines := map[int]string{}
	for n, line := range strings.Split(string(src), "\n") {
		if utf8.RuneCountInString(line) > lineLimit {
			lines[n+1] = line
		}
	}
	if len(lines) == 0 {
		return nil
	}
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return lines
		}
		for i, part := range strings.Split(text, "\n") {
			if utf8.RuneCountInString(part) >= longText {
				delete(lines, file.Line(pos)+i)
			}
		}
	}
}

func TestTooLongLinesAreFound(t *testing.T) {
	args := strings.Repeat("argument, ", 14)
	text := strings.Repeat("text ", 30)
	src := "package a\n\nvar a = f(" + args + "last)\nvar b = \"" + text + "\"\n\n// " + text + "\nvar c = `\n" + text + "\n`\n"
	got := tooLong([]byte(src))
	if len(got) != 1 || got[3] == "" {
		t.Errorf("found %v", got)
	}
}

// A link to what an install makes is in no clean clone, and whoever copies the tree stumbles over it.
func TestNoLinkOfTheTreeLeadsNowhere(t *testing.T) {
	list := exec.Command("git", "ls-files", "-s")
	for line := range strings.Lines(string(proctest.Value(list.Output())(t))) {
		name, isLink := strings.CutPrefix(strings.TrimSpace(line), "120000 ")
		if _, name, _ = strings.Cut(name, "\t"); !isLink {
			continue
		}
		to := proctest.Value(os.Readlink(name))(t)
		at := filepath.Join(filepath.Dir(name), to)
		tracked := exec.Command("git", "ls-files", "--error-unmatch", at)
		if tracked.Run() != nil {
			t.Errorf("%s leads to %s, which is not in the tree", name, at)
		}
	}
}
