package sockdiag

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	tableV4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F90 0200007F:D2F0 01 00000000:00000000 00:00000000 00000000  1000        0 31339 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 100 0 0 10 0
`
	tableV6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:2328 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0000000000000000 100 0 0 10 0
   1: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:9C40 01 00000000:00000000 00:00000000 00000000 65534        0 42 1 0000000000000000 20 4 30 10 -1
`
)

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestTable(t *testing.T) {
	tests := []struct {
		name, text string
		want       []Socket
	}{
		{"reads IPv4", tableV4, []Socket{
			{at("127.0.0.1:8080"), at("0.0.0.0:0"), Listen, 0, 31337},
			{at("127.0.0.1:8080"), at("127.0.0.2:54000"), 1, 1000, 31339},
			{at("127.0.0.1:8081"), at("0.0.0.0:0"), Listen, 0, 0},
		}},
		{"reads IPv6", tableV6, []Socket{
			{at("[::1]:9000"), at("[::]:0"), Listen, 0, 41},
			{at("[::ffff:127.0.0.1]:8080"), at("[::ffff:127.0.0.1]:40000"), 1, 65534, 42},
		}},
		{"reads a last line without its end", strings.TrimSuffix(tableV6[:strings.LastIndex(tableV6, "   1:")], "\n"), []Socket{
			{at("[::1]:9000"), at("[::]:0"), Listen, 0, 41},
		}},
		{"passes over what it does not understand", "\nx\n 0: x y z\n" +
			" 0: zz:1 00000000:0 0A 0 0 0 0 0 9 1\n" + // an address
			" 0: 0100007F:FFFFF 00000000:0 0A 0 0 0 0 0 9 1\n" + // a port
			" 0: 0100007F 00000000:0 0A 0 0 0 0 0 9 1\n" +
			" 0: 01007F:1 00000000:0 0A 0 0 0 0 0 9 1\n" +
			" 0: 0100007F:1 0:0 0A 0 0 0 0 0 9 1\n" + // the other end
			" 0: 0100007F:1 00000000:0 100 0 0 0 0 0 9 1\n" + // a state
			" 0: 0100007F:1 00000000:0 0A 0 0 0 4294967296 0 9 1\n" + // a user
			" 0: 0100007F:1 00000000:0 0A 0 0 0 0 0 -9 1\n" + // an inode
			" 0: 0100007F:1 00000000:0 0A 0 0 0 0 0\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []Socket
			for s, err := range Table(strings.NewReader(tt.text)) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("sockets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATableThatCannotBeReadSaysSo(t *testing.T) {
	broken := errors.New("broken")
	r, w := io.Pipe()
	go func() {
		io.WriteString(w, tableV4)
		w.CloseWithError(broken)
	}()
	n, last := 0, error(nil)
	for _, err := range Table(r) {
		n, last = n+1, err
	}
	if n != 4 || last != broken {
		t.Errorf("%d of 3 sockets and an error; the last is %v", n, last)
	}
}

func TestATableIsReadNoFurtherThanWanted(t *testing.T) {
	n := 0
	for range Table(strings.NewReader(tableV4)) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d sockets; want 1", n)
	}
}

// FuzzParseTCP: what is read of a table is a socket, whatever its text.
func FuzzParseTCP(f *testing.F) {
	for _, s := range []string{tableV4, tableV6, "0: :: 0 0A 0 0 0 0 0 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for s, err := range Table(bytes.NewReader(b)) {
			if err == nil && (!s.Local.IsValid() || !s.Remote.IsValid() || s.UID < 0) {
				t.Errorf("%q gives the socket %+v", b, s)
			}
		}
	})
}
