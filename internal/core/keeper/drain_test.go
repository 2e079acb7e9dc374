//go:build linux

package keeper

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/wire"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// A stream with policy block that was at its limit has room again, and before
// anybody continues with it its process exits: what it wrote is in the spool
// before the exit is told.
func TestWhatAStreamHeldBackIsSpooledBeforeTheExit(t *testing.T) {
	const limit = 64 << 10
	for name, kept := range map[string]int64{"at its limit": limit, "trimmed a moment ago": limit / 2} {
		t.Run(name, func(t *testing.T) {
			k := &Keeper{cfg: Config{Log: t.Output()}, wakeFD: -1, stats: machine{cacheFiles: 16}}
			var err error
			k.board = proctest.Value(board.Create())(t)
			defer k.board.Close()
			k.ep = proctest.Value(unix.EpollCreate1(unix.EPOLL_CLOEXEC))(t)
			defer unix.Close(k.ep)
			slot := k.board.Slot(0)
			p := newProc(wire.Ref{Gen: slot.Reserve("id")}, "id", slot)
			p.dir, p.started, p.policy, p.limit = t.TempDir(), true, process.Block, limit
			defer k.closeFiles(p)
			var pipe [2]int
			proctest.Must(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
			defer unix.Close(pipe[0])
			defer unix.Close(pipe[1])
			s := &p.out[0]
			s.fd, s.eof, s.waiting, s.base, s.end = pipe[0], false, true, limit-kept, limit
			tail := []byte("the last words")
			proctest.Value(unix.Write(pipe[1], tail))(t)
			k.drain(p)
			if s.end != limit+int64(len(tail)) || !s.waiting {
				t.Errorf("%d bytes, waiting: %v; want %d, and that it waits on", s.end, s.waiting, limit+len(tail))
			}
			b, err := os.ReadFile(filepath.Join(p.dir, "stdout"))
			if err != nil || !bytes.HasSuffix(b, tail) {
				t.Errorf("%d bytes in the file, %v", len(b), err)
			}
		})
	}
}
