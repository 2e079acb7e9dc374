//go:build linux

package fdstore

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/process"
)

// FDs are the descriptors of one process, or those of none, by kind (wire.FD*).
type FDs map[byte]int

// Close closes all of them.
func (h FDs) Close() {
	for _, fd := range h {
		unix.Close(fd)
	}
}

// FetchTimeout bounds how long a holder that does not answer (it is stopped)
// keeps a new keeper waiting for each message.
const FetchTimeout = 2 * time.Second

// LastFetchTimeout is the same for the last holder that may have the descriptors:
// without its answer all processes would be lost.
const LastFetchTimeout = time.Minute

// Fetch takes from a holder all that a former keeper left there. sock -1: nothing.
// timeout bounds the wait for each message. After EAGAIN, for a holder that does
// not answer, the rest is still to come: see FetchRest and DiscardRest.
func Fetch(sock int, timeout time.Duration) (map[wire.Ref]FDs, error) {
	all := map[wire.Ref]FDs{}
	if sock < 0 {
		return all, nil
	}
	ask := wire.VaultMessage{Op: wire.VaultFetch}
	if err := unixsock.Send(sock, ask.Append(nil), nil, 0); err != nil {
		return all, err
	}
	return all, FetchRest(sock, all, timeout)
}

// FetchRest continues with a Fetch that returned EAGAIN, and adds to all.
func FetchRest(sock int, all map[wire.Ref]FDs, timeout time.Duration) error {
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for {
		n, fds, err := unixsock.Receive(sock, buf, nil, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("the holder closed the connection")
		}
		m, err := wire.ParseVault(buf[:n])
		if err != nil || m.Op != wire.VaultItem && m.Op != wire.VaultEnd || len(m.Kinds) != len(fds) {
			unixsock.Close(fds)
			return fmt.Errorf("unexpected message %v", m)
		}
		if m.Op == wire.VaultEnd {
			return nil
		}
		h := all[m.Ref]
		if h == nil {
			h = FDs{}
			all[m.Ref] = h
		}
		for i, kind := range m.Kinds {
			h[kind] = fds[i]
		}
	}
}

// DiscardRest takes an answer that came too late off the socket, and drops it: a
// holder that waits for room there would take nothing from us.
func DiscardRest(sock int) {
	sock, err := unix.FcntlInt(uintptr(sock), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return
	}
	go func() {
		defer unix.Close(sock)
		for err := error(unix.EAGAIN); err == unix.EAGAIN; {
			all := map[wire.Ref]FDs{}
			err = FetchRest(sock, all, LastFetchTimeout)
			for _, h := range all {
				h.Close()
			}
		}
	}()
}

// Merge adds to all the descriptors that only more has, and closes the rest of more.
func Merge(all, more map[wire.Ref]FDs) {
	for ref, h := range more {
		mine := all[ref]
		if mine == nil {
			all[ref] = h
			continue
		}
		for kind, fd := range h {
			if _, ok := mine[kind]; ok {
				unix.Close(fd)
			} else {
				mine[kind] = fd
			}
		}
	}
}

// Covers reports whether what a vault holds of a process is all that a slot with these
// flags may need: what the process's facts say is still open must be there.
// forked: its program was forked, or may have been.
func Covers(flags uint32, forked bool, h FDs) bool {
	if flags&board.FlagUsed == 0 || flags&board.FlagFinal != 0 {
		return true
	}
	has := func(kinds ...byte) bool {
		for _, k := range kinds {
			if _, ok := h[k]; !ok {
				return false
			}
		}
		return true
	}
	if flags&board.FlagStarted == 0 {
		// Its pipes were deposited, all in one message, before the fork; what
		// else there is, the start that is completed asks for.
		return !forked || has(wire.FDStdout) || has(wire.FDPTY)
	}
	if flags&board.FlagExited == 0 && !has(wire.FDPid) {
		return false
	}
	if flags&board.FlagStdinMem != 0 && !has(wire.FDStdinMem) {
		return false
	}
	if has(wire.FDPTY) {
		if flags&board.FlagStdinMem != 0 && !has(wire.FDFeedR, wire.FDFeedW) {
			return false
		}
		return has(wire.FDStageR, wire.FDStageW)
	}
	ended := func(s process.Stream) bool { return flags&board.FlagEOF(s) != 0 }
	return (ended(process.Stdout) || has(wire.FDStdout) || ended(process.PTY)) &&
		(ended(process.Stderr) || has(wire.FDStderr) || ended(process.PTY)) &&
		(flags&board.FlagStdinOpen == 0 || has(wire.FDStdin))
}
