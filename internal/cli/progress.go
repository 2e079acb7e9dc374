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
