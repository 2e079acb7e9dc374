//go:build linux

package fdstore

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

func TestAVaultCoversASlotOnlyWithAllThatMayStillBeNeeded(t *testing.T) {
	const live = board.FlagUsed | board.FlagStarted
	ended := board.FlagEOF(process.Stdout) | board.FlagEOF(process.Stderr)
	for _, c := range []struct {
		name  string
		flags uint32
		kinds []byte
		want  bool
	}{
		{"a free slot needs nothing", 0, nil, true},
		{"a start that may have forked needs its pipes", board.FlagUsed, nil, false},
		{"a start that may have forked, with its pipes", board.FlagUsed, []byte{wire.FDStdout, wire.FDStderr}, true},
		{"a start that may have forked, with its terminal", board.FlagUsed, []byte{wire.FDPTY, wire.FDStageR, wire.FDStageW}, true},
		{"a process that is over needs nothing", live | board.FlagFinal, nil, true},
		{"a live process with both pipes and its pidfd", live, []byte{wire.FDStdout, wire.FDStderr, wire.FDPid}, true},
		{"a live process without its pidfd", live, []byte{wire.FDStdout, wire.FDStderr}, false},
		{"a live process without stderr", live, []byte{wire.FDStdout, wire.FDPid}, false},
		{"a stream that ended is not needed", live | board.FlagEOF(process.Stderr), []byte{wire.FDStdout, wire.FDPid}, true},
		{"an open stdin is needed", live | board.FlagStdinOpen, []byte{wire.FDStdout, wire.FDStderr, wire.FDPid}, false},
		{"an exited process whose descendant holds stdout", live | board.FlagExited, []byte{wire.FDStderr}, false},
		{"an exited process with ended streams", live | board.FlagExited | ended, nil, true},
		{"a terminal needs its staging pipe", live | board.FlagStdinOpen, []byte{wire.FDPTY, wire.FDPid}, false},
		{"a terminal with its staging pipe", live | board.FlagStdinOpen, []byte{wire.FDPTY, wire.FDStageR, wire.FDStageW, wire.FDPid}, true},
		{"nothing is held of a live process", live, nil, false},
		{"input that waits is needed", live | board.FlagStdinMem, []byte{wire.FDStdout, wire.FDStderr, wire.FDPid}, false},
		{"input that waits is held", live | board.FlagStdinMem, []byte{wire.FDStdout, wire.FDStderr, wire.FDPid, wire.FDStdinMem}, true},
	} {
		h := FDs{}
		for _, k := range c.kinds {
			h[k] = 0
		}
		if got := Covers(c.flags, true, h); got != c.want {
			t.Errorf("%s: Covers is %v", c.name, got)
		}
	}
}

func TestAStartThatDidNotForkNeedsNothing(t *testing.T) {
	if !Covers(board.FlagUsed, false, nil) {
		t.Error("something is missed")
	}
}

func TestMergingVaultsTakesWhatIsMissingAndClosesTheRest(t *testing.T) {
	open := func() int {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	isOpen := func(fd int) bool { _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); return err == nil }
	a, b := wire.Ref{Slot: 1, Gen: 1}, wire.Ref{Slot: 2, Gen: 1}
	mine, double, more, other := open(), open(), open(), open()
	all := map[wire.Ref]FDs{a: {wire.FDStdout: mine}}
	Merge(all, map[wire.Ref]FDs{a: {wire.FDStdout: double, wire.FDPid: more}, b: {wire.FDPid: other}})
	if all[a][wire.FDStdout] != mine || all[a][wire.FDPid] != more || all[b][wire.FDPid] != other {
		t.Errorf("merged to %v", all)
	}
	if isOpen(double) || !isOpen(mine) || !isOpen(more) || !isOpen(other) {
		t.Error("exactly the duplicate must be closed")
	}
	for _, h := range all {
		h.Close()
	}
}

func TestAnAnswerOfAHolderThatIsNoneLeaksNothing(t *testing.T) {
	item := wire.VaultMessage{Op: wire.VaultItem, Ref: wire.Ref{Gen: 1}, Kinds: []byte{wire.FDStdin, wire.FDPid}}
	put := wire.VaultMessage{Op: wire.VaultPut, Ref: wire.Ref{Gen: 1}, Kinds: []byte{wire.FDStdin}}
	for name, b := range map[string][]byte{
		"no message":                  {0xff},
		"one that is for the holder":  put.Append(nil),
		"more kinds than descriptors": item.Append(nil),
	} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := unixsock.Send(pair[1], b, []int{int(w.Fd())}, 0); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if all, err := Fetch(pair[0], LastFetchTimeout); err == nil {
			t.Errorf("%s is taken for %v", name, all)
		}
		fds := []unix.PollFd{{Fd: int32(r.Fd())}}
		if n, err := unix.Poll(fds, 0); err != nil || n != 1 || fds[0].Revents&unix.POLLHUP == 0 {
			t.Errorf("%s: its descriptor is open", name)
		}
		r.Close()
		unixsock.Close(pair[:])
	}
}

func TestAHolderThatNapsIsWokenBeforeItsQueueIsFull(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	v, err := New(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(v.urgent)
	defer unix.Close(pair[0])
	epoch := v.epoch
	for i := range 10 * maxQueued {
		v.Drop(&epoch, wire.Ref{Slot: uint32(i), Gen: 1})
		var b [8]byte
		if _, err := unix.Read(v.urgent, b[:]); err == nil { // the holder looks
			if (i+1)%maxQueued != 0 {
				t.Errorf("woken by message %d, of %d that may wait", i+1, maxQueued)
			}
			for buf := make([]byte, 64); ; {
				if n, _, err := unixsock.Receive(pair[1], buf, nil, unix.MSG_DONTWAIT); err != nil || n == 0 {
					break
				}
			}
		}
	}
	if v.epoch != 1 || v.behind {
		t.Errorf("the queue overflowed: epoch %d, behind %v", v.epoch, v.behind)
	}
}
