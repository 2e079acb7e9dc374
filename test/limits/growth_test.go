//go:build linux

package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
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

// The logs of a day, in less time: processes that never end write many times what
// is kept of their output, others end over and over, and the spool never takes
// more than its budget and a sixteenth.
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
	most, stop := watchUse(t, disk)
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
		if res, err := p.Wait(t.Context(), process.Until{EOF: true}); err != nil || res.Exit == nil || res.Exit.Code != 0 {
			t.Errorf("a process ended with %+v, %v", res, err)
		}
	}
	// What they came to is known of all, though the output of most is gone.
	infos, err := d.c.List(t.Context(), process.Filter{})
	if err != nil || len(infos) != writers+ending {
		t.Errorf("%d processes are known, %v; there were %d", len(infos), err, writers+ending)
	}
	for _, in := range infos {
		if in.Exit == nil || in.Exit.Code != 0 || in.Streams[0].End != each && in.Streams[0].End != large {
			t.Errorf("%s is known as %+v with %+v", in.ID, in.Exit, in.Streams)
		}
	}
	stop()
	t.Logf("%d MiB were written; the spool took %d MiB at most", (writers*large+ending*each)>>20, most.Load()>>20)
	if got := most.Load(); got > budget+slack {
		t.Errorf("the spool took %d bytes; the budget is %d, and %d may come on top", got, int64(budget), int64(slack))
	}
	proctest.Eventually(t, "the spool is within its budget", func() bool { return used(dir) <= budget+budget/16 })
	same()
}

// watchUse looks often at what the spool on a disk takes, until stop is called. It
// asks the filesystem, which a walk through a thousand directories would keep busy.
func watchUse(t *testing.T, disk string) (most *atomic.Int64, stop func()) {
	taken := func() int64 {
		var st syscall.Statfs_t
		if err := syscall.Statfs(disk, &st); err != nil {
			t.Error(err)
		}
		return int64(st.Blocks-st.Bfree) * st.Bsize
	}
	others := taken() - used(filepath.Join(disk, "spool"))
	most = new(atomic.Int64)
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			most.Store(max(most.Load(), taken()-others))
		}
	}()
	return most, func() {
		close(done)
		<-watched
	}
}

// Everything that a process leaves on the disk counts: its spec, the index of its
// output, and the directory of a process that did nothing.
func TestAllThatIsKeptOfAProcessIsWithinTheBudget(t *testing.T) {
	const (
		budget = 64 << 20
		// A sixteenth, and what a loaded machine writes while it is being freed.
		slack = budget/16 + 48<<20
	)
	d, disk := serveOn(t, "256m")
	same := d.sameRoles()
	dir := filepath.Join(disk, "spool")
	most, stop := watchUse(t, disk)
	word := strings.Repeat("x", 100<<10)
	env, argv := map[string]string{}, []string{"/bin/true"}
	for i := range 12 {
		env[fmt.Sprint("BIG", i)] = word
		argv = append(argv, word)
	}
	total := 0
	for what, tc := range map[string]struct {
		times int
		spec  process.Spec
	}{
		"labels":            {60, process.Spec{Argv: []string{"/bin/true"}, Labels: map[string]string{"big": strings.Repeat("x", process.MaxLabelsLen-3)}}},
		"environments":      {80, process.Spec{Argv: []string{"/bin/true"}, Env: env}},
		"arguments":         {80, process.Spec{Argv: argv}},
		"tags":              {300, process.Spec{Argv: []string{"/bin/true"}, Tag: strings.Repeat("x", process.MaxTagLen)}},
		"nothing at all":    {300, process.Spec{Argv: []string{"/bin/true"}}},
		"output":            {60, process.Spec{Shell: "head -c 3000000 /dev/zero; exit 3"}},
		"output, bytewise":  {20, process.Spec{Shell: "dd if=/dev/zero bs=1 count=60000 2>/dev/null; exit 3"}},
		"much, and a label": {40, process.Spec{Shell: "head -c 3000000 /dev/zero", Labels: map[string]string{"big": strings.Repeat("x", 1<<20)}}},
	} {
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(tc.times))
		for range 2 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					p, err := d.c.Start(t.Context(), tc.spec)
					if err != nil {
						t.Errorf("%s: %v", what, err)
						return
					}
					if res, err := p.Wait(t.Context(), process.Until{EOF: true}); err != nil || res.Exit == nil || res.Exit.Code != 0 && res.Exit.Code != 3 {
						t.Errorf("%s: a process ended with %+v, %v", what, res, err)
						return
					}
				}
			})
		}
		wg.Wait()
		total += tc.times
		t.Logf("%s: the spool takes %d MiB now, and took %d at most", what, used(dir)>>20, most.Load()>>20)
	}
	stop()
	if got := most.Load(); got > budget+slack {
		t.Errorf("the spool took %d bytes; the budget is %d, and %d may come on top", got, int64(budget), int64(slack))
	}
	proctest.Eventually(t, "the spool is within its budget", func() bool { return used(dir) <= budget+budget/16 })
	infos, err := d.c.List(t.Context(), process.Filter{})
	if err != nil || len(infos) > total {
		t.Errorf("%d processes are known, %v", len(infos), err)
	}
	for _, in := range infos {
		if in.Exit == nil || in.Damaged != "" {
			t.Errorf("%s: %+v, %q", in.ID, in.Exit, in.Damaged)
		}
	}
	if len(infos) < total/2 {
		t.Errorf("of %d processes %d are known: facts go with the output", total, len(infos))
	}
	same()
}

// The spec of a running process cannot be freed. So a start that would take too
// much is refused, and the error names the limit.
func TestLargeSpecsOfRunningProcessesAreBounded(t *testing.T) {
	d, disk := serveOn(t, "256m")
	spec := process.Spec{Argv: []string{"/bin/sleep", "100000"}, Labels: map[string]string{"big": strings.Repeat("x", process.MaxLabelsLen-3)}}
	var refusal error
	for range 40 {
		if _, refusal = d.c.Start(t.Context(), spec); refusal != nil {
			break
		}
	}
	if !errors.Is(refusal, process.ErrLimit) || !strings.Contains(refusal.Error(), "16777216") {
		t.Errorf("the start that is too much says %v", refusal)
	}
	if got := used(filepath.Join(disk, "spool")); got > 32<<20 {
		t.Errorf("the spool takes %d bytes", got)
	}
	if _, err := d.c.Start(t.Context(), process.Spec{Argv: []string{"/bin/true"}}); err != nil {
		t.Errorf("a small one: %v", err)
	}
}
