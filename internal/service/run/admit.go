package run

import (
	"context"
	"time"
)

// mostStarts bounds how many starts are under way at one time. Each takes a thread of the
// server and one of the keeper while it waits for the kernel, and a Go program keeps every
// thread that it ever had: a hundred services that start at once would leave two hundred.
// More than there are processors are no faster.
const mostStarts = 8

// admitWait bounds how long a start waits for others: a program on a disk that hangs must
// not hold up other services.
const admitWait = 500 * time.Millisecond

// admit waits until few starts are under way, for a moment at most. The caller calls done
// when its own is over.
func (s *Supervisor) admit(ctx context.Context) (done func()) {
	select {
	case s.starts <- struct{}{}:
		return s.admitted
	default:
	}
	late := time.NewTimer(admitWait)
	defer late.Stop()
	select {
	case s.starts <- struct{}{}:
		return s.admitted
	case <-late.C:
	case <-ctx.Done():
	}
	return func() {}
}

func (s *Supervisor) admitted() { <-s.starts }
