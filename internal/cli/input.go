package cli

import (
	"context"
	"io"
	"strings"

	"github.com/tend-run/tend/process"
)

type inputCmd struct {
	inSandbox
	EOF       bool   `name:"eof" help:"Close the input of the process afterwards (on a terminal: send ctrl-D)."`
	NoNewline bool   `short:"n" name:"no-newline" help:"No newline after TEXT."`
	Writer    string `placeholder:"NAME" help:"Write under this name. The same command repeated with the same --offset writes nothing twice, even if others write, too."`
	Offset    *int64 `placeholder:"N" help:"Offset of the first byte: in all that --writer has written, or without --writer in all input. Bytes that were accepted before are not written twice."`

	ID   string   `arg:"" complete:"input" help:"The process."`
	Text []string `arg:"" optional:"" help:"What to write, with a newline. Without it, stdin is copied."`
}

func (c *inputCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Offset != nil && *c.Offset < 0 {
		return usageError("--offset is negative; offsets count from 0")
	}
	if c.Writer != "" && c.Offset == nil {
		return usageError("--writer wants --offset: where in all that this writer has written the first byte belongs; 0 at first")
	}
	_, p, err := inv.open(ctx, c.ID)
	if err != nil {
		return err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return about(c.ID, err)
	}
	_, tty := info.Stream(process.PTY)
	var from io.Reader = inv.in
	switch text := strings.Join(c.Text, " "); {
	case len(c.Text) > 0 && c.NoNewline:
		from = strings.NewReader(text)
	case len(c.Text) > 0 && tty:
		from = strings.NewReader(text + "\r") // the key that ends a line
	case len(c.Text) > 0:
		from = strings.NewReader(text + "\n")
	case c.EOF && inv.in == nil:
		from = strings.NewReader("")
	}
	facts := map[string]any{"id": p.ID(), "accepted": info.Stdin.Accepted}
	write := func(in process.Input) error {
		in.Writer, in.Offset, in.Again = c.Writer, c.Offset, c.Writer != ""
		acc, err := p.Write(ctx, in)
		if err != nil {
			return about(c.ID, err)
		}
		facts["accepted"] = acc.Offset
		if c.Writer != "" {
			facts["written"] = acc.Written
		}
		if c.Offset != nil {
			*c.Offset = max(*c.Offset+int64(len(in.Data)), 0)
		}
		return nil
	}
	if err := feed(from, func(piece []byte) error { return write(process.Input{Data: piece}) }); err != nil {
		return err
	}
	if c.EOF {
		end := process.Input{EOF: true}
		if tty {
			end = process.Input{Data: []byte{4}}
		}
		if err := write(end); err != nil {
			return err
		}
	}
	if inv.flags.JSON {
		return printJSON(inv.out, facts)
	}
	return nil
}
