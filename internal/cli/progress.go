package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows that something is being waited for, on a terminal only and
// after a moment. The returned function ends it and clears the line.
func (inv *invocation) progress(what string) (done func()) {
	return inv.fetching(what, true).during(context.Background(), func(context.Context) (done, total int64) { return 0, 0 })
}

// bar shows how much of something has come, how fast, and how long the rest takes: in place on a
// terminal, and elsewhere in a line now and then. While nothing has come, a terminal shows how long it takes.
type bar struct {
	inv         *invocation
	what        string
	live, lines bool
	shown       bool      // on the terminal
	nothing     bool      // has come yet
	tells       bool      // text in place of bytes
	text        string    // at the end
	began, said time.Time // the first progress, or the first of it, and the last that was shown
	first       int64     // what there was at began
}

// barEvery and barLines are the times between what a bar shows, on a terminal and elsewhere; after
// barMoment a terminal shows that nothing has come.
const barEvery, barLines, barMoment = 200 * time.Millisecond, 10 * time.Second, 500 * time.Millisecond

// fetching makes a bar; quiet: it shows nothing but on a terminal.
func (inv *invocation) fetching(what string, quiet bool) *bar {
	live := inv.colours(inv.errs)
	return &bar{inv: inv, what: what, live: live, lines: !live && !quiet && !inv.flags.JSON}
}

// during shows what ask says each moment. The returned function ends it and clears the line.
func (b *bar) during(ctx context.Context, ask func(context.Context) (done, total int64)) (end func()) {
	if !b.live && !b.lines {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		b.progress(0, 0)
		tick := time.NewTicker(barMoment)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.progress(ask(ctx))
			case <-ctx.Done():
				b.end()
				return
			}
		}
	})
	return func() {
		stop()
		wg.Wait()
	}
}

// line prints a line above it.
func (b *bar) line(text string) {
	b.end()
	fmt.Fprintln(b.inv.errs, printable(text))
}

// tell says what something that has no bytes has written last; "": nothing.
func (b *bar) tell(text string) {
	b.tells, b.text = true, text
	b.progress(0, 0)
}

// progress says how many bytes have come, of how many; 0: that is not known.
func (b *bar) progress(done, total int64) {
	now, nothing := time.Now(), done+total == 0
	if b.lines && b.said.IsZero() {
		b.said = now
	}
	if b.began.IsZero() || b.nothing && !nothing {
		b.began, b.first = now, done
	}
	b.nothing = nothing
	took := now.Sub(b.began)
	every := barEvery
	if !b.live {
		every = barLines
	}
	if !b.live && !b.lines || nothing && (!b.live && !b.tells || took < barMoment) || now.Sub(b.said) < every {
		return
	}
	b.said = now
	text := printable(b.what)
	if nothing {
		if text += fmt.Sprintf(" (%ds)", int(took.Seconds())); b.text != "" {
			text += ": " + printable(b.text)
		}
	} else {
		text += ": " + sizeText(done)
	}
	if total > 0 {
		text += " of " + sizeText(total)
	}
	if took >= time.Second && done > b.first {
		rate := float64(done-b.first) / took.Seconds()
		text += ", " + sizeText(int64(rate)) + "/s"
		if total > done {
			text += fmt.Sprintf(", %v left", time.Duration(float64(total-done)/rate*float64(time.Second)).Round(time.Second))
		}
	}
	if b.live {
		text = "tend: " + text
		if size, ok := terminalSize(b.inv.errs); ok {
			text = cut(text, int(size.Cols)-1)
		}
		fmt.Fprintf(b.inv.errs, "\r\x1b[K\x1b[2m%s\x1b[0m", text)
		b.shown = true
	} else {
		fmt.Fprintf(b.inv.errs, "tend: %s\n", text)
	}
}

// end clears it.
func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.inv.errs, "\r\x1b[K")
	}
	b.shown = false
}

// counted has a bar show what is read or written through it.
type counted struct {
	*bar
	io.Reader
	io.Writer
	done, total int64
}

func (c *counted) Read(b []byte) (int, error) { return c.count(c.Reader.Read(b)) }

func (c *counted) Write(b []byte) (int, error) { return c.count(c.Writer.Write(b)) }

func (c *counted) count(n int, err error) (int, error) {
	c.done += int64(n)
	c.progress(c.done, c.total)
	return n, err
}
