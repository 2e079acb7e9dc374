package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// view returns what logs is to show if that is a view, and nil if it is the
// output as it is.
func (c *logsFlags) view() (*view.Options, error) {
	if (c.head == nil || c.tail == nil) && !c.StripANSI && c.MaxLine == "" {
		return nil, nil
	}
	if c.Follow || c.Since != "" || c.Until != "" {
		return nil, usageError("-f, --since and --until do not go with --head and --tail together, --strip-ansi or --max-line")
	}
	o := &view.Options{Streams: c.streams(), StripANSI: c.StripANSI}
	if c.head != nil {
		o.Head = *c.head
	}
	if c.tail != nil {
		o.Tail = *c.tail
	}
	if c.MaxLine != "" {
		n, err := parseSize(c.MaxLine)
		if err != nil {
			return nil, usageError(fmt.Sprintf("--max-line %q %v", c.MaxLine, err))
		}
		if n < view.MinLine || n > view.MaxBytes {
			return nil, usageError(fmt.Sprintf("--max-line %q is out of range; %d bytes to 16MiB are allowed", c.MaxLine, view.MinLine))
		}
		o.MaxLine = int(n)
	}
	return o, nil
}

// printView prints a view. What is left out is named where it would be, as the
// reader is most likely a program that sees nothing else.
func (inv *invocation) printView(ctx context.Context, d *daemon, p process.Process, o view.Options) error {
	lineStart := true
	show := func(s process.Stream, text []byte) error {
		if inv.lines != nil {
			return inv.lines.write(s, time.Time{}, text)
		}
		_, err := inv.sink(s).Write(text)
		return err
	}
	print := func(it view.Item) error {
		switch {
		case inv.flags.JSON:
			return inv.printPiece(viewFacts(it))
		case it.Omitted == view.LongLine:
			return show(it.Stream, fmt.Appendf(nil, "[… %d bytes …]", it.To-it.From))
		case it.Omitted != 0:
			begin, why := "", "left out"
			if !lineStart {
				begin = "\n"
			}
			if it.Omitted == view.Freed {
				why = "no longer kept"
			}
			lineStart = true
			return show(process.Stdout, fmt.Appendf(nil, "%s[… %d bytes of %s %s: offsets %d to %d …]\n", begin, it.To-it.From,
				it.Stream, why, it.From, it.To))
		case len(it.Text) == 0:
			return nil
		}
		lineStart = bytes.HasSuffix(it.Text, []byte{'\n'})
		return show(it.Stream, it.Text)
	}
	for it, err := range d.View(ctx, process.Selector{ID: p.ID()}, o) {
		if err == nil {
			err = print(it)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func viewFacts(it view.Item) outputFacts {
	f := outputFacts{Stream: it.Stream.String(), Offset: it.From, To: &it.To}
	if it.Omitted != 0 {
		f.Omitted = it.Omitted.String()
		return f
	}
	f.Text, f.Base64 = textOrBase64(it.Text)
	return f
}

// textOrBase64 returns bytes as JSON shows them: text if they are valid UTF-8.
func textOrBase64(b []byte) (text, encoded *string) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}
