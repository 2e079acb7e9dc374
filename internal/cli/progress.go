package cli

import (
	"fmt"
	"sync"
	"time"
)

// progress shows that something is being waited for, on a terminal only and
// after a moment. The returned function ends it and clears the line.
func (inv *invocation) progress(what string) (done func()) {
	if !inv.colours(inv.errs) {
		return func() {}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		started := time.Now()
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		shown := false
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(inv.errs, "\r\x1b[K\x1b[2mtend: %s (%ds)\x1b[0m", what, int(time.Since(started).Seconds()))
				shown = true
			case <-stop:
				if shown {
					fmt.Fprint(inv.errs, "\r\x1b[K")
				}
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
}

// bar shows how much of something has come, on a terminal only.
type bar struct {
	inv   *invocation
	what  string
	shown bool
	on    bool
}

func (inv *invocation) fetching(what string) *bar {
	return &bar{inv: inv, what: what, on: inv.colours(inv.errs)}
}

// line prints a line above it.
func (b *bar) line(text string) {
	b.end()
	fmt.Fprintln(b.inv.errs, printable(text))
}

func (b *bar) progress(done, total int64) {
	if !b.on || total == 0 {
		return
	}
	fmt.Fprintf(b.inv.errs, "\r\x1b[K\x1b[2mtend: %s: %s of %s\x1b[0m", printable(b.what), sizeText(done), sizeText(total))
	b.shown = true
}

// end clears it.
func (b *bar) end() {
	if b.shown {
		fmt.Fprint(b.inv.errs, "\r\x1b[K")
	}
	b.shown = false
}
