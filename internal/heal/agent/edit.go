package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// edit replaces one place of a file, or writes a whole one.
func (t tools) edit(_ context.Context, in struct {
	Path              string
	Old, New, Content *string
}) (string, error) {
	// Providers refuse schemas that say "one of" at the top.
	if (in.Content == nil) == (in.Old == nil) || (in.Old == nil) != (in.New == nil) {
		return "", errors.New("give either old and new, or content")
	}
	if dir := installed(in.Path); dir != "" {
		return "", fmt.Errorf("%s: what is below %s was installed, and is not edited: let the package manager install it again, by the lock file",
			in.Path, dir)
	}
	before, err := t.load(in.Path)
	fresh := false
	if _, _, missing := t.hands.ReadFile(in.Path, 0, 0); errors.Is(missing, fs.ErrNotExist) {
		fresh, before, err = true, "", nil
	}
	if err != nil {
		return "", err
	}
	after, said := "", ""
	switch {
	case in.Content != nil:
		after, said = *in.Content, "written"
	case fresh:
		return "", fmt.Errorf("%s: there is no such file; give content to write it", in.Path)
	default:
		after, err = replaceOnce(before, *in.Old, *in.New)
		if err != nil {
			return "", fmt.Errorf("%s: %w", in.Path, err)
		}
		said = "changed"
	}
	switch {
	case !fresh && after == before:
		return "", fmt.Errorf("%s: this changes nothing", in.Path)
	case len(after) > maxFile:
		return "", fmt.Errorf("%s: it would have %d bytes; at most %d can be written", in.Path, len(after), maxFile)
	case strings.ContainsRune(after, 0) && !strings.ContainsRune(before, 0):
		return "", fmt.Errorf("%s: a text holds no NUL", in.Path)
	}
	if err := placeholder(after, before); err != nil {
		return "", fmt.Errorf("%s: %w", in.Path, err)
	}
	if err := t.hands.WriteFile(in.Path, []byte(after)); err != nil {
		return "", err
	}
	if path.Ext(in.Path) == ".json" && !json.Valid([]byte(after)) {
		said += ". Careful: it is not valid JSON now, unless comments are allowed in it"
	}
	return fmt.Sprintf("%s: %s", in.Path, said), nil
}

// replaceOnce replaces old, which must be in s exactly once. A file whose lines
// end in CRLF keeps them, also if old and new were written without.
func replaceOnce(s, old, new string) (string, error) {
	n := strings.Count(s, old)
	if n == 0 && strings.Contains(s, "\r\n") && !strings.Contains(old, "\r") {
		crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
		old, new = crlf(old), crlf(new)
		n = strings.Count(s, old)
	}
	switch n {
	case 1:
		return strings.Replace(s, old, new, 1), nil
	case 0:
		return "", errors.New("old is not in the file. Read it, and give the text exactly as it is, with its spaces")
	}
	return "", fmt.Errorf("old is in the file %d times. Give more of the lines around it", n)
}

// shownOnly finds what is put in place of what a model is not shown.
var shownOnly = lazyregexp.New(`\[secret [^\]\n]*\]|\[[0-9]+ bytes left out\]|\[shortened\]`)

// placeholder refuses a text that would put into a file what stands for
// something that was not shown: the real thing would be lost.
func placeholder(after, before string) error {
	for _, s := range shownOnly.FindAllString(after, -1) {
		if !strings.Contains(before, s) {
			return fmt.Errorf("%s stands for something that you are not shown, and would take its place. Replace only the lines that need it, with old and new", s)
		}
	}
	return nil
}

// installed returns the directory of installed packages that a path is in, or "".
func installed(p string) string {
	parts := strings.Split(path.Clean(strings.ReplaceAll(p, `\`, "/")), "/")
	for _, dir := range parts[:len(parts)-1] {
		if slices.Contains([]string{"node_modules", ".venv", "venv", "site-packages", "__pycache__", ".pnpm-store"}, strings.ToLower(dir)) {
			return dir
		}
	}
	return ""
}
