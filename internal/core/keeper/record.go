//go:build linux

package keeper

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/core/wire"
)

// record appends facts to the journal. The board shows a fact in any case;
// one that finds no room on the filesystem is deferred, and the process is not
// final, and so keeps its place on the board, until it is written: a reader of
// the files alone must come to the same facts. p.mu is held.
func (k *Keeper) record(p *proc, rec []byte) {
	if len(p.deferred) == 0 {
		err := k.appendJournal(p, rec)
		if err == nil {
			k.wrote(p)
			return
		}
		p.stuck = err
		k.logf("process %s: journal, trying again: %v", p.id, err)
		p.slot.Set(board.FlagNoSpace)
		k.announce(p)
		time.AfterFunc(retryAfter, func() { k.writeDeferred(p) })
	}
	p.deferred = append(p.deferred, rec...)
}

// writeDeferred writes the deferred records, or tries again later.
func (k *Keeper) writeDeferred(p *proc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := k.appendJournal(p, p.deferred); err != nil {
		time.AfterFunc(retryAfter, func() { k.writeDeferred(p) })
		return
	}
	p.deferred = nil
	k.wrote(p)
	k.publishRoom(p)
	k.finish(p)
}

// publishRoom publishes that nothing waits for space any more, when that is so.
func (k *Keeper) publishRoom(p *proc) {
	for i := range p.out {
		if s := &p.out[i]; s.full && s.waiting {
			return
		}
	}
	if p.slot.Flags()&board.FlagNoSpace != 0 && len(p.deferred) == 0 {
		p.slot.Clear(board.FlagNoSpace)
		k.announce(p)
	}
}

// pin records that the process is pinned or unpinned. The keeper does nothing else with
// this, because it never removes processes.
func (k *Keeper) pin(p *proc, pinned bool) *wire.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final { // its files are the server's
		return &wire.Error{Code: wire.CodeExited}
	}
	if !p.started {
		return &wire.Error{Code: wire.CodeNotFound}
	}
	// Deferred records must stay in order, and the caller gets the error.
	err := error(unix.ENOSPC)
	if len(p.deferred) == 0 {
		err = k.appendJournal(p, spool.AppendPinned(nil, time.Now(), pinned))
	}
	if err != nil {
		return &wire.Error{What: "journal: " + err.Error(), Errno: errno(err)}
	}
	return nil
}

// appendJournal writes whole records to the journal, or nothing.
func (k *Keeper) appendJournal(p *proc, rec []byte) error {
	fd, err := k.openJournal(p)
	if err != nil {
		return err
	}
	return spool.AppendJournal(fd, rec)
}
