package role

import (
	"os"
	"os/signal"
	"syscall"
)

// OutliveLog lets this process continue when nobody reads its log any more. A Go program
// that writes to stdout or stderr without a reader dies of SIGPIPE, unless it asks for
// the signal. Ignoring it would be inherited by all that the process starts.
func OutliveLog() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
