//go:build linux

package anchor

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/unixsock"
	"github.com/tend-run/tend/internal/support/proctest"
)

// An anchor that is killed between the connection and the answer is none: who
// starts a daemon then must not fail for it.
func TestAnAnchorThatEndsBeforeItAnswersIsNotRunning(t *testing.T) {
	for name, heard := range map[string]bool{"before the request is read": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "tend-") // short, as names of sockets have to be
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			run := proctest.Value(rundir.Open(dir))(t)
			defer run.Close()
			l := proctest.Value(run.Listen(rundir.AnchorSocket, unix.SOCK_SEQPACKET))(t)
			defer unix.Close(l)
			go func() {
				fd, _, err := unix.Accept(l)
				if err != nil {
					return
				}
				if heard {
					unixsock.Receive(fd, make([]byte, 4096), nil, 0)
				} else {
					unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
				}
				unix.Close(fd)
			}()
			if _, err := Dial(dir); !errors.Is(err, ErrNotRunning) {
				t.Errorf("%v; want %v", err, ErrNotRunning)
			}
		})
	}
}
