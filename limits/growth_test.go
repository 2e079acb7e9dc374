package limits

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/process"
)

// used is what a directory takes on its disk, in bytes, whatever comes and goes
// meanwhile.
func used(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed
		}
		if fi, err := e.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
			}
		}
		return nil
	})
	return n
}

// What a day of logs writes, in less time: processes that never end write many
// times what is kept of them, others end over and over, and the spool never
// takes more than its budget and a part of it.
func TestLogsOfADayStayWithinTheBudget(t *testing.T) {
	const (
		budget = 64 << 20 // of a small disk
		// A sixteenth may come before the spool is looked at, and as much as
		// the machine writes while it is being freed.
		slack   = budget/16 + 24<<20
		keep    = 4 << 20
		large   = 512 << 20
		writers = 3
		ending  = 250
		each    = 1 << 20
	)
	d, disk := serveOn(t, "256m")
	same := d.sameRoles()
	dir := filepath.Join(disk, "spool")
	var most atomic.Int64
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			most.Store(max(most.Load(), used(dir)))
		}
	}()
	var live []process.Process
	for range writers {
		p := d.writer(large, process.Retention{Limit: keep})
		d.setOff(p)
		live = append(live, p)
	}
	var left atomic.Int64
	left.Store(ending)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				p := d.writer(each, process.Retention{})
				d.setOff(p)
				if res, err := p.Wait(t.Context(), process.Until{EOF: true}); err != nil || res.Exit == nil || res.Exit.Code != 0 {
					t.Errorf("a process ended with %+v, %v", res, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, p := range live {
		// One that has ended may have been removed for those after it.
		if res, err := p.Wait(t.Context(), process.Until{EOF: true}); !errors.Is(err, process.ErrNotFound) && (err != nil || res.Exit == nil || res.Exit.Code != 0) {
			t.Errorf("a process ended with %+v, %v", res, err)
		}
	}
	close(stop)
	<-watched
	t.Logf("%d MiB were written; the spool took %d MiB at most", (writers*large+ending*each)>>20, most.Load()>>20)
	if got := most.Load(); got > budget+slack {
		t.Errorf("the spool took %d bytes; the budget is %d, and %d may come on top", got, int64(budget), int64(slack))
	}
	d.eventually("the spool is within its budget", func() bool { return used(dir) <= budget+budget/16 })
	same()
}
