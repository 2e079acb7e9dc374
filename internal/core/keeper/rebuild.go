//go:build linux

package keeper

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/fdstore"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/stdin"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// The board is memory that others may write to (root, and programs of our user), so it
// may be damaged. A keeper that detects damage ends, and the next one builds a new
// board: from the plausible slots of the damaged board, from the vaults (the
// descriptors of each slot's process), and from the journals (the process's identity
// and facts). Then it continues as after any crash: no process, output or exit status
// is lost.

// openBoard opens the board that a previous keeper left, or rebuilds it. It takes over
// the descriptor.
func (k *Keeper) openBoard(fd int, procs map[wire.Ref]fdstore.FDs) error {
	b, err := board.Open(fd)
	if err == nil {
		if err = damage(b, procs); err == nil {
			k.board = b
			return nil
		}
		if fd, err = unix.FcntlInt(uintptr(b.FD()), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return fmt.Errorf("board: %w", err)
		}
		err = damage(b, procs)
		b.Close()
	}
	if k.cfg.Handover > 0 { // what was handed over is of no use with another board
		unix.Close(fd)
		return fmt.Errorf("board: %w; the next keeper makes it anew", err)
	}
	k.logf("the shared memory that the former keeper left is damaged (%v); making it anew from the vaults and the journals", err)
	defer unix.Close(fd)
	return k.rebuild(fd, procs)
}

// damage says what on a board cannot be so; nil if all can.
func damage(b *board.Board, procs map[wire.Ref]fdstore.FDs) error {
	for ref := range procs {
		if ref.Slot >= b.Used() {
			return fmt.Errorf("a vault holds descriptors of slot %d, and %d were used", ref.Slot, b.Used())
		}
		if gen := b.Slot(ref.Slot).Gen(); gen < ref.Gen {
			return fmt.Errorf("slot %d has had %d owners, and a vault holds descriptors of the %dth", ref.Slot, gen, ref.Gen)
		}
	}
	for i := range b.Used() {
		if !b.Slot(i).Plausible() {
			return fmt.Errorf("slot %d holds what no keeper writes", i)
		}
	}
	return nil
}

// rebuild makes a board.
func (k *Keeper) rebuild(fd int, procs map[wire.Ref]fdstore.FDs) error {
	old, err := board.Remains(fd)
	if err != nil {
		return fmt.Errorf("remains of the board: %w", err)
	}
	defer old.Close()
	if k.board, err = board.Create(); err != nil {
		return err
	}
	used, last := uint32(0), uint32(0)
	for ref := range procs {
		used, last = max(used, ref.Slot+1), max(last, ref.Gen)
	}
	for i := range used { // those who know an owner of before do not take the next one for it
		k.board.Slot(i).Start(last + 1)
	}
	refs := make([]wire.Ref, 0, len(procs))
	for ref := range procs {
		refs = append(refs, ref)
	}
	// Of one slot the newest first: what a vault still has of an owner before, it
	// was to drop.
	slices.SortFunc(refs, func(a, b wire.Ref) int { return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(b.Gen, a.Gen)) })
	live, taken := k.unfinished(), map[process.ID]bool{}
	keep := map[uint32]bool{}
	for _, ref := range refs {
		if ref.Slot >= board.Slots || keep[ref.Slot] {
			continue
		}
		h := procs[ref]
		was := old.Slot(ref.Slot)
		s := k.board.Slot(ref.Slot)
		j := live.find(ref, h, taken)
		switch {
		case j == nil:
			continue
		case was.Gen() == ref.Gen && was.Plausible() && was.Owned(ref.Gen, j.Spec.ID) && was.PID() == j.Started.PID &&
			was.Flags()&board.FlagStarted != 0:
			s.Restore(was)
		default:
			k.assign(s, ref, h, j)
		}
		keep[ref.Slot], taken[j.Spec.ID] = true, true
	}
	k.logf("%d processes are on the new board", len(keep))
	// What else runs in our groups is of starts that were not announced, or of no
	// journal that can be read; their callers ask again.
	k.groups.EndFormer(k.logf, keep)
	return nil
}

// assign writes down of a process what its journal and its descriptors say.
// restore does the rest, as after any crash.
func (k *Keeper) assign(s board.Slot, ref wire.Ref, h fdstore.FDs, j *spool.Journal) {
	s.Assign(ref.Gen, j.Spec.ID)
	pid := j.Started.PID
	if started := procfs.Started(pid); pidOf(h) == pid && started > 0 {
		s.NoteReserved(started)
	}
	if stat, ok := procfs.ReadStat(pid); ok && pidOf(h) == pid && stat.Session != pid {
		s.NoteSession(stat.Session)
	}
	if !k.slotHolds(ref.Slot, pid) {
		s.Set(board.FlagNoGroup)
	}
	noteSync(s, j.Spec.Retention.Sync)
	for st := process.Stdout; st <= process.PTY; st++ {
		if j.EOF[st] {
			s.Set(board.FlagEOF(st))
		}
	}
	if _, open := h[wire.FDStdin]; open || j.Spec.PTY != nil && !j.EOF[process.PTY] {
		s.Set(board.FlagStdinOpen)
	}
	if mem, ok := h[wire.FDStdinMem]; ok {
		// All accepted bytes were written there before, and the kernel advances the position
		// by the bytes that it delivers.
		var st unix.Stat_t
		if pos, err := unix.Seek(mem, 0, unix.SEEK_CUR); err == nil && unix.Fstat(mem, &st) == nil {
			s.SetBase(process.Stdin, pos)
			end, err := stdin.End(mem, st.Size)
			if err != nil {
				k.logf("process %s: what waited of its input is lost: %v", j.Spec.ID, err)
			}
			s.SetEnd(process.Stdin, max(pos, end))
			s.Set(board.FlagStdinMem)
		}
	}
	s.SetStarted(pid, j.SpecTime)
	if j.Exit != nil {
		s.SetExit(j.Exit)
	}
	if j.TreeGone {
		s.Set(board.FlagTreeGone)
	}
}

// slotHolds reports whether a process, or a remainder of it, is in the slot's cgroup.
func (k *Keeper) slotHolds(slot uint32, pid int) bool {
	if k.groups.Root() == "" {
		return false
	}
	text, err := procfs.Read(pid, "cgroup")
	if err == nil && cgroup.SlotOf(string(text)) == int(slot) {
		return true
	}
	pids, err := k.groups.Members(slot)
	return err == nil && len(pids) > 0
}

// pidOf is the pid that a process's pidfd is of; 0: it has none, or was collected.
func pidOf(h fdstore.FDs) int {
	fd, ok := h[wire.FDPid]
	if !ok {
		return 0
	}
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(v))
			return max(pid, 0)
		}
	}
	return 0
}

// journals are of processes that started in this boot and are not over.
type journals []*spool.Journal

func (k *Keeper) unfinished() (out journals) {
	dirs, err := os.ReadDir(k.spool)
	if err != nil {
		k.logf("the journals cannot be read: %v", err)
		return nil
	}
	for _, d := range dirs {
		if process.ID(d.Name()).Validate() != nil {
			continue
		}
		j, err := spool.ReadJournal(filepath.Join(k.spool, d.Name()))
		if err != nil || j.Started == nil || j.Started.BootID != procfs.BootID() || j.Spec.ID != process.ID(d.Name()) {
			continue
		}
		if j.Exit != nil && (j.Exit.Lost() || j.TreeGone && (j.EOF[process.PTY] || j.EOF[process.Stdout] && j.EOF[process.Stderr])) {
			continue // the journal has all facts
		}
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *spool.Journal) int { return b.StartedTime.Compare(a.StartedTime) })
	return out
}

// find finds the process whose descriptors are h: by its place, which the journal
// says, or, of one that a former version started, by its pid.
func (js journals) find(ref wire.Ref, h fdstore.FDs, taken map[process.ID]bool) *spool.Journal {
	pid := pidOf(h)
	for _, j := range js {
		switch {
		case taken[j.Spec.ID], pid != 0 && j.Started.PID != pid:
		case j.Place != nil && *j.Place == spool.Place{Slot: ref.Slot, Gen: ref.Gen}, j.Place == nil && pid != 0:
			return j
		}
	}
	return nil
}

// checkBoard looks whether the board says of each process what we know of it.
func (k *Keeper) checkBoard() error {
	if !k.board.Intact() {
		return fmt.Errorf("the header of the board was overwritten")
	}
	for p := range k.all {
		if !p.slot.Owned(p.ref.Gen, p.id) && k.procs[p.ref.Slot].Load() == p { // else it was given back meanwhile
			return fmt.Errorf("slot %d of the board, of process %s, was overwritten", p.ref.Slot, p.id)
		}
	}
	return nil
}

// verifyBoard is one look, and reports whether all is well.
func (k *Keeper) verifyBoard() bool {
	err := k.checkBoard()
	if err != nil {
		k.giveUp(fmt.Errorf("%w; the next keeper makes it anew", err))
	}
	return err == nil
}

// owns reports whether the board still has the process where it was, and ends
// the keeper if not: nothing that the board says of it may be acted upon.
func (k *Keeper) owns(p *proc) bool {
	if p.slot.Gen() == p.ref.Gen && p.slot.Flags()&board.FlagUsed != 0 {
		return true
	}
	if k.procs[p.ref.Slot].Load() == p {
		k.giveUp(fmt.Errorf("slot %d of the board, of process %s, was overwritten; the next keeper makes it anew", p.ref.Slot, p.id))
	}
	return false
}

// giveUp ends the keeper as a crash would.
func (k *Keeper) giveUp(err error) {
	select {
	case k.broken <- err:
	default:
	}
}
