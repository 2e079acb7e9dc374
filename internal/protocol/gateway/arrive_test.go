package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Bodies that do not arrive hold no place of those that have.
func TestSlowBodiesHoldNoPlaces(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {})
	g := open(t, t.TempDir(), upstream)
	key := g.key("a", Rules{})
	to := proctest.Value(url.Parse(g.url))(t)
	slow := func() net.Conn {
		conn := proctest.Value(net.Dial("tcp", to.Host))(t)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST /api/gateway/openai/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n{", key)
		return conn
	}
	first := slow()
	time.Sleep(50 * time.Millisecond) // it comes first
	for range mostAtOnce {
		slow()
	}
	if status, _, body := g.ask("POST", "/api/gateway/openai/x", key, "{}"); status != 200 {
		t.Errorf("beside %d that do not come: %d %s", mostAtOnce, status, body)
	}
	for range 300 - mostAtOnce {
		slow()
	}
	// The longest of too many gives way.
	proctest.Must(t, first.SetReadDeadline(time.Now().Add(20*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(first), nil)
	if err != nil {
		t.Fatalf("the first one waits: %v", err)
	}
	body := string(proctest.Value(io.ReadAll(resp.Body))(t))
	if resp.StatusCode != 408 || !strings.Contains(errorOf(body), "slowly") {
		t.Errorf("the first one: %d %s", resp.StatusCode, body)
	}
	if status, _, body := g.ask("POST", "/api/gateway/openai/x", key, "{}"); status != 200 {
		t.Errorf("a whole one: %d %s", status, body)
	}
}
