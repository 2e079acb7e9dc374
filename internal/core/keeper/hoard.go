//go:build linux

package keeper

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// Answers of the kernel that wait in netlink sockets count for no control group, and a
// program in a box may open thousands of sockets and read none. So the keeper looks at
// them when the kernel reports that programs wait for memory (PSI), and kills the
// programs of a box whose sockets hold more than they may, with what the kernel keeps of
// their requests. Where the kernel does not report that, it looks each second.

const (
	// What the netlink sockets of a box may hold, in bytes: a quarter of its memory, within
	// these. A program that reads its answers has some KiB.
	leastHoard = 16 << 20
	mostHoard  = 64 << 20

	hoardEvery = time.Second
)

func hoardOf(l *box.Limits) int64 {
	if l.Memory == 0 {
		return mostHoard
	}
	return min(max(l.Memory/4, leastHoard), mostHoard)
}

// pressure tells of memory pressure by EPOLLPRI, as long as it is open.
func pressure() (fd int, err error) {
	fd, err = unix.Open("/proc/pressure/memory", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// A tenth of the time is lost. A window of less than two seconds needs CAP_SYS_RESOURCE.
	for _, trigger := range []string{"some 50000 500000\x00", "some 200000 2000000\x00"} {
		if _, err = eintr.Get(func() (int, error) { return unix.Write(fd, []byte(trigger)) }); err == nil {
			return fd, nil
		}
	}
	unix.Close(fd)
	return -1, err
}

// watchHoards looks at the boxes for ever.
func (k *Keeper) watchHoards() {
	var each <-chan time.Time
	fd, err := pressure()
	if err == nil {
		err = unix.EpollCtl(k.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: onPressure})
	}
	if err != nil {
		each = time.Tick(hoardEvery)
	}
	for {
		select {
		case <-k.pressed:
		case <-each:
		}
		began := time.Now()
		var ends sync.WaitGroup
		for _, b := range k.cells.list() {
			if held, most := b.hoard(); held > most {
				k.logf("%s: its netlink sockets hold more than %d MiB of the kernel's memory, which no limit counts: its programs are killed",
					b.name(), most>>20)
				k.killPrograms(&ends, b, process.CauseOOM)
			}
		}
		ends.Wait()
		time.Sleep(time.Since(began)) // a list takes time for the sockets of all namespaces: half of a processor at most
	}
}

// hoard is what the netlink sockets of a box hold, and may hold, in bytes. Those in the
// network of the machine are not told apart.
func (b *inhabited) hoard() (held, most int64) {
	if !b.mu.TryRLock() { // it is being made, frozen or ended; the next look finds it
		return 0, 0
	}
	defer b.mu.RUnlock()
	if b.cell == nil || b.ending.Load() || !b.cell.Alive() || b.cell.Spec.Net == box.NetHost {
		return 0, 0
	}
	most = hoardOf(&b.cell.Spec.Limits)
	return procfs.NetlinkQueues(b.cell.PID, most), most
}

// killPrograms begins to kill all programs in a box for a cause.
func (k *Keeper) killPrograms(ends *sync.WaitGroup, b *inhabited, cause process.Cause) {
	for i := range k.procs {
		if p := k.procs[i].Load(); p != nil && p.box.Load() == b {
			ends.Go(func() {
				if killed, werr := k.kill(p, cause); werr == nil && len(killed.Survivors) > 0 {
					k.logf("%s: after a kill there are still %v", b.name(), killed.Survivors)
				}
			})
		}
	}
}
