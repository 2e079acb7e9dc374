package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestManualPagesSayWhatTheGrammarHas: each verb has a page, and each flag and
// argument is on it.
func TestManualPagesSayWhatTheGrammarHas(t *testing.T) {
	pages := 0
	err := eachVerb(program(new(grammar)), func(n *node) error {
		pages++
		var out, errs bytes.Buffer
		inv := &invocation{out: &out, errs: &errs, getenv: func(string) string { return "" }}
		args := append([]string{"man"}, strings.Fields(strings.ReplaceAll(strings.TrimPrefix(manName(n), "tend"), "-", " "))...)
		if status := execute(t.Context(), inv, args); status != 0 {
			t.Errorf("%q: %d %s", args, status, errs.String())
		}
		page := out.String()
		for i, line := range strings.Split(page, "\n") {
			if strings.HasPrefix(line, "'") || strings.ContainsRune(line, '\t') {
				t.Errorf("%s, line %d is read as something else: %q", manName(n), i+1, line)
			}
		}
		want := []string{".TH " + strings.ToUpper(manName(n)) + " 1 ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", roff("--state-dir=DIR")}
		for _, f := range n.flags {
			if !f.has("hidden") {
				want = append(want, roff("--"+f.name), roff(f.get("help")))
			}
		}
		for _, a := range n.args {
			want = append(want, "\n.B "+roff(strings.ToUpper(a.name))+"\n"+roff(a.get("help")))
		}
		for _, v := range n.verbs {
			if !v.has("hidden") {
				want = append(want, "\n.BR "+roff(manName(v))+" (1)")
			}
		}
		for _, w := range want {
			if !strings.Contains(page, w) {
				t.Errorf("the page of %s lacks %q", manName(n), w)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if pages < 25 {
		t.Errorf("there are %d pages", pages)
	}
	var out bytes.Buffer
	inv := &invocation{out: &out, errs: &out, getenv: func(string) string { return "" }}
	for _, args := range [][]string{{"man", "server"}, {"man", "nonsense"}, {"man", "--dir", "x", "run"}} {
		if status := execute(t.Context(), inv, args); status != 2 {
			t.Errorf("%q ends with %d", args, status)
		}
	}
}

// TestEveryVerbHasJSONOrSaysWhyNot keeps the list of those without short.
func TestEveryVerbHasJSONOrSaysWhyNot(t *testing.T) {
	var without []string
	for _, n := range program(new(grammar)).verbs {
		if n.has("nojson") {
			without = append(without, n.name)
			if n.get("nojson") == "" {
				t.Errorf("%s does not say why it has no JSON form", n.name)
			}
		}
	}
	if got, want := strings.Join(without, " "), "attach import serve torture mcp distant sandboxd help man completion"; got != want {
		t.Errorf("without a JSON form are %s; want %s", got, want)
	}
}
