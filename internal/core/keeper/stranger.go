//go:build linux

package keeper

import (
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// A stranger is a child of the keeper that the keeper has not made. Any program can make
// one: a child with CLONE_PARENT is its maker's parent's. Nobody waits for it, so the sweep
// collects it: left as a zombie it would keep its number, its place in its maker's limit of
// processes and, in a sandbox, the whole pid namespace.
//
// Any program can also make the keeper its tracer: PTRACE_TRACEME is for the parent, whoever that
// is, for each thread alone, and CLONE_PTRACE passes it on. What is traced is kept for the
// tracer when it ends. As long as that does not collect a thread, its process does not end, and
// neither does the whole pid namespace.
//
// No fact of the kernel tells a stranger from a child that a start has just made. So the
// sweep collects a zombie only when all is over that was making children at its first
// sight: what the keeper has made by then is collected or on the board.

// strangers is what the sweep knows.
type strangers struct {
	sweep sync.Mutex // one at a time

	mu    sync.Mutex
	next  uint64               // the number of the next work that makes children; guarded by mu
	under map[uint64]time.Time // works under way, by number, and since when; guarded by mu
	seen  map[zombie]uint64    // zombies of no known child, and next at their first sight; guarded by mu

	poke chan struct{} // capacity 1: there may be one
}

// zombie is a process that has ended, by number and start.
type zombie struct {
	pid   int
	start int64 // clock ticks since boot
}

const (
	// sweepPause bounds how often the children are looked through. A stranger is collected at its
	// second sight: three of these after its end, at most.
	sweepPause = 200 * time.Millisecond
	// sweepMoment is the same while a sandbox ends.
	sweepMoment = 20 * time.Millisecond
	// sweepRest is how often they are looked through when nothing has ended.
	sweepRest = 30 * time.Second
	// makingWait is how long a work holds the sweep up: a start may hang on a dead
	// mount for days. What it has made is on the board by then.
	makingWait = time.Minute
)

func newStrangers() *strangers {
	return &strangers{under: map[uint64]time.Time{}, seen: map[zombie]uint64{}, poke: make(chan struct{}, 1)}
}

// making notes that the caller makes children, which it collects, or has written on the
// board, before it calls over.
func (s *strangers) making() (over func()) {
	s.mu.Lock()
	n := s.next
	s.next++
	s.under[n] = time.Now()
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		delete(s.under, n)
		s.mu.Unlock()
	}
}

// pick returns those of the zombies that are strangers, and notes the others for the next
// time.
func (s *strangers) pick(zombies []zombie) (strange []zombie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.next // all works with lower numbers are over
	for n, since := range s.under {
		if time.Since(since) < makingWait {
			over = min(over, n)
		}
	}
	seen := make(map[zombie]uint64, len(zombies))
	for _, z := range zombies {
		switch at, known := s.seen[z]; {
		case !known:
			seen[z] = s.next
		case at <= over:
			strange = append(strange, z)
			fallthrough // one with a tracer cannot be collected yet
		default:
			seen[z] = at
		}
	}
	s.seen = seen
	return strange
}

// stir has the sweep look soon.
func (s *strangers) stir() { nudge(s.poke) }

// sweepStrangers collects strangers for ever.
func (k *Keeper) sweepStrangers() {
	<-k.settled
	for wait := sweepRest; ; {
		select {
		case <-k.births.poke:
		case <-time.After(wait):
		}
		time.Sleep(sweepPause)
		wait = sweepRest
		if k.sweep() {
			wait = 0
		}
	}
}

// sweepMeanwhile collects strangers every moment until stop: a pid namespace ends only when
// the last process in it is collected.
func (k *Keeper) sweepMeanwhile() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(sweepMoment):
				k.sweep()
			}
		}
	})
	return func() {
		close(end)
		wg.Wait()
	}
}

// sweep collects the strangers that have ended, and reports whether zombies were seen for the
// first time, which may be some. One that a tracer keeps is tried again with the others.
func (k *Keeper) sweep() (again bool) {
	k.births.sweep.Lock()
	defer k.births.sweep.Unlock()
	var any unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &any, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	if err == unix.ECHILD || err == nil && any.Signo == 0 {
		k.births.pick(nil)
		return false // as it is most often: the lists of all threads would cost a hundred calls
	}
	collectTraced()
	pids, _ := children(os.Getpid())
	ours := k.ourChildren()
	var zombies []zombie
	for _, pid := range pids {
		if ours[pid] {
			continue
		}
		if stat, ok := procfs.ReadStat(pid); ok && stat.Dead() {
			zombies = append(zombies, zombie{pid, stat.Start})
		}
	}
	strange := k.births.pick(zombies)
	for _, z := range strange {
		fd, err := unix.PidfdOpen(z.pid, 0)
		if err != nil {
			continue
		}
		if stat, ok := procfs.ReadStat(z.pid); ok && stat.Start == z.start { // else it was collected meanwhile
			unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG|unix.WALL, nil)
		}
		unix.Close(fd)
	}
	return len(zombies) > len(strange)
}

// collectTraced collects, as their tracer, threads and processes that have ended and are none of
// the keeper's children. Nothing lists them, and one that has stopped hides the others. So all are tried
// that are in a process whose first thread has ended.
func collectTraced() {
	pids, _ := procfs.PIDs()
	for _, pid := range pids {
		stat, ok := procfs.ReadStat(pid)
		if !ok || stat.State != 'Z' {
			continue
		}
		threads, _ := os.ReadDir(procfs.Path(pid, "task"))
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err == nil && (tid != pid || stat.PPID != os.Getpid()) {
				unix.Waitid(unix.P_PID, tid, nil, unix.WEXITED|unix.WNOHANG|unix.WALL, nil)
			}
		}
	}
}

// ourChildren are the children, by number, that others in the keeper collect: processes whose
// exits are not recorded, and the first processes of containers.
func (k *Keeper) ourChildren() map[int]bool {
	ours := k.containers.pids()
	for i := range k.board.Used() {
		if p := k.procs[i].Load(); p != nil && p.slot.Flags()&board.FlagExited == 0 {
			ours[p.slot.PID()] = true
			ours[p.slot.Session()] = true
		}
	}
	return ours
}
