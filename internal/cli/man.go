package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// manCmd makes manual pages from the grammar and the help texts, so that they
// say what --help says.
type manCmd struct {
	Verb []string `arg:"" optional:"" complete:"verb" help:"The command. Default: tend itself."`
	Dir  string   `placeholder:"DIR" help:"Write the pages of all commands into this directory, such as ~/.local/share/man/man1."`
}

func (c *manCmd) Run(_ context.Context, inv *invocation) error {
	n, err := inv.model.find(c.Verb)
	if err != nil {
		return err
	}
	if n.has("hidden") {
		return n.parent.noVerb(n.name)
	}
	if c.Dir == "" {
		_, err := inv.out.Write([]byte(manPage(inv.model, n)))
		return err
	}
	if len(c.Verb) > 0 {
		return usageError("--dir is for all pages; leave the verb out")
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	return eachVerb(n, func(n *node) error {
		return os.WriteFile(filepath.Join(c.Dir, manName(n)+".1"), []byte(manPage(inv.model, n)), 0o644)
	})
}

// eachVerb calls do for a node and all that is below it and shown.
func eachVerb(n *node, do func(*node) error) error {
	if err := do(n.open()); err != nil {
		return err
	}
	for _, v := range n.shown() {
		if err := eachVerb(v, do); err != nil {
			return err
		}
	}
	return nil
}

// manName is the name of a page: tend-distant-listen.
func manName(n *node) string { return strings.ReplaceAll(n.path(), " ", "-") }

// manPage is a page in the macros of man(7).
func manPage(app, n *node) string {
	var b strings.Builder
	title := "process runtime"
	if n.parent != nil {
		title = strings.TrimSuffix(n.get("help"), ".")
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"tend manual\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(manName(n)),
		quoteRoff("tend "+versionText()), manName(n), roff(title))
	b.WriteString(".SH SYNOPSIS\n.nf\n")
	fmt.Fprintf(&b, "%s\n.fi\n", roff(synopsis(n)))
	b.WriteString(".SH DESCRIPTION\n")
	if n.parent != nil {
		b.WriteString(roff(n.get("help")) + "\n")
	}
	manText(&b, n.detail())
	if len(n.args) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, a := range n.args {
			manItem(&b, strings.ToUpper(a.name), a.get("help"))
		}
	}
	if n.parent != nil {
		manFlags(&b, "OPTIONS", n.flags)
	}
	manFlags(&b, "OPTIONS OF ALL VERBS", app.flags)
	var see []string
	if n.parent != nil {
		see = append(see, fmt.Sprintf(".BR %s (1)", roff(manName(n.parent))))
	}
	for i, v := range n.shown() {
		if i == 0 {
			b.WriteString(".SH VERBS\n")
		}
		manItem(&b, strings.Join(append([]string{v.name}, v.list("aliases")...), ", "), v.get("help"))
		see = append(see, fmt.Sprintf(".BR %s (1)", roff(manName(v))))
	}
	if n.parent == nil {
		b.WriteString(".SH EXIT STATUS\n")
		manText(&b, helpText("exit statuses"))
		b.WriteString(".SH ENVIRONMENT\n")
		manText(&b, helpText("environment"))
	}
	if len(see) > 0 {
		b.WriteString(".SH SEE ALSO\n" + strings.Join(see, ",\n") + "\n")
	}
	return b.String()
}

// synopsis is the form of a command line.
func synopsis(n *node) string {
	text := n.path() + " [flags]"
	if len(n.verbs) > 0 && n.meant == nil {
		return text + " VERB ..."
	}
	for _, a := range n.args {
		word := strings.ToUpper(a.name)
		switch {
		case a.has("passthrough"):
			word = "-- CMD ARG..."
		case a.several():
			word += "..."
		}
		if !a.required() && !a.has("passthrough") {
			word = "[" + word + "]"
		}
		text += " " + word
	}
	return text
}

func manFlags(b *strings.Builder, title string, flags []*param) {
	for i, f := range visible(flags) {
		if i == 0 {
			b.WriteString(".SH " + title + "\n")
		}
		help := f.get("help")
		if f.has("env") {
			help += " ($" + f.get("env") + ")"
		}
		manItem(b, f.term(), help)
	}
}

func manItem(b *strings.Builder, term, text string) {
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(term), roff(text))
}

// manText sets paragraphs; what is indented stays as it is.
func manText(b *strings.Builder, text string) {
	for _, part := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(part, "\t") {
			b.WriteString(".PP\n.RS 4\n.nf\n")
			for line := range strings.SplitSeq(part, "\n") {
				b.WriteString(roff(strings.TrimPrefix(line, "\t")) + "\n")
			}
			b.WriteString(".fi\n.RE\n")
			continue
		}
		b.WriteString(".PP\n")
		for line := range strings.SplitSeq(part, "\n") {
			b.WriteString(roff(line) + "\n")
		}
	}
}

var roffText = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff quotes text for a line of its own.
func roff(s string) string {
	s = roffText.Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// quoteRoff quotes an argument of a macro.
func quoteRoff(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }
