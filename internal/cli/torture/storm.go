//go:build linux

package torture

import (
	"context"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// storm sends each thread of each role SIGURG again and again, to the end of the rounds: what Go's
// runtime sends now and then, so that goroutines take turns. A call that the kernel does
// not begin again after it fails with EINTR.
func (r *runner) storm(rounds context.Context) {
	every := time.NewTicker(stormPause)
	defer every.Stop()
	var sent int64
	defer func() { r.noting(func(rep *Report) { rep.Signals = sent }) }()
	for {
		for _, pid := range r.d.Roles() {
			threads, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task") // it may have died
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil && unix.Tgkill(pid, tid, unix.SIGURG) == nil {
					sent++
				}
			}
		}
		select {
		case <-every.C:
		case <-rounds.Done():
			return
		}
	}
}

// stormPause is between two signals to a thread: some 50 threads get 2,500 a second.
const stormPause = 20 * time.Millisecond
