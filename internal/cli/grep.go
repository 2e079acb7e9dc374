package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

type grepCmd struct {
	inSandbox
	IgnoreCase bool  `name:"ignore-case" short:"i" help:"Ignore case."`
	Line       bool  `short:"n" help:"Print stream and line number before each line."`
	Byte       bool  `short:"b" help:"Print stream and byte offset before each line, for tend logs --from."`
	Max        int64 `short:"m" placeholder:"N" help:"Stop after N matches."`
	From       int64 `placeholder:"OFFSET" default:"0" help:"Start at this byte offset of each stream."`
	Stdout     bool  `xor:"stream" help:"Only standard output."`
	Stderr     bool  `xor:"stream" help:"Only standard error."`
	After      int   `short:"A" placeholder:"N" help:"Print N lines after each match, of the same stream."`
	Before     int   `short:"B" placeholder:"N" help:"Print N lines before each match."`
	Context    int   `short:"C" placeholder:"N" help:"Print N lines before and after."`
	Invert     bool  `short:"v" name:"invert-match" help:"Find the lines that do not match."`
	Count      bool  `short:"c" help:"Print only the number of lines."`
	StripANSI  bool  `name:"strip-ansi" help:"Remove terminal escape sequences before the search."`

	ID      string `arg:"" complete:"process" help:"The process."`
	Pattern string `arg:"" help:"RE2 regular expression."`
}

// matchFacts is a match as JSON.
type matchFacts struct {
	Stream string  `json:"stream"`
	Line   int64   `json:"line"`
	Offset int64   `json:"offset"`
	To     int64   `json:"to"`
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
	Cut    bool    `json:"cut,omitempty"`
	// Context: the line is printed for a match near it (-A, -B, -C).
	Context bool `json:"context,omitempty"`
}

// Run exits with 1 if nothing matches, as grep does.
func (c *grepCmd) Run(ctx context.Context, inv *invocation) error {
	if c.From < 0 || c.Max < 0 {
		return usageError("--from and -m are not negative")
	}
	before, after := max(c.Before, c.Context), max(c.After, c.Context)
	if min(c.Before, c.After, c.Context) < 0 || max(before, after) > view.MaxContext {
		return usageError(fmt.Sprintf("-A, -B and -C are 0 to %d lines", view.MaxContext))
	}
	if c.Count {
		before, after = 0, 0
	}
	d, p, err := inv.open(ctx, c.ID)
	if err != nil {
		return err
	}
	o := view.GrepOptions{Pattern: c.Pattern, Streams: (&logsFlags{Stdout: c.Stdout, Stderr: c.Stderr}).streams(), Limit: c.Max,
		StripANSI: c.StripANSI, Invert: c.Invert, Before: before, After: after}
	if c.Count {
		o.MaxLine = 1 // nothing of it is printed
	}
	if c.IgnoreCase {
		o.Pattern = "(?i)" + o.Pattern
	}
	if o.From, err = startAt(ctx, p, c.From, o.Streams); err != nil {
		return about(c.ID, err)
	}
	var found int64
	pages := &groups{apart: before+after > 0}
	// A person sees each line when it is found. For a program, a million of them
	// are not written one by one.
	_, person := terminalOf(inv.out)
	out := bufio.NewWriter(inv.out)
	for m, failed := range d.Grep(ctx, process.Selector{ID: p.ID()}, o) {
		gap, freed := errors.AsType[*process.GapError](failed)
		switch {
		case freed && inv.flags.JSON:
			err = printJSONLine(out, outputFacts{Stream: gap.Gap.Stream.String(), Offset: gap.Gap.From, GapTo: &gap.Gap.To})
		case freed:
			inv.note("%s", gapText(gap.Gap))
		case failed != nil:
			err = failed
		default:
			if !m.Context {
				found++
			}
			if c.Count {
				continue
			}
			if err = c.print(inv, out, &m, pages); err == nil && person {
				err = out.Flush()
			}
		}
		if err != nil {
			break
		}
	}
	if err == nil && c.Count {
		err = c.printCount(inv, out, found)
	}
	err = cmp.Or(err, out.Flush())
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok && invalid.Field == "pattern" {
		return usageError(err.Error())
	}
	if err == nil && found == 0 {
		return statusError(1)
	}
	return about(c.ID, err)
}

func (c *grepCmd) printCount(inv *invocation, out io.Writer, n int64) error {
	if inv.flags.JSON {
		return printJSONLine(out, map[string]int64{"count": n})
	}
	_, err := fmt.Fprintln(out, n)
	return err
}

// groups separates matches with lines around them.
type groups struct {
	apart bool // they are to be
	begun bool
	last  process.Stream
	line  int64
}

// next reports whether a line does not follow the one before.
func (g *groups) next(m *view.Match) bool {
	gap := g.apart && g.begun && (m.Stream != g.last || m.Line > g.line+1)
	g.begun, g.last, g.line = true, m.Stream, m.Line
	return gap
}

func (c *grepCmd) print(inv *invocation, out io.Writer, m *view.Match, pages *groups) error {
	if inv.flags.JSON {
		f := matchFacts{Stream: m.Stream.String(), Line: m.Line, Offset: m.From, To: m.To, Cut: m.Cut, Context: m.Context}
		f.Text, f.Base64 = textOrBase64(m.Text)
		return printJSONLine(out, f)
	}
	prefix, sign := "", ":"
	if m.Context {
		sign = "-" // as grep has it
	}
	if c.Line || c.Byte {
		prefix = m.Stream.String() + sign
	}
	if c.Line {
		prefix += fmt.Sprintf("%d%s", m.Line, sign)
	}
	if c.Byte {
		prefix += fmt.Sprintf("%d%s", m.From, sign)
	}
	if pages.next(m) {
		prefix = "--\n" + prefix
	}
	end := "\n"
	if m.Cut {
		end = "[…]\n"
	}
	if _, err := io.WriteString(out, prefix); err != nil {
		return err
	}
	if _, err := out.Write(m.Text); err != nil {
		return err
	}
	_, err := io.WriteString(out, end)
	return err
}
