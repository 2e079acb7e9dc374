package yamldepth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func deep(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestDeepTextsAreRefused(t *testing.T) {
	const many = 5000
	for name, text := range map[string]string{
		"lists in brackets": strings.Repeat("[", many), "maps in braces": strings.Repeat("{a: ", many), "both": strings.Repeat("[{a: ", many),
		"lists in a line": strings.Repeat("- ", many) + "a", "maps by indentation": deep(many / 10), "anchors": strings.Repeat("&a ", many) + "x",
		"tags": strings.Repeat("!a ", many) + "x", "keys": "a: " + strings.Repeat("? ", many), "below a list": "- - a:\n" + strings.Repeat(" ", 6) + strings.Repeat("[", many),
	} {
		var e *Error
		if err := Check([]byte(text)); !errors.As(err, &e) || e.Line < 1 || e.Column < 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOrdinaryTextsPass(t *testing.T) {
	texts := map[string]string{"nothing": "", "a deep one": deep(Max - 1), "brackets": strings.Repeat("[", 40) + strings.Repeat("]", 40), "a long one": strings.Repeat("a: {b: [1, 2]}\n- &x !!str y\n", 5000),
		"words in a line": "a: " + strings.Repeat("word ", 1000), "a long list in brackets": "a: [" + strings.Repeat("{b: c}, ", 3000) + "]", "documents": strings.Repeat("---\na: 1\n", 500),
		"a block of text": "a: |\n" + strings.Repeat("   [ { - text\n", 500), "a long flow over lines": "a: {" + strings.Repeat("b: c,\n    d: e,\n", 500) + "}"}
	files, _ := filepath.Glob("../../../packaging/*/*.yml")
	more, _ := filepath.Glob("../../../examples/*/*.yaml")
	for _, f := range append(files, more...) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(b)
	}
	if len(files)+len(more) == 0 {
		t.Error("no file of the project is looked at")
	}
	for name, text := range texts {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
