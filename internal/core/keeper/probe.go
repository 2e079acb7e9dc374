//go:build linux

package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/lib/eintr"
	"github.com/tend-run/tend/internal/lib/procfs"
)

// machine is what this kernel and filesystem allow, found out once by trying.
type machine struct {
	cacheFiles int  // open spool files at most
	resetOOM   bool // children must not inherit our oom_score_adj
	// filesystem returns "" or why splice to the spool does not work, and "" or
	// why heads cannot be freed. It takes a moment, and output does not wait for it.
	filesystem func() (splice, punch string)
	pidfdInfo  bool   // the kernel keeps exit statuses with pidfds
	files      uint64 // RLIMIT_NOFILE
}

// fdsPerProcess is what one running process with two pipes costs the keeper.
const fdsPerProcess = 3

func probeMachine(spoolDir string) machine {
	m := machine{cacheFiles: 256}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		m.files = r.Cur
		m.cacheFiles = int(min(r.Cur/4, 4096))
	}
	// The keeper and the anchor should be the last that the kernel kills for
	// memory. Lowering needs CAP_SYS_RESOURCE; without it nothing changes.
	if procfs.SetOOMScore(os.Getpid(), -900) == nil {
		m.resetOOM = true
	} else if b, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		if n, _ := strconv.Atoi(string(bytes.TrimSpace(b))); n < 0 {
			m.resetOOM = true
		}
	}
	m.filesystem = sync.OnceValues(func() (splice, punch string) { return probeFilesystem(spoolDir) })
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT | unix.PIDFD_INFO_PID | 1<<5} // 1<<5: report what is supported (6.17)
		m.pidfdInfo = unix.IoctlPidfdInfo(fd, &info) == nil && procfs.KernelAtLeast(6, 15)
		unix.Close(fd)
	}
	return m
}

// probeFilesystem tries a splice and a punch in the spool's filesystem.
func probeFilesystem(dir string) (splice, punch string) {
	path := filepath.Join(dir, ".probe")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		untried := fmt.Sprintf("it could not be tried: %v", err)
		return untried, untried
	}
	defer unix.Close(fd)
	defer unix.Unlink(path)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err.Error(), err.Error()
	}
	defer unix.Close(pipe[0])
	unix.Write(pipe[1], make([]byte, 2*blockSize))
	unix.Close(pipe[1])
	off := int64(0)
	// A filesystem that is full takes the call, if not the bytes.
	if _, err := eintr.Get(func() (int64, error) { return unix.Splice(pipe[0], nil, fd, &off, 2*blockSize, 0) }); err != nil &&
		err != unix.ENOSPC && err != unix.EDQUOT {
		splice = fmt.Sprintf("splice to this filesystem does not work (%v): a keeper that is killed may lose the bytes in its hands", err)
	}
	unix.Ftruncate(fd, 2*blockSize)
	if err := spool.Punch(fd, 0, blockSize); err != nil {
		punch = fmt.Sprintf("this filesystem cannot free the head of a file (%v): output that retention drops keeps its space until the process is removed", err)
	}
	return splice, punch
}

// facts for the hello: "name=detail" for a promise that is kept here,
// "name!reason" for one that is not.
func (m *machine) facts(k *Keeper) []string {
	var out []string
	fact := func(name, ok, broken string) {
		if broken != "" {
			out = append(out, name+"!"+broken)
		} else {
			out = append(out, name+"="+ok)
		}
	}
	splice, punch := m.filesystem()
	fact("output_survives_keeper", "splice(2) into the spool", splice)
	fact("retention_frees_space", "FALLOC_FL_PUNCH_HOLE", punch)
	switch {
	case k.groups.Root() == "":
		fact("kill_reaches_tree", "", k.groups.Why()+": descendants are found by session, parents and mark, and a kill claims nothing")
	case !k.groups.CanKill():
		fact("kill_reaches_tree", "", "this kernel has no cgroup.kill (Linux 5.14): members are killed one by one")
	default:
		fact("kill_reaches_tree", "cgroup.kill in "+k.groups.Root(), k.groupless())
	}
	anchor, mirror := k.vaults[fdstore.Anchor].Complete(), k.vaults[fdstore.Mirror].Complete()
	vault, both := "", ""
	if !anchor && !mirror {
		vault = "neither anchor nor launcher holds all descriptors at this moment: a keeper killed now breaks pipes"
	}
	if !anchor || !mirror {
		both = "only one of anchor and launcher holds all descriptors at this moment: a keeper killed together with it breaks pipes"
	}
	fact("processes_survive_keeper", "descriptors are in the vaults of anchor and launcher", vault)
	fact("processes_survive_anchor_and_keeper", "the launcher holds a mirror of the anchor's vault", both)
	info := ""
	if !m.pidfdInfo {
		info = "Linux 6.15 is needed: the exit status of a process whose keeper and then launcher were killed is reported as lost"
	}
	fact("exit_status_survives_two_roles", "PIDFD_GET_INFO", info)
	fact("spool_takes_output", "written at once to "+k.spool, k.waiting())
	fact("output_survives_power_loss", "fsync works", k.syncs.trouble())
	inside, noInside := k.containers.fact()
	fact("boxes", inside, noInside)
	fact("cpu_limit", "limits.cpus of a process is known", "") // not by keepers before
	if containerIDs != "" {
		fact("box_ids", containerIDs, "")
	}
	if k.upgrades > 0 {
		out = append(out, fmt.Sprintf("keeper_upgrades=%d in place; the last took %v", k.upgrades, k.last))
	}
	out = append(out, fmt.Sprintf("process_limit=about %d by the file limit of %d", m.files/fdsPerProcess*9/10, m.files))
	return out
}

// groupless says how many running processes have no cgroup, and why; "" if all have
// one.
func (k *Keeper) groupless() string {
	n := 0
	for p := range k.all {
		if p.slot.Flags()&(board.FlagNoGroup|board.FlagTreeGone) == board.FlagNoGroup {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the running processes could get no cgroup in %s (%v): descendants of theirs are found by session, parents and mark, and a kill claims nothing", n, k.groups.Root(), k.groups.Refusal())
}

// waiting says why processes wait whose output the filesystem does not take; "" if
// none waits. A process that is just being worked on is left out.
func (k *Keeper) waiting() string {
	n, why := 0, error(nil)
	for p := range k.all {
		if !p.mu.TryLock() {
			continue
		}
		if p.retrying || len(p.deferred) > 0 {
			n, why = n+1, p.stuck
		}
		p.mu.Unlock()
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d processes wait, held back by their pipes and losing nothing: %s: %v", n, k.spool, why)
}
