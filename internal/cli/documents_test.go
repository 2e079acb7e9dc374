package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

var (
	fenced     = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	inlineTend = regexp.MustCompile("`(?:sudo )?(tend [^`\n]+)`")
	// beforeTend is what may stand before a command in a script.
	beforeTend = regexp.MustCompile(`^(?:\$ |sudo |exec |[A-Z_]+=\S+ )*tend `)
	// placeholder is an error of a value that stands for others, or of a flag that is only named.
	placeholder = regexp.MustCompile(`: a value is missing|but got "[A-Z]+"$`)
	// wordOf is a word of a shell, as far as documents need it.
	wordOf = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s'"|;&<>])+|[|;&<>]+`)
)

// TestTheCommandsOfDocumentsAreRight: each command of tend's that a document shows, in a block or in a sentence, has verbs
// and flags that are there.
func TestTheCommandsOfDocumentsAreRight(t *testing.T) {
	all := 0
	check := func(file, text string) {
		words := wordsOf(text)
		all++
		r := &reading{node: program(new(grammar))}
		if err := r.read(words); err != nil && !placeholder.MatchString(err.Error()) {
			t.Errorf("%s: tend %s: %v", file, strings.Join(words, " "), err)
		}
	}
	root := os.DirFS("../..")
	proctest.Must(t, fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (path == "docs/decisions" || e.Name() == "node_modules" || e.Name() == "testdata" || path != "." && e.Name()[0] == '.'):
			return fs.SkipDir
		case filepath.Ext(path) != ".md" || path == "docs/renames.md" || path == "docs/reference/cli.md" || path == "CHANGELOG.md":
			return nil // two are history, and one is made from the flags
		}
		data, err := fs.ReadFile(root, path)
		text := string(data)
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", " ")) {
				if line = strings.TrimSpace(line); beforeTend.MatchString(line) {
					check(path, line[len(beforeTend.FindString(line)):])
				}
			}
		}
		for _, m := range inlineTend.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if m[1] != "tend needs pidfd_open" { // an error
				check(path, strings.TrimPrefix(m[1], "tend "))
			}
		}
		return err
	}))
	if all < 300 {
		t.Errorf("the documents have %d commands", all)
	}
}

// wordsOf are the words of a command up to the end of it, with the first of each choice and all that may be left out.
func wordsOf(text string) (words []string) {
	text, _, _ = strings.Cut(text, " #")
	for _, w := range wordOf.FindAllString(text, -1) {
		if strings.ContainsAny(w[:1], "|;&<>") {
			break
		}
		w = strings.Trim(strings.NewReplacer("[", "", "]", "", "…", "", "...", "", "'", "", `"`, "").Replace(w), " ")
		if w, _, _ = strings.Cut(w, "|"); w != "" {
			words = append(words, w)
		}
	}
	return words
}
