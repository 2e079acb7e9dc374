package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/view"
)

type grepCmd struct {
	IgnoreCase bool  `short:"i" help:"Capital and small letters are the same."`
	Line       bool  `short:"n" help:"Print stream and line number before each line."`
	Byte       bool  `short:"b" help:"Print stream and byte offset before each line, for tend logs --from."`
	Max        int64 `short:"m" placeholder:"N" help:"Stop after N matches."`
	From       int64 `placeholder:"OFFSET" default:"0" help:"Start at this byte offset of each stream."`
	Stdout     bool  `xor:"stream" help:"Only standard output."`
	Stderr     bool  `xor:"stream" help:"Only standard error."`
	StripANSI  bool  `name:"strip-ansi" help:"Take terminal escape sequences away before the search."`

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
}

// Run exits with 1 if nothing matches, as grep does.
func (c *grepCmd) Run(ctx context.Context, inv *invocation) error {
	if c.From < 0 || c.Max < 0 {
		return usageError("--from and -m are not negative")
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	p, err := d.find(ctx, c.ID)
	if err != nil {
		return err
	}
	o := view.GrepOptions{Pattern: c.Pattern, Streams: (&logsCmd{Stdout: c.Stdout, Stderr: c.Stderr}).streams(), Limit: c.Max, StripANSI: c.StripANSI}
	if c.IgnoreCase {
		o.Pattern = "(?i)" + o.Pattern
	}
	if o.From, err = startAt(ctx, p, c.From, o.Streams); err != nil {
		return about(c.ID, err)
	}
	found := false
	// A person sees each line when it is found. For a program, a million of them
	// are not written one by one.
	_, person := terminalOf(inv.out)
	out := bufio.NewWriter(inv.out)
	err = d.Grep(ctx, process.Selector{ID: p.ID()}, o, func(m view.Match) error {
		found = true
		if err := c.print(inv, out, &m); err != nil || !person {
			return err
		}
		return out.Flush()
	}, func(g process.Gap) error {
		if inv.flags.JSON {
			return printJSONLine(out, outputFacts{Stream: g.Stream.String(), Offset: g.From, GapTo: &g.To})
		}
		inv.note("%s", gapText(g))
		return nil
	})
	err = cmp.Or(err, out.Flush())
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok && invalid.Field == "pattern" {
		return usageError(err.Error())
	}
	if err == nil && !found {
		return statusError(1)
	}
	return about(c.ID, err)
}

func (c *grepCmd) print(inv *invocation, out io.Writer, m *view.Match) error {
	if inv.flags.JSON {
		f := matchFacts{Stream: m.Stream.String(), Line: m.Line, Offset: m.From, To: m.To, Cut: m.Cut}
		f.Text, f.Base64 = textOrBase64(m.Text)
		return printJSONLine(out, f)
	}
	prefix := ""
	if c.Line || c.Byte {
		prefix = m.Stream.String() + ":"
	}
	if c.Line {
		prefix += fmt.Sprintf("%d:", m.Line)
	}
	if c.Byte {
		prefix += fmt.Sprintf("%d:", m.From)
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
