package native_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/internal/tendpb"
)

// dialPort asks for a connection to a port, and sends ahead with the request.
func dialPort(t *testing.T, url, query, upgrade, ahead string) (*http.Response, net.Conn, *bufio.Reader) {
	t.Helper()
	c := proctest.Value(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
	t.Cleanup(func() { c.Close() })
	proctest.Value(io.WriteString(c, "GET "+tendpb.DialPath+"?"+query+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\n"+ahead))(t)
	br := bufio.NewReader(c)
	return proctest.Value(http.ReadResponse(br, nil))(t), c, br
}

func TestAPortInsideIsOneConnectionAway(t *testing.T) {
	_, c, url := serveSandboxes(t)
	sandbox := create(t, c, &tendv1.SandboxSpec{Name: "p"})
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t) // a sandbox of the machine's own network
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				io.WriteString(c, strings.ToUpper(string(all)))
			}()
		}
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, key := range []string{"p", sandbox.GetId()} {
		res, conn, br := dialPort(t, url, "sandbox="+key+"&port="+port, tendpb.DialProtocol, "ahead, ")
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("by %s: %s", key, res.Status)
		}
		proctest.Value(io.WriteString(conn, "behind"))(t)
		proctest.Must(t, conn.(*net.TCPConn).CloseWrite()) // the other direction continues
		if got := proctest.Value(io.ReadAll(br))(t); string(got) != "AHEAD, BEHIND" {
			t.Errorf("by %s the answer is %q", key, got)
		}
	}
}

func TestAPortThatCannotBeReachedIsRefusedByName(t *testing.T) {
	_, c, url := serveSandboxes(t)
	create(t, c, &tendv1.SandboxSpec{Name: "p"})
	for _, tc := range []struct {
		query, upgrade string
		status         int
		text           string
	}{
		{"sandbox=p&port=1", tendpb.DialProtocol, 400, "listens"},
		{"sandbox=q&port=1", tendpb.DialProtocol, 404, "q"},
		{"sandbox=p&port=0", tendpb.DialProtocol, 400, "port"},
		{"sandbox=p&port=65536", tendpb.DialProtocol, 400, "port"},
		{"sandbox=p", tendpb.DialProtocol, 400, "port"},
		{"port=80", tendpb.DialProtocol, 400, "sandbox"},
		{"sandbox=p&port=80", "websocket", 400, "Upgrade"},
	} {
		res, _, _ := dialPort(t, url, tc.query, tc.upgrade, "")
		body := proctest.Value(io.ReadAll(res.Body))(t)
		if res.StatusCode != tc.status || !strings.Contains(string(body), tc.text) {
			t.Errorf("%s, %s: %s %s", tc.query, tc.upgrade, res.Status, body)
		}
	}
}

func TestTheEndOfTheServerCutsConnectionsToPorts(t *testing.T) {
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	_, url, face := serveFace(t, native.Config{Manager: m, Driver: d})
	proctest.Value(d.Create(t.Context(), driver.Spec{Name: "p"}))(t)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	query := "sandbox=p&port=" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_, _, br := dialPort(t, url, query, tendpb.DialProtocol, "")
	far := proctest.Value(l.Accept())(t)
	defer far.Close()
	if n := face.Streams(); n != 1 {
		t.Errorf("%d streams are counted", n)
	}
	proctest.Must(t, face.Close())
	if _, err := br.ReadByte(); err == nil {
		t.Error("the client's end is open")
	}
	if n, err := far.Read(make([]byte, 1)); err == nil {
		t.Errorf("the program inside reads %d bytes", n)
	}
}
