//go:build linux

package raw

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/tend-run/tend/internal/gen/envd/process"
	"github.com/tend-run/tend/internal/support/proctest"
)

// drip writes numbered lines to a terminal when it gets a line: by ones with a
// pause between, then more at once than sockets hold, and so on, then ends.
const drip = `stty -echo -onlcr; echo ready; read x; awk 'BEGIN {
	for (i = 0; i < %d; i++) {
		printf "%%015d\n", i
		if (i %% %d < 40) { fflush(); system("sleep 0.002") }
	}
}'`

const (
	dripLines = 160000
	dripBurst = 80000
)

// The output of a terminal arrives whole and in order, though different goroutines
// of the server send its small and its large pieces. The readers are: one that
// reads at once, a slow one, one that begins when all is written, one that is cut
// and resumes, and one over HTTP/2.
func TestATerminalsReadersGetEveryByte(t *testing.T) {
	t.Parallel()
	codecs(t, func(t *testing.T, c codec) {
		for name, connect := range map[string]func(t *testing.T, pid int) (read func() []byte){
			"by itself": func(*testing.T, int) func() []byte { return func() []byte { return nil } },
			"beside one that is slow": func(t *testing.T, pid int) func() []byte {
				return shared.readSlowly(t, c, pid)
			},
			"beside one that reads at last": func(t *testing.T, pid int) func() []byte {
				late := proctest.Value(shared.openWith(t, narrow(), c, pid))(t)
				return func() []byte { return late.started(t).finish(t).pty }
			},
			"beside one that was cut": func(t *testing.T, pid int) func() []byte {
				return background(func() []byte { return shared.readInParts(t, c, pid) })
			},
			"beside one over HTTP/2": func(t *testing.T, pid int) func() []byte {
				return shared.readByHTTP2(t, c, pid)
			},
		} {
			t.Run(name, func(t *testing.T) {
				s := shared.open(t, c, "Start", terminal(fmt.Sprintf(drip, dripLines, dripBurst), 80, 24)).started(t)
				s.until(t, "ready\n")
				s.pty = nil
				other := connect(t, s.pid)
				time.Sleep(100 * time.Millisecond) // not a wait: most often all of them are idle then
				shared.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(s.pid), Input: tty("\n")}, nil)
				want := counted(0, dripLines)
				if got := string(s.finish(t).pty); got != want {
					t.Errorf("the one that reads got %d bytes of %d, or others", len(got), len(want))
				}
				if got := other(); got != nil && string(got) != want {
					t.Errorf("the other got %d bytes of %d, or others", len(got), len(want))
				}
			})
		}
	})
}

func background(read func() []byte) func() []byte {
	all := make(chan []byte, 1)
	go func() { all <- read() }()
	return func() []byte { return <-all }
}

// readSlowly takes a little at a time, so that the socket is mostly full. It reads from the
// moment of the call, in the background.
func (d *daemon) readSlowly(t *testing.T, c codec, pid int) (read func() []byte) {
	s := proctest.Value(d.openWith(t, narrow(), c, pid))(t).started(t)
	s.res.Body = io.NopCloser(&slow{r: s.res.Body})
	return s.readOn(t)
}

// readOn reads to the end, in the background.
func (s *stream) readOn(t *testing.T) (read func() []byte) {
	return background(func() []byte {
		if err := s.all(); err != nil {
			t.Error(err)
		}
		return append([]byte{}, s.pty...) // never nil: that is none who reads
	})
}

type slow struct {
	r io.Reader
	n int
}

func (s *slow) Read(b []byte) (int, error) {
	if s.n++; s.n%64 == 0 {
		time.Sleep(time.Millisecond)
	}
	return s.r.Read(b[:min(len(b), 700)])
}

// readInParts cuts its connection again and again, and continues where it was.
func (d *daemon) readInParts(t *testing.T, c codec, pid int) []byte {
	const ready = len("ready\n")
	all := []byte{}
	for part := 1; ; part++ {
		s, err := d.tryOpen(t, c, "Connect", &pb.ConnectRequest{Process: byPID(pid)}, "Tend-From", fmt.Sprintf("pty=%d", ready+len(all)))
		if err != nil {
			t.Error(err)
			return all
		}
		for len(s.pty) < part*5000 && s.end == nil {
			if _, err := s.next(); err != nil {
				t.Error(err)
				return all
			}
		}
		all = append(all, s.pty...)
		s.res.Body.Close()
		if s.end != nil {
			return all
		}
	}
}

func (d *daemon) readByHTTP2(t *testing.T, c codec, pid int) (read func() []byte) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := proctest.Value(d.openWith(t, &http.Transport{Protocols: protocols}, c, pid))(t).started(t)
	if s.res.ProtoMajor != 2 {
		t.Errorf("the answer is in %s", s.res.Proto)
	}
	return s.readOn(t)
}

// narrow makes connections that hold little.
func narrow() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}}
}

// openWith is tryOpen of Connect on connections of a kind.
func (d *daemon) openWith(t *testing.T, by *http.Transport, c codec, pid int) (*stream, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+"/process.Process/Connect", bytes.NewReader(envelope(c.marshal(&pb.ConnectRequest{Process: byPID(pid)}))))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/connect+"+string(c))
	res, err := by.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		res.Body.Close()
		by.CloseIdleConnections()
	})
	return &stream{c: c, res: res}, nil
}

// A thousand clients never read the output of a terminal, and some do. Those receive
// each key at once.
func TestKeysAreEchoedBesideReadersThatNeverRead(t *testing.T) {
	t.Parallel()
	for _, stalled := range []int{1, 3, 1000} {
		t.Run(fmt.Sprint(stalled), func(t *testing.T) {
			s := shared.open(t, inProto, "Start", terminal("stty -echo; echo ready; exec cat", 80, 24)).started(t)
			s.until(t, "ready\r\n")
			for range stalled {
				shared.stalled(t, inProto, s.pid)
			}
			line := strings.Repeat("x", 1000)
			for i := range 500 {
				s.pty = nil
				shared.ok(t, "SendInput", &pb.SendInputRequest{Process: byPID(s.pid), Input: tty(fmt.Sprintf("%s%04d\n", line, i))}, nil)
				s.until(t, fmt.Sprintf("%04d\r\n", i))
				if want := fmt.Sprintf("%s%04d\r\n", line, i); string(s.pty) != want {
					t.Fatalf("key %d is echoed as %q", i, s.pty)
				}
			}
			shared.kill(t, s.pid)
			s.finish(t)
		})
	}
}
