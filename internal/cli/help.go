package cli

import (
	_ "embed"
	"fmt"
	"go/doc/comment"
	"io"
	"slices"
	"strconv"
	"strings"
)

//go:embed help.txt
var helpTexts string

// helpText is what help.txt has under a heading.
func helpText(heading string) string {
	_, text, _ := strings.Cut(helpTexts, "\n== "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n== ")
	if before, after, refers := strings.Cut(text, "{exit statuses}"); refers {
		text = before + helpText("exit statuses") + after
	}
	return strings.TrimSuffix(text, "\n")
}

// detail is what help says after the first sentence. Indented lines stay as they are.
func (n *node) detail() string {
	text := "\n" + helpText(strings.TrimPrefix(n.path(), "tend "))
	text = strings.Replace(text, "\n$ ", "\n\nExamples:\n\n\t", 1)
	return strings.Trim(strings.ReplaceAll(text, "\n$ ", "\n\t"), "\n")
}

// help prints the help text of a verb.
func (inv *invocation) help(n *node) error {
	p := &page{width: inv.helpWidth()}
	usage := "Usage: " + strings.TrimSpace("tend "+n.names())
	for _, a := range n.args {
		usage += " " + a.summary()
	}
	if len(n.verbs) > 0 {
		usage += " <command>"
	}
	if len(n.flags) > 0 || n.parent != nil && len(n.parent.flags) > 0 {
		usage += " [flags]"
	}
	p.line(usage)
	p.text(n.get("help"))
	p.text(n.detail())

	var rows []row
	for _, a := range n.args {
		rows = append(rows, row{a.summary(), a.get("help")})
	}
	p.table("Arguments:", rows)
	p.table("Flags:", n.flagRows())
	if n.parent != nil {
		p.line("")
		p.line("Flags of every command: --url, --token, --state-dir, --json, --help (tend --help)")
	}
	group := ""
	rows = nil
	for _, v := range n.shown() {
		if v.group != group {
			p.table(group, rows)
			group, rows = v.group, nil
		}
		rows = append(rows, row{v.names(), v.get("help")})
	}
	p.table(group, rows)
	if n.parent == nil {
		p.line("")
		p.line(`Run "tend <command> --help" for more information on a command, "tend help topics" for names, times and the like.`)
	}
	_, err := io.WriteString(inv.out, p.String())
	return err
}

// names are those of the verbs down to n, with their aliases.
func (n *node) names() (text string) {
	for _, v := range n.line()[1:] {
		text += " " + v.name
		if v.has("aliases") {
			text += " (" + v.get("aliases") + ")"
		}
	}
	return strings.TrimPrefix(text, " ")
}

// flagRows are the flags of n, and then of each verb above it, below an empty row. Those of the
// program are its own help's alone.
func (n *node) flagRows() (rows []row) {
	line := n.line()
	slices.Reverse(line)
	for _, n := range line {
		if n.parent == nil && len(line) > 1 {
			break
		}
		for i, f := range visible(n.flags) {
			if i == 0 && rows != nil {
				rows = append(rows, row{})
			}
			name := f.term()
			if !f.has("short") {
				name = "    " + name
			}
			help := f.get("help")
			if f.has("env") {
				help = strings.TrimSuffix(help, ".") + " ($" + f.get("env") + ")."
			}
			rows = append(rows, row{name, help})
		}
	}
	return rows
}

// page is a help text.
type page struct {
	strings.Builder
	width int
}

// row has two columns.
type row struct{ left, right string }

func (p *page) line(text string) { p.WriteString(strings.TrimRight(text, " ") + "\n") }

// text sets paragraphs below an empty line.
func (p *page) text(text string) {
	if text != "" {
		p.line("")
		for _, l := range wrapped(text, "    ", p.width) {
			p.line(l)
		}
	}
}

// table sets rows below a title. What is too long for the left column has a line for itself.
func (p *page) table(title string, rows []row) {
	const gap = 4
	if rows == nil {
		return
	}
	p.line("")
	p.line(title)
	width := p.width - len("  ")
	left, most := 0, max(30, 375*width/1000)
	for _, r := range rows {
		if n := len(r.left); n < most {
			left = max(left, n)
		}
	}
	for _, r := range rows {
		lines := wrapped(r.right, "  ", width-left-gap)
		if len(r.left) < most {
			p.line(fmt.Sprintf("  %-*s%s", left+gap, r.left, lines[0]))
			lines = lines[1:]
		} else {
			p.line("  " + r.left)
		}
		for _, l := range lines {
			p.line(fmt.Sprintf("  %*s%s", left+gap, "", l))
		}
	}
}

// wrapped sets text in lines of a width; what is indented stays as it is, behind code.
func wrapped(text, code string, width int) []string {
	p := comment.Printer{TextCodePrefix: code, TextWidth: width}
	set := p.Text(new(comment.Parser).Parse(text))
	return strings.Split(strings.TrimRight(string(set), "\n"), "\n")
}

// helpWidth is how wide help may be.
func (inv *invocation) helpWidth() int {
	if n, err := strconv.Atoi(inv.getenv("COLUMNS")); err == nil {
		return n
	}
	if size, ok := terminalSize(inv.out); ok {
		return int(size.Cols)
	}
	return 80
}
