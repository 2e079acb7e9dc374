package langsmith_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/langsmith"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Readers of one box that stop hold its share of frames, whose bytes are on the disk anyway;
// the output of another box comes whole.
func TestReadersThatStopHoldAShare(t *testing.T) {
	t.Parallel()
	const whole, readers, size = 2 << 20, 12, 16 << 20
	held := budget.New(whole)
	s := serve(t, func(c *langsmith.Config) { c.Budget = held })
	of := budget.Sandbox(s.box.ID)
	first, f := s.execute(object{"command": "head -c 16777216 /dev/zero | tr '\\0' x; sleep 1000", "command_id": "long"})
	if f.Type != "started" {
		t.Fatal(f)
	}
	all := []*wsConn{first}
	for range readers {
		c, f := s.reconnect("long", 0, 0)
		if f.Type != "started" {
			t.Fatal(f)
		}
		all = append(all, c)
	}
	proctest.Eventually(t, "frames wait", func() bool {
		if got := held.UsedBy(of); got > whole/4 {
			t.Fatalf("one box holds %d bytes of %d", got, whole)
		}
		return held.UsedBy(of) > whole/8
	})
	box := proctest.Value(s.driver.Create(t.Context(), driver.Spec{Name: "other"}))(t)
	mine := s.box
	s.box = proctest.Value(box.Info(t.Context()))(t)
	other, _ := s.execute(object{"command": "head -c 1000000 /dev/zero | tr '\\0' x"})
	if got := other.rest(0, 0); len(got.Stdout) != 1_000_000 {
		t.Errorf("the output of another box has %d bytes: %+v", len(got.Stdout), got.Error)
	}
	s.box = mine
	// One that continues gets all of it, the frames of the others hold it up or not.
	for _, c := range all[1:] {
		c.CloseNow()
	}
	got := 0
	for got < size {
		f, code, ok := first.next()
		if !ok || f.Type != "stdout" {
			t.Fatalf("after %d bytes %+v, closed with %d", got, f, code)
		}
		got += len(f.Data)
	}
	first.CloseNow()
	proctest.Eventually(t, "all is given back", func() bool { return held.Used() == 0 })
}

// Each stream of a tunnel may hold a window of bytes: those of one box hold its share.
func TestStreamsOfTunnelsHoldAShare(t *testing.T) {
	t.Parallel()
	const whole, streams = 16 << 20, 40
	held := budget.New(whole)
	s := serve(t, func(c *langsmith.Config) { c.Budget = held })
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() { // nothing of what comes is read
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	ws, _, err := websocket.Dial(t.Context(), s.data()+"/tunnel", nil)
	proctest.Must(t, err)
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	session := proctest.Value(yamux.Client(websocket.NetConn(t.Context(), ws, websocket.MessageBinary), cfg))(t)
	port := l.Addr().(*net.TCPAddr).Port
	open, ended := 0, 0
	for range streams {
		c := proctest.Value(session.Open())(t)
		_, _ = c.Write([]byte{1, byte(port >> 8), byte(port)})
		var status [1]byte
		if _, err := io.ReadFull(c, status[:]); err == nil && status[0] == 0 {
			open++
		} else {
			ended++
		}
	}
	if got := held.UsedBy(budget.Sandbox(s.box.ID)); open != 16 || ended != streams-16 || got != 16*(256<<10) {
		t.Errorf("%d streams are open and hold %d bytes, %d were ended", open, got, ended)
	}
	session.Close()
	proctest.Eventually(t, "all is given back", func() bool { return held.Used() == 0 })
}

// An answer and a stream of events for which there is no room come whole all the same.
func TestOutputComesWholeWithoutRoom(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := budget.New(4 << 10).Charge(budget.Sandbox(s.box.ID))
		req := proctest.Value(http.NewRequestWithContext(r.Context(), r.Method, s.url+r.URL.Path, r.Body))(t)
		req.Header = r.Header
		s.mux.ServeHTTP(w, req.WithContext(budget.With(req.Context(), held)))
		held.Release()
	}))
	defer hs.Close()
	path := strings.TrimPrefix(s.data(), s.url)
	body := `{"command":"seq 100000","shell":"/bin/sh"}`
	want := proctest.Value(exec.Command("seq", "100000").Output())(t)
	var answer struct{ Stdout string }
	_, text := s.call("POST", hs.URL+path+"/execute", body, "Content-Type: application/json")
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Stdout != string(want) {
		t.Errorf("the answer has %d bytes, not %d: %v", len(answer.Stdout), len(want), err)
	}
	_, text = s.call("POST", hs.URL+path+"/execute/stream/start", body, "Content-Type: application/json")
	var got []byte
	events := 0
	for line := range strings.Lines(text) {
		var ev struct {
			Data   []byte
			Offset int64
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if ok && json.Unmarshal([]byte(data), &ev) == nil && len(ev.Data) > 0 {
			if ev.Offset != int64(len(got)) || len(ev.Data) > protocol.SmallPiece {
				t.Errorf("%d bytes at %d, behind %d", len(ev.Data), ev.Offset, len(got))
			}
			got = append(got, ev.Data...)
			events++
		}
	}
	if string(got) != string(want) || events < len(want)/protocol.SmallPiece {
		t.Errorf("%d events have %d bytes, not %d", events, len(got), len(want))
	}
}

// The headers of a service's answer are charged for while they come, and their lines have a limit:
// heads without end hold the share of their box, and no more.
func TestHeadersOfAServiceHoldAShare(t *testing.T) {
	t.Parallel()
	const whole, clients, each = 8 << 20, 40, 900
	held := budget.New(whole)
	s := serve(t, func(c *langsmith.Config) { c.Budget = held })
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "x%04x:\r\n", i)
		}
		return b.String()
	}
	hang := make(chan struct{})
	link := s.inside(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		switch {
		case strings.HasSuffix(r.URL.Path, "/many"):
			io.WriteString(c, lines(8<<10)+"\r\n")
		case strings.HasSuffix(r.URL.Path, "/few"):
			io.WriteString(c, lines(each)+"\r\nok")
		default:
			io.WriteString(c, lines(each))
			<-hang
		}
	})
	token := "X-Langsmith-Sandbox-Service-Token: " + link.Token
	if status, text := s.call("GET", link.ServiceURL+"many", "", token); status != 502 || !strings.Contains(text, "1000 lines") {
		t.Errorf("many lines: %d %s", status, text)
	}
	if status, text := s.call("GET", link.ServiceURL+"few", "", token); status != 200 || text != "ok" {
		t.Errorf("few lines: %d %s", status, text)
	}
	of := budget.Sandbox(s.box.ID)
	var refused atomic.Int64
	var all sync.WaitGroup
	for n := range clients {
		if n == 1 { // else those that are just being refused may hold what the last one needs
			proctest.Eventually(t, "the first is charged for", func() bool { return held.UsedBy(of) >= each*200 })
		}
		all.Go(func() {
			if status, text := s.call("GET", link.ServiceURL+"endless", "", token); status == 429 || status == 503 {
				refused.Add(1)
			} else if status != 502 { // that of those that hang, at the end
				t.Errorf("%d %s", status, text)
			}
		})
	}
	proctest.Eventually(t, "what hangs is charged for", func() bool {
		if got := held.UsedBy(of); got > whole/4 {
			t.Fatalf("one box holds %d bytes of %d", got, whole)
		}
		hang := clients - refused.Load()
		return hang < clients && held.UsedBy(of) >= hang*each*200
	})
	close(hang)
	all.Wait()
	if refused.Load() == clients {
		t.Error("all were refused")
	}
	proctest.Eventually(t, "all is given back", func() bool { return held.Used() == 0 })
}
