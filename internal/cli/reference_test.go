package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

const referencePath = "../../docs/reference/cli.md"

// TestTheReferenceSaysWhatTheGrammarHas: the reference of the command line is made of the grammar and
// the help texts, as --help and the manual pages are.
func TestTheReferenceSaysWhatTheGrammarHas(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The command line\n\nWhat `tend help` and the manual pages say, on one page. " +
		"It is made of the same texts: `go test ./internal/cli -run Reference -update` writes it.\n")
	root, group := program(new(grammar)), ""
	for _, v := range root.shown() {
		if v.group != group {
			group = v.group
			fmt.Fprintf(&b, "\n- %s:", strings.TrimSuffix(group, ":"))
		}
		fmt.Fprintf(&b, " [%s](#%s)", v.name, manName(v))
	}
	b.WriteString("\n\n")
	proctest.Must(t, eachVerb(root, func(n *node) error {
		referenceOf(&b, n)
		return nil
	}))
	for _, topic := range topics {
		if !strings.Contains(helpText("topics"), "\t"+topic+" ") {
			t.Errorf("tend help topics does not name %s", topic)
		}
		fmt.Fprintf(&b, "## %s\n\n", strings.ToUpper(topic[:1])+topic[1:])
		referenceText(&b, helpText(topic))
	}
	text := strings.TrimRight(b.String(), "\n") + "\n"
	if *update {
		proctest.Must(t, os.WriteFile(referencePath, []byte(text), 0o644))
	}
	if was := proctest.Value(os.ReadFile(referencePath))(t); string(was) != text {
		t.Errorf("%s is not what the grammar has; go test ./internal/cli -run Reference -update writes it", referencePath)
	}
}

func referenceOf(b *strings.Builder, n *node) {
	fmt.Fprintf(b, "## %s\n\n", n.path())
	if n.parent != nil {
		fmt.Fprintf(b, "%s\n\n", referenceWord.Replace(n.get("help")))
	}
	fmt.Fprintf(b, "```\n%s\n```\n\n", synopsis(n))
	if others := n.list("aliases"); n.parent != nil && others != nil {
		fmt.Fprintf(b, "Also `%s`.\n\n", strings.Join(others, "`, `"))
	}
	referenceText(b, n.detail())
	var rows []row
	for _, a := range n.args {
		rows = append(rows, row{strings.ToUpper(a.name), a.get("help")})
	}
	for _, f := range visible(n.flags) {
		help := f.get("help")
		if f.has("env") {
			help = strings.TrimSuffix(help, ".") + " ($" + f.get("env") + ")."
		}
		rows = append(rows, row{f.term(), help})
	}
	for i, r := range rows {
		if i == 0 {
			b.WriteString("| | |\n|---|---|\n")
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(r.left, "|", `\|`), referenceWord.Replace(r.right))
	}
	if rows != nil {
		b.WriteString("\n")
	}
	for i, v := range n.shown() {
		if n.parent == nil {
			break // the list above has them
		}
		if i == 0 {
			b.WriteString("Commands:")
		}
		fmt.Fprintf(b, " [%s](#%s)", v.name, manName(v))
		if i == len(n.shown())-1 {
			b.WriteString("\n\n")
		}
	}
}

var referenceWord = strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`)

// referenceText sets paragraphs; what is indented is code.
func referenceText(b *strings.Builder, text string) {
	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if !strings.HasPrefix(part, "\t") {
			fmt.Fprintf(b, "%s\n\n", referenceWord.Replace(part))
			continue
		}
		b.WriteString("```\n")
		for line := range strings.SplitSeq(part, "\n") {
			b.WriteString(strings.TrimPrefix(line, "\t") + "\n")
		}
		b.WriteString("```\n\n")
	}
}
