package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
)

// FuzzMessages: the account of a stream of messages takes nothing from the
// stream, and ends at 0.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 'x', 0, 0, 0, 0, 0}, 3, false)
	f.Add(append(binary.BigEndian.AppendUint32([]byte{0}, smallBody+5), make([]byte, 100)...), 7, true)
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3}, 1, false)
	f.Fuzz(func(t *testing.T, stream []byte, size int, packed bool) {
		if size < 1 || size > 1<<16 {
			return
		}
		budget := budget.New(1 << 40)
		b := new(messageBody)
		b.ReadCloser, b.packed, b.h2 = io.NopCloser(bytes.NewReader(stream)), packed, true
		b.rc, b.pause = http.NewResponseController(httptest.NewRecorder()), time.Hour
		b.charge.On(budget)
		got, err := io.ReadAll(struct{ io.Reader }{iotest.OneByteReader(b)})
		if err != nil || !bytes.Equal(got, stream) {
			t.Errorf("%d bytes of %d came, %v", len(got), len(stream), err)
		}
		b.release()
		if used := budget.Used(); used != 0 {
			t.Errorf("%d bytes are charged at the end", used)
		}
	})
}

// FuzzCheckListen: without a token nothing but a loopback address passes.
func FuzzCheckListen(f *testing.F) {
	for _, s := range []string{"127.0.0.1:1", "[::1]:0", "0.0.0.0:0", "localhost:1", "[::ffff:127.0.0.1]:1", "[::1%lo]:1", "127.1:1", ":1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if CheckListen("tcp", address, false, false) != nil {
			return
		}
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !ap.Addr().Unmap().IsLoopback() {
			t.Errorf("%q passed", address)
		}
	})
}
