//go:build linux

package keeper

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Answers of the kernel that wait in netlink sockets count for no control group, and a
// program in a container may open thousands of sockets and read none. So the keeper looks at
// them when the kernel's own memory has grown, which holds them, and kills the programs of
// a container whose sockets hold more than they may, with what the kernel keeps of their
// requests. Where the kernel does not say how much that is, it looks each second.
//
// The kernel could wake the keeper when programs wait for memory (a trigger of PSI). That
// is later, and a program that ends with a trigger open waits for all processors: a keeper
// that is killed would be gone, and replaced, 6 to 14 ms later.

const (
	// What the netlink sockets of a container may hold, in bytes: a quarter of its memory, within
	// these. A program that reads its answers has some KiB.
	leastHoard = 16 << 20
	mostHoard  = 64 << 20

	slabEvery  = 500 * time.Millisecond
	hoardEvery = time.Second // where the slab is not known
)

func hoardOf(l *container.Limits) int64 {
	if l.Memory == 0 {
		return mostHoard
	}
	return min(max(l.Memory/4, leastHoard), mostHoard)
}

// gauge tells when the slab has grown since the last look. A program that frees as much
// of it at the same time has it count against its own limit until then.
type gauge struct {
	low int64 // the least since the last look, in bytes; 0: there was none
}

// grown reports whether a look is due. Where containers are made by the hundred, the slab is large
// and grows all the time.
func (g *gauge) grown(now int64) bool {
	g.low = min(g.low, now)
	if now-g.low < min(max(leastHoard, g.low/8), mostHoard) {
		return false
	}
	g.low = now
	return true
}

// slab is how many bytes the kernel holds for itself that it cannot take back; false: it
// does not say.
func slab() (int64, bool) {
	// The file of meminfo is one of the container's on some machines, and has none.
	fd, err := unix.Open("/proc/vmstat", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	f := os.NewFile(uintptr(fd), "vmstat")
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if pages, found := strings.CutPrefix(lines.Text(), "nr_slab_unreclaimable "); found {
			n, err := strconv.ParseInt(pages, 10, 64)
			return n * int64(os.Getpagesize()), err == nil
		}
	}
	return 0, false
}

// watchHoards looks at the containers for ever. Without containers it sleeps.
func (k *Keeper) watchHoards() {
	var g gauge
	for {
		k.containers.waitForOne()
		began, pause := time.Now(), hoardEvery
		now, known := slab()
		if known {
			pause = slabEvery
		}
		if (!known || g.grown(now)) && !k.lookAtHoards() {
			g = gauge{}
		}
		// A list takes time for the sockets of all namespaces: half of a processor at most.
		time.Sleep(max(pause, time.Since(began)))
	}
}

// lookAtHoards kills the programs of containers that hold too much. It reports whether it could look
// at each.
func (k *Keeper) lookAtHoards() (all bool) {
	all = true
	var ends sync.WaitGroup
	defer ends.Wait()
	for _, b := range k.containers.list() {
		held, most, looked := b.hoard()
		all = all && looked
		if held > most {
			k.logf("%s: its netlink sockets hold more than %d MiB of the kernel's memory, which no limit counts: its programs are killed",
				b.name(), most>>20)
			k.killPrograms(&ends, b, process.CauseOOM)
		}
	}
	return all
}

// hoard is what the netlink sockets of a container hold, and may hold, in bytes; false: it is just
// being made, frozen or ended. Those in the network of the machine are not told apart.
func (b *heldContainer) hoard() (held, most int64, looked bool) {
	if !b.mu.TryRLock() {
		return 0, 0, false
	}
	defer b.mu.RUnlock()
	if b.container == nil || b.ending.Load() || !b.container.Alive() || b.container.Spec.Net == container.NetHost {
		return 0, 0, true
	}
	most = hoardOf(&b.container.Spec.Limits)
	return procfs.NetlinkQueues(b.container.PID, most), most, true
}

// killPrograms begins to kill all programs in a container for a cause.
func (k *Keeper) killPrograms(ends *sync.WaitGroup, b *heldContainer, cause process.Cause) {
	for p := range k.all {
		if p.container.Load() == b {
			ends.Go(func() {
				if killed, werr := k.kill(p, cause); werr == nil && len(killed.Survivors) > 0 {
					k.logf("%s: after a kill there are still %v", b.name(), killed.Survivors)
				}
			})
		}
	}
}
