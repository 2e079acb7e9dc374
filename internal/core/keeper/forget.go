//go:build linux

package keeper

import (
	"fmt"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// A process that has exited is final when its tree is gone. A stray of unknown origin,
// which may belong to this tree or to another one, may live forever. So the server
// announces when a process is about to be removed, and the keeper decides what the
// removal waits for:
//
//   - for those in the group and the strays that are known to be the process's;
//   - for the end of its output: who has it open is of the tree, or was given it;
//   - for what is on its way to the disk;
//   - and not for strays that nothing tells of. No kill of the process reaches them, so
//     nobody loses anything with it. That the tree is gone is never said.

// forgetWait bounds how long another call about the process is waited for: a little less than the
// server waits for the answer. A walk through /proc after the exit can take seconds where somebody
// runs thousands of processes, as can a write to a filesystem that is busy.
const forgetWait = 9 * time.Second

// mostNamed bounds how many processes an answer names.
const mostNamed = 8

// forget makes a process final that the server is about to remove, or returns what it
// waits for.
func (k *Keeper) forget(p *proc) *wire.Error {
	for g := suspendaware.New(forgetWait); !p.mu.TryLock(); time.Sleep(time.Millisecond) {
		if g.Over() {
			return &wire.Error{Code: wire.CodeUnfinished,
				What: fmt.Sprintf("another call about it is under way for %v: its filesystem, or /proc, may hold it up", forgetWait)}
		}
	}
	defer p.mu.Unlock()
	if !p.exited {
		return &wire.Error{Code: wire.CodeUnfinished, What: "its exit is not published yet"}
	}
	k.checkTree(p)
	if !p.gone && p.nobodyKnown && p.out[0].eof && p.out[1].eof {
		if !p.letGo {
			k.logf("process %s: it is let go, though %s may be of its tree", p.id, k.unplaced(p))
		}
		p.letGo = true
		k.finish(p)
	}
	if p.final {
		return nil
	}
	return &wire.Error{Code: wire.CodeUnfinished, What: k.waitsFor(p)}
}

// waitsFor returns what is left of a process that has exited. p.mu is held.
func (k *Keeper) waitsFor(p *proc) string {
	if !p.gone && !p.nobodyKnown {
		if who := named(k.members(p)); who != "" {
			return who + " of its tree runs; a kill ends it"
		}
	}
	switch {
	case !p.out[0].eof || !p.out[1].eof:
		what := openOf(p)
		if who := k.unplaced(p); who != "" {
			what += "; it may be " + who
		}
		return what
	case len(p.deferred) > 0:
		return fmt.Sprintf("its journal cannot be written (%v)", p.stuck)
	case p.pendingExit != nil, p.busy, p.dirty:
		return "what it wrote is on its way to the disk"
	}
	return "its tree has just ended; try again"
}

// openOf names the output streams that have not ended. p.mu is held.
func openOf(p *proc) string {
	var open []string
	for i := range p.out {
		if s := &p.out[i]; !s.eof {
			switch {
			case s.full:
				open = append(open, s.stream.String()+" (it waits for room on the filesystem)")
			case s.waiting && p.policy == process.Block:
				open = append(open, s.stream.String()+" (it waits until what was read is freed: retention block)")
			default:
				open = append(open, s.stream.String())
			}
		}
	}
	return "somebody has its output open: " + strings.Join(open, ", ")
}

// unplaced names the strays that may be of the tree. p.mu is held.
func (k *Keeper) unplaced(p *proc) string {
	_, unknown, _ := k.escaped(p)
	var pids []int
	for i := range unknown {
		pids = append(pids, unknown[i].pid)
	}
	return named(pids)
}

// named lists processes for people; "" if there are none.
func named(pids []int) string {
	var all []string
	for i, pid := range pids {
		if i == mostNamed {
			all = append(all, fmt.Sprintf("%d more", len(pids)-i))
			break
		}
		all = append(all, fmt.Sprintf("pid %d (%s)", pid, nameOf(pid)))
	}
	return strings.Join(all, ", ")
}
