package layer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Progress is how far a copy or a merge is.
type Progress struct {
	// Copied are the bytes that there are of it, Total about all that there will be; 0: not known yet.
	// Both are 0 before and after it.
	Copied, Total atomic.Int64
}

// countAfter is how long a copy lasts before it is counted how much there is.
const countAfter = 500 * time.Millisecond

// of copies the content of directories. How much is in them is counted meanwhile, and not at all if it is quick.
func (p *Progress) of(ctx context.Context, dirs []string, copy func() error) error {
	if p == nil {
		return copy()
	}
	counting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-time.After(countAfter):
		case <-counting.Done():
			return
		}
		all := int64(0)
		for _, dir := range dirs {
			_, bytes, err := countTree(counting, dir)
			if err != nil {
				return // it stays unknown
			}
			all += bytes
		}
		p.Total.Store(all)
	})
	defer func() {
		stop()
		wg.Wait()
		p.Copied.Store(0)
		p.Total.Store(0)
	}()
	return copy()
}

// add notes bytes that have been copied.
func (p *Progress) add(n int64) {
	if p != nil {
		p.Copied.Add(n)
	}
}
