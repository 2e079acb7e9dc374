package langsmith_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
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
