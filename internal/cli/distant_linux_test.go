package cli

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/distant"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"golang.org/x/sys/unix"
)

// TestJSONLinesAreForThisUser: another user of the machine reaches the port,
// and is turned away with a reason, unless that was asked for.
func TestJSONLinesAreForThisUser(t *testing.T) {
	proctest.Root(t)
	f := proctest.Value(distant.New(distant.Config{Sandbox: host.NewMachine(testkeeper.New(t)), Dir: "/"}))(t)
	for _, tt := range []struct {
		name     string
		uid      int
		insecure bool
		want     string
	}{
		{"the same user", 0, false, `"type":"version"`},
		{"somebody else", 65534, false, `"kind":"permission_denied","description":"this port is for user 0 and root, and you are user 65534`},
		{"somebody else, insecure", 65534, true, `"type":"version"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- serveListeners(ctx, f, []net.Listener{l}, tt.insecure) }()
			defer func() {
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			conn := dialAs(t, tt.uid, l.Addr().String())
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(2 * time.Minute))
			proctest.Value(io.WriteString(conn, `{"type":"version"}`+"\n"))(t)
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			if err != nil || !strings.Contains(string(buf[:n]), tt.want) {
				t.Errorf("answer %q, %v; want %s", buf[:n], err, tt.want)
			}
		})
	}
}

// dialAs connects as another user.
func dialAs(t *testing.T, uid int, addr string) (conn net.Conn) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err = unix.Setfsuid(uid); err == nil {
			conn, err = net.Dial("tcp", addr)
		}
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
