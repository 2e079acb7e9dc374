package peer

import (
	"bytes"
	"net/netip"
	"testing"
)

// FuzzAnswers: no answer of the kernel makes a parser panic, or is about another
// connection.
func FuzzAnswers(f *testing.F) {
	e := ends{netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:40000")}
	f.Add([]byte("  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 12345 1\n"))
	f.Add([]byte("x\n 0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:9C40 01 a b c 4294967296 d 1\n"))
	f.Add(append(diagQuestion(e, 1), make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseDiag(b, e); err == nil && s.uid < 0 {
			t.Errorf("%+v", s)
		}
		if s, err := searchTable(bytes.NewReader(b), e); err == nil && s.uid < 0 {
			t.Errorf("%+v", s)
		}
	})
}
