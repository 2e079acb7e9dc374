//go:build linux

package keeper

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/procfs"
)

// Where containers have no control group of processor time, the kernel gives each session the same
// time (sched_autogroup), or each process where that is off, and a program in a container may make
// hundreds. So the keeper makes those of a container nicer, the more there are: together they weigh as
// much as one, as far as niceness reaches, which is to 68 of them.

const (
	weighEvery = 2 * time.Second
	mostNice   = 19
)

// niceOf is how nice each of so many is, to weigh as much as one: a step is a factor of 1.25.
func niceOf(n int) int {
	return min(int(math.Ceil(math.Log(float64(n))/math.Log(1.25))), mostNice)
}

// weighBoxes does it for ever. Without containers it sleeps.
func (k *Keeper) weighContainers() {
	if k.groups.Weighs() {
		return
	}
	for {
		k.containers.waitForOne()
		weigh(k.containers.spaces(), autogroups())
		time.Sleep(weighEvery)
	}
}

// autogroups reports whether the kernel gives each session the same time.
func autogroups() bool {
	b, _ := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	return bytes.HasPrefix(b, []byte("1"))
}

// weigh does it once, by session or by process. The first processes of containers need no time, and
// are left alone.
func weigh(containers map[string]*heldContainer, sessions bool) {
	pids, err := procfs.PIDs()
	if err != nil {
		return
	}
	found := map[string]map[int]int{} // by namespace, a process of each session, or of its own
	for _, pid := range pids {
		ns := pidSpace(pid)
		if b := containers[ns]; b == nil || pid == int(b.first.Load()) {
			continue
		}
		stat, ok := procfs.ReadStat(pid)
		if !ok || stat.Dead() {
			continue
		}
		of := pid
		if sessions {
			of = stat.Session
		}
		if found[ns] == nil {
			found[ns] = map[int]int{}
		}
		found[ns][of] = pid
	}
	for _, all := range found {
		for _, pid := range all {
			if sessions {
				setGroupNice(pid, niceOf(len(all)))
			} else if now, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err == nil && 20-now < niceOf(len(all)) {
				_ = unix.Setpriority(unix.PRIO_PROCESS, pid, niceOf(len(all))) // it may have ended
			}
		}
	}
}

// setGroupNice sets how nice the session of a process is. Who is not root may do so ten times a second
// on the whole machine, and make none less nice.
func setGroupNice(pid, nice int) {
	b, err := procfs.Read(pid, "autogroup")
	var group, now int
	if _, serr := fmt.Sscanf(string(b), "/autogroup-%d nice %d", &group, &now); err != nil || serr != nil || now == nice {
		return
	}
	for range 2 {
		f, err := os.OpenFile(procfs.Path(pid, "autogroup"), os.O_WRONLY, 0)
		if err != nil {
			return
		}
		_, err = fmt.Fprint(f, nice)
		f.Close()
		if err == nil || os.Geteuid() == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
