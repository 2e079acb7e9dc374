//go:build linux

package anchor

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/internal/support/proctest"
)

// depositor is the keeper's end of a vault that serves a real socket.
type depositor struct {
	t    *testing.T
	sock int
	done chan struct{}
}

func connect(t *testing.T, v *vault) *depositor {
	t.Helper()
	pair := proctest.Value(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	d := &depositor{t: t, sock: pair[1], done: make(chan struct{})}
	go func() {
		defer close(d.done)
		v.serve(pair[0])
	}()
	return d
}

// hangUp ends the connection and waits until everything said on it is done.
func (d *depositor) hangUp() {
	unix.Close(d.sock)
	<-d.done
}

func (d *depositor) say(op uint8, slot uint32, kinds []byte, fds ...int) {
	d.t.Helper()
	m := wire.VaultMessage{Op: op, Ref: wire.Ref{Slot: slot, Gen: 1}, Kinds: kinds}
	proctest.Must(d.t, unixsock.Send(d.sock, m.Append(nil), fds, 0))
}

// fetch takes all that is held, as a keeper does at its beginning, and closes it.
func (d *depositor) fetch() {
	d.t.Helper()
	d.say(wire.VaultFetch, 0, nil)
	for buf := make([]byte, 4096); ; {
		n, fds, err := unixsock.Receive(d.sock, buf, nil, 0)
		proctest.Must(d.t, err)
		unixsock.Close(fds)
		if m := proctest.Value(wire.ParseVault(buf[:n]))(d.t); m.Op == wire.VaultEnd {
			return
		}
	}
}

// pipe returns the reading end of a new pipe and whether somebody still holds
// the writing end, which it gives to put.
func (d *depositor) pipe(put func(w int)) (held func() bool) {
	d.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { r.Close() })
	put(int(w.Fd()))
	w.Close()
	return func() bool {
		fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}
		proctest.Value(unix.Poll(fds, 0))(d.t)
		return fds[0].Revents&unix.POLLHUP == 0
	}
}

func TestAVaultHoldsWhatADeadKeeperDeposited(t *testing.T) {
	v := newVault()
	d := connect(t, v)
	held := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdin}, w) })
	d.hangUp()
	if !held() {
		t.Error("the descriptor was closed with the keeper's socket")
	}
}

func TestADropClosesOneKindOrAll(t *testing.T) {
	v := newVault()
	d := connect(t, v)
	one := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdin}, w) })
	other := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDFeedW}, w) })
	second := d.pipe(func(w int) { d.say(wire.VaultPut, 2, []byte{wire.FDStdin}, w) })
	d.say(wire.VaultDrop, 1, []byte{wire.FDStdin})
	d.say(wire.VaultDrop, 2, nil)
	d.hangUp()
	if one() || !other() || second() {
		t.Errorf("held after drops: %v, %v, %v; want false, true, false", one(), other(), second())
	}
}

// A keeper that dies in the middle of a new handover must find everything.
func TestNothingIsForgottenBetweenMarkAndSweep(t *testing.T) {
	v := newVault()
	d := connect(t, v)
	again := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdin}, w) })
	replaced := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDFeedW}, w) })
	gone := d.pipe(func(w int) { d.say(wire.VaultPut, 2, []byte{wire.FDStdin}, w) })
	d.say(wire.VaultMark, 0, nil)
	d.hangUp()
	if !again() || !replaced() || !gone() {
		t.Error("something was forgotten at the mark")
	}
	d = connect(t, v)
	newer := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdin}, w) })
	d.hangUp()
	if replaced() || again() || !newer() || !gone() {
		t.Error("a put after the mark must take the place of the whole, and of nothing else")
	}
	d = connect(t, v)
	d.say(wire.VaultSweep, 0, nil)
	d.hangUp()
	if gone() || !newer() {
		t.Error("the sweep must forget exactly what did not come again")
	}
}

// A keeper dies between its mark and its sweep, and the next one finds everything and
// deposits no whole again: what it adds takes no other's place.
func TestWhatTheNextKeeperAddsIsBesideWhatItFound(t *testing.T) {
	v := newVault()
	d := connect(t, v)
	held := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdin}, w) })
	d.say(wire.VaultMark, 0, nil)
	d.hangUp()
	d = connect(t, v)
	d.fetch()
	added := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdinMem}, w) })
	d.hangUp()
	if !held() || !added() {
		t.Errorf("held: %v, %v; want both", held(), added())
	}
}

// A keeper that died before it read the answer to its last question may have deposited
// after that question.
func TestDepositsBehindAnAnswerThatIsNotReadAreHeld(t *testing.T) {
	v := newVault()
	pair := proctest.Value(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	d := &depositor{t: t, sock: pair[1]}
	held := d.pipe(func(w int) { d.say(wire.VaultPut, 1, []byte{wire.FDStdin}, w) })
	proctest.Must(t, unixsock.Send(pair[0], []byte("an answer"), nil, 0))
	unix.Close(pair[1])
	v.serve(pair[0])
	if !held() {
		t.Error("the deposit is lost")
	}
}

func TestAMessageThatIsNoneEndsTheConnectionAndLeaksNothing(t *testing.T) {
	v := newVault()
	d := connect(t, v)
	held := d.pipe(func(w int) {
		proctest.Must(t, unixsock.Send(d.sock, []byte{wire.VaultPut}, []int{w}, 0))
	})
	d.hangUp()
	mismatch := connect(t, v)
	kinds := mismatch.pipe(func(w int) { mismatch.say(wire.VaultPut, 1, []byte{wire.FDStdin, wire.FDPid}, w) })
	mismatch.hangUp()
	if held() || kinds() {
		t.Error("a descriptor of a message that was refused is held")
	}
}
