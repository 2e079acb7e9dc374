package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// manCmd makes manual pages from the grammar and the help texts, so that they
// say what --help says.
type manCmd struct {
	Verb []string `arg:"" optional:"" complete:"verb" help:"The command. Default: tend itself."`
	Dir  string   `placeholder:"DIR" help:"Write the pages of all commands into this directory, such as ~/.local/share/man/man1."`
}

func (c *manCmd) Run(inv *invocation) error {
	n := inv.model.Node
	for _, name := range c.Verb {
		child := verbOf(n, name)
		if child == nil || child.Hidden {
			return usageError(fmt.Sprintf("%q is no verb of %s", name, n.FullPath()))
		}
		n = child
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
	return eachVerb(n, func(n *kong.Node) error {
		return os.WriteFile(filepath.Join(c.Dir, manName(n)+".1"), []byte(manPage(inv.model, n)), 0o644)
	})
}

// eachVerb calls do for a node and all that is below it and shown.
func eachVerb(n *kong.Node, do func(*kong.Node) error) error {
	if err := do(n); err != nil {
		return err
	}
	for _, c := range n.Children {
		if c.Type != kong.CommandNode || c.Hidden {
			continue
		}
		if err := eachVerb(c, do); err != nil {
			return err
		}
	}
	return nil
}

// manName is the name of a page: tend-distant-listen.
func manName(n *kong.Node) string {
	if n.Parent == nil {
		return n.Name
	}
	return manName(n.Parent) + "-" + n.Name
}

// manPage is a page in the macros of man(7).
func manPage(app *kong.Application, n *kong.Node) string {
	var b strings.Builder
	title := "process runtime"
	if n.Parent != nil {
		title = strings.TrimSuffix(n.Help, ".")
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"tend manual\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(manName(n)),
		quoteRoff("tend "+versionText()), manName(n), roff(title))
	b.WriteString(".SH SYNOPSIS\n.nf\n")
	fmt.Fprintf(&b, "%s\n.fi\n", roff(synopsis(n)))
	b.WriteString(".SH DESCRIPTION\n")
	if n.Parent != nil {
		b.WriteString(roff(n.Help) + "\n")
	}
	detail := n.Detail
	if n.Parent == nil {
		detail = n.Help
	}
	manText(&b, detail)
	if len(n.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, p := range n.Positional {
			manItem(&b, strings.ToUpper(p.Name), p.Help)
		}
	}
	if n.Parent != nil {
		manFlags(&b, "OPTIONS", n.Flags)
	}
	manFlags(&b, "OPTIONS OF ALL VERBS", app.Flags)
	var verbs []*kong.Node
	for _, c := range n.Children {
		if c.Type == kong.CommandNode && !c.Hidden {
			verbs = append(verbs, c)
		}
	}
	if len(verbs) > 0 {
		b.WriteString(".SH VERBS\n")
		for _, c := range verbs {
			manItem(&b, strings.Join(append([]string{c.Name}, c.Aliases...), ", "), c.Help)
		}
	}
	if n.Parent == nil {
		b.WriteString(".SH EXIT STATUS\n")
		manText(&b, exitStatuses)
		b.WriteString(".SH ENVIRONMENT\n")
		manText(&b, environmentUsed)
	}
	see := []string{}
	if n.Parent != nil {
		see = append(see, fmt.Sprintf(".BR %s (1)", roff(manName(n.Parent))))
	}
	for _, c := range verbs {
		see = append(see, fmt.Sprintf(".BR %s (1)", roff(manName(c))))
	}
	if len(see) > 0 {
		b.WriteString(".SH SEE ALSO\n" + strings.Join(see, ",\n") + "\n")
	}
	return b.String()
}

// synopsis is the form of a command line.
func synopsis(n *kong.Node) string {
	text := "tend"
	if n.Parent != nil {
		text = strings.ReplaceAll(manName(n), "-", " ")
	}
	text += " [flags]"
	if len(n.Children) > 0 && n.DefaultCmd == nil {
		return text + " VERB ..."
	}
	for _, p := range n.Positional {
		word := strings.ToUpper(p.Name)
		switch {
		case p.Passthrough:
			word = "-- CMD ARG..."
		case p.IsCumulative():
			word += "..."
		}
		if !p.Required && !p.Passthrough {
			word = "[" + word + "]"
		}
		text += " " + word
	}
	return text
}

func manFlags(b *strings.Builder, title string, flags []*kong.Flag) {
	begun := false
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		if !begun {
			b.WriteString(".SH " + title + "\n")
			begun = true
		}
		text := "--" + f.Name
		if f.Short != 0 {
			text = "-" + string(f.Short) + ", " + text
		}
		if takesValue(f) {
			text += "=" + f.FormatPlaceHolder()
		}
		help := f.Help
		if len(f.Envs) > 0 {
			help += " ($" + strings.Join(f.Envs, ", $") + ")"
		}
		manItem(b, text, help)
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
