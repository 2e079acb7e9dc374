//go:build linux

package client

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/process"
)

// HoldScan makes the reading of finished processes wait in managers that are opened
// from now on, until release is called.
func HoldScan(t *testing.T) (release func()) {
	gate := make(chan struct{})
	was := readingFinished
	readingFinished = func(process.ID) { <-gate }
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(func() {
		release()
		readingFinished = was
	})
	return release
}

// ForgetFact has the keeper be one that does not say this of itself.
func (m *Manager) ForgetFact(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hello.Facts = slices.DeleteFunc(slices.Clone(m.hello.Facts), func(f string) bool { return strings.HasPrefix(f, name+"=") })
}

// SweepNever has managers that are opened from now on look after their processes
// only when they are asked to.
func SweepNever(t *testing.T) {
	was := retainEvery
	retainEvery = time.Hour
	t.Cleanup(func() { retainEvery = was })
}

// HoldSlots keeps the slots of finished processes from being given back, as the
// death of the server does that comes before.
func (m *Manager) HoldSlots() {
	m.retiring.Lock()
	defer m.retiring.Unlock()
	m.retiring.refs = append(m.retiring.refs, wire.Ref{Slot: wire.VaultGlobal}) // whoever comes first sends
}

// ReplaceHello makes the keeper one that is not known to have started anything,
// as its successor is.
func (m *Manager) ReplaceHello() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hello.PID++
}

// SameSlot reports whether q has the place on the board that p had.
func SameSlot(p, q process.Process) bool { return p.(*proc).ref.Slot == q.(*proc).ref.Slot }

// AwaitsReaders reports whether the process is to be killed for want of readers.
func AwaitsReaders(p process.Process) bool {
	o := p.(*proc)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.idle != nil
}

// WishEOF is what a server has done of Write with EOF when it dies before it tells
// the keeper.
func WishEOF(p process.Process) { p.(*proc).slot.SetWishes(board.StdinEOF) }

// CloseInput is Write with EOF by one who has seen the process run, and went on
// when it was over.
func CloseInput(p process.Process) error {
	_, err := p.(*proc).closeInput(process.Input{EOF: true})
	return err
}

// SetKeep sets what is kept of each stream while it is read, and while it is not.
func SetKeep(m *Manager, keep, unread int64) {
	m.keep.Store(keep)
	m.keepUnread.Store(unread)
}

// ForgetPlaces gives up the places that are held for readers which may come.
func ForgetPlaces(p process.Process) {
	in := p.(*proc)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.trail.kept = nil
}

// LookAgain has a process looked at as if it had written.
func LookAgain(p process.Process) {
	in := p.(*proc)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.isLong()
}
