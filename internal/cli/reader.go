package cli

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
)

// errReaderGone ends what prints for a reader that has closed its end.
var errReaderGone = errors.New("the reader of the output is gone")

// whileRead ends the context when the reader of stdout goes away. What follows
// a quiet process has nothing to write, and would not notice:
//
//	tend logs -f web | grep -m1 ready
func (inv *invocation) whileRead(ctx context.Context) (_ context.Context, stop func()) {
	out, ok := inv.out.(*os.File)
	if !ok {
		return ctx, func() {}
	}
	stopped, end, err := os.Pipe()
	if err != nil { // then it is noticed at the next write
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if hungUp(out, stopped) {
			cancel(errReaderGone)
		}
	})
	return ctx, func() {
		end.Close()
		wg.Wait()
		stopped.Close()
		cancel(nil)
	}
}

// left is how a follower ends whose context has ended: well if a person left
// it, and as a write would have ended it if its reader is gone.
func left(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errReaderGone) {
		return statusError(128 + int(syscall.SIGPIPE))
	}
	return nil
}
