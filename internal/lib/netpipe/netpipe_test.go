package netpipe

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	near = proctest.Value(net.Dial("tcp", l.Addr().String()))(t)
	far = proctest.Value(l.Accept())(t)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestAnEndInOneDirectionLeavesTheOther(t *testing.T) {
	client, a := pair(t)
	b, server := pair(t)
	done := make(chan struct{})
	go func() { Join(a, b); close(done) }()
	big := strings.Repeat("x", 1<<20)
	go func() {
		io.WriteString(client, big)
		client.(*net.TCPConn).CloseWrite()
	}()
	if got := proctest.Value(io.ReadAll(server))(t); string(got) != big {
		t.Fatalf("%d bytes came", len(got))
	}
	proctest.Value(io.WriteString(server, "answer"))(t)
	server.Close()
	if got := proctest.Value(io.ReadAll(client))(t); string(got) != "answer" {
		t.Fatalf("the answer is %q", got)
	}
	<-done
}

func TestAnErrorEndsBothDirections(t *testing.T) {
	client, a := pair(t)
	b, server := pair(t)
	done := make(chan struct{})
	go func() { Join(a, b); close(done) }()
	server.(*net.TCPConn).SetLinger(0) // a reset
	server.Close()
	if _, err := io.ReadAll(client); err != nil {
		t.Logf("the client sees %v", err)
	}
	client.Close()
	<-done
}
