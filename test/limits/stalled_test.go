//go:build linux

package limits

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

// stalledReaders is how many clients ask for output and never read it.
const stalledReaders = 1000

// request of a stream: Connect's envelope around JSON.
type request struct {
	path, header, body string
}

func (q *request) bytes(host string) []byte {
	b := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\n%sContent-Length: %d\r\n\r\n",
		q.path, host, q.header, 5+len(q.body))
	b = binary.BigEndian.AppendUint32(append(b, 0), uint32(len(q.body)))
	return append(b, q.body...)
}

// stall opens a stream on a connection that takes next to nothing, and
// returns once the server has begun to send.
func stall(ctx context.Context, addr string, q *request) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
		if err == nil {
			err = serr
		}
		return err
	}}
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(q.bytes(addr)); err != nil {
		c.Close()
		return nil, err
	}
	status := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, status); err != nil || string(status) != "HTTP/1.1 200" {
		c.Close()
		return nil, fmt.Errorf("the stream is answered with %q, %w", status, err)
	}
	return c, nil
}

// A thousand clients ask for the output of one process and never read it. The
// process ends all the same, its output is whole for a client that reads it, other
// requests are answered, and the server needs little memory for each stalled one.
func TestReadersThatNeverReadHoldNobodyUp(t *testing.T) {
	const size = 64 << 20
	for _, c := range []struct {
		name string
		// each bounds the server's memory for one reader that stalls, in bytes:
		// twice what was measured, or more. Most of it is net/http's and garbage.
		each    int64
		request func(id process.ID, pid int) request
	}{
		{"native", 768 << 10, func(id process.ID, _ int) request {
			return request{path: "/tend.v1.ProcessService/Read", body: fmt.Sprintf(`{"process":{"id":%q}}`, id)}
		}},
		{"native, who ask for the largest pieces", 768 << 10, func(id process.ID, _ int) request {
			return request{path: "/tend.v1.ProcessService/Read", body: fmt.Sprintf(`{"process":{"id":%q},"maxChunk":1048576}`, id)}
		}},
		{"envd", 256 << 10, func(_ process.ID, pid int) request {
			return request{path: "/process.Process/Connect", header: "Tend-From: 0\r\n", body: fmt.Sprintf(`{"process":{"pid":%d}}`, pid)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := serve(t)
			same := d.sameRoles()
			p := d.writer(size, process.Retention{})
			info := proctest.Info(t, p)
			q := c.request(p.ID(), info.PID)
			before := d.memory(testdaemon.Server, "VmRSS")
			conns := make([]net.Conn, stalledReaders)
			defer func() {
				for _, c := range conns {
					if c != nil {
						c.Close()
					}
				}
			}()
			var wg sync.WaitGroup
			for part := range 20 {
				wg.Go(func() {
					for i := part; i < stalledReaders && !t.Failed(); i += 20 {
						var err error
						if conns[i], err = stall(t.Context(), d.Addr(), &q); err != nil {
							t.Errorf("reader %d: %v", i, err)
						}
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			attached := d.memory(testdaemon.Server, "VmRSS")
			d.setOff(p)
			if err := wholeFrom(t.Context(), p, 0, size); err != nil {
				t.Error(err)
			}
			if res, err := http.Get(d.URL + "/-/healthz"); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("healthz answers %v, %v", res, err)
			}
			other := proctest.Start(t, d.c, process.Spec{Argv: []string{"true"}})
			if res, err := other.Wait(t.Context(), process.Until{}); err != nil || res.Exit == nil || res.Exit.Code != 0 {
				t.Errorf("another process ended with %+v, %v", res, err)
			}
			peak := d.memory(testdaemon.Server, "VmHWM")
			t.Logf("server: %d KiB before, with %d readers %d KiB, at most %d KiB: %d KiB for each that stalls",
				before>>10, stalledReaders, attached>>10, peak>>10, (peak-attached)/stalledReaders>>10)
			if got := (peak - before) / stalledReaders; got > c.each {
				t.Errorf("%d bytes of memory for each reader that stalls; at most %d", got, c.each)
			}
			same()
		})
	}
}
