package local

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// answering answers each connection with the sandbox that it is from.
type answering struct {
	mu     sync.Mutex
	opened map[driver.ID]int // guarded by mu
}

func (a *answering) open(id driver.ID, l net.Listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened[id]++
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			fmt.Fprintln(c, id)
			c.Close()
		}
	}()
}

// A spare is told of its sandbox before anybody asks for it, so only a sandbox of the same template takes it.
func TestASpareIsToldOfItsSandbox(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	doors := &answering{opened: map[driver.ID]int{}}
	cfg.Door = doors.open
	d := openSparing(t, cfg)
	create(t, d, driver.Spec{E2BTemplate: "base"})
	sp := spareOf(t, d)
	if s, _ := create(t, d, driver.Spec{}); s.id == sp.s.id {
		t.Error("a sandbox that is not of E2B's takes it")
	}
	s, _ := create(t, d, driver.Spec{E2BTemplate: "base"})
	if s.id != sp.s.id {
		t.Error("nobody takes it")
	}
	id := string(s.id)
	got := inSandbox(t, s, `bash -c 'exec 3<>/dev/tcp/127.0.0.1/49983 && cat <&3'; cat /run/e2b/.E2B_SANDBOX_ID /run/e2b/.E2B_TEMPLATE_ID`)
	if got != id+"\n"+id+"base" {
		t.Errorf("it hears and sees %q", got)
	}
}

// A sandbox of E2B's has a listening socket inside, of its own, from its first program on,
// also for the next server; no other sandbox has one.
func TestADoorInEachSandboxOfE2B(t *testing.T) {
	cfg := real(t)
	doors := &answering{opened: map[driver.ID]int{}}
	cfg.Door, cfg.WarmStart, cfg.WarmPort = doors.open, "exec sleep 1000", 49999
	d := openReal(t, cfg)
	const ask = `exec 3<>/dev/tcp/127.0.0.1/49983 && cat <&3 || echo nobody`
	line := "bash -c '" + ask + "' 2>/dev/null"
	var all []driver.Sandbox
	for range 2 {
		all = append(all, proctest.Value(d.Create(t.Context(), driver.Spec{E2BTemplate: "base"}))(t))
	}
	closed := driver.Network{Deny: []string{"0.0.0.0/0", "::/0"}} // it leads nowhere
	all = append(all, proctest.Value(d.Create(t.Context(), driver.Spec{E2BTemplate: "base", Network: closed}))(t))
	for round := range 2 {
		for _, s := range all {
			id := info(t, s).ID
			found := proctest.Value(d.Get(t.Context(), string(id)))(t)
			if got := inSandbox(t, found, line); got != string(id)+"\n" {
				t.Errorf("round %d: %s hears %q", round, id, got)
			}
		}
		d.disconnectAll() // as a server that ends
		d = openOn(t, cfg)
	}
	first := proctest.Value(d.Get(t.Context(), string(info(t, all[0]).ID)))(t)
	proctest.Must(t, first.Stop(t.Context()))
	proctest.Must(t, first.Start(t.Context()))
	if got := inSandbox(t, first, line); got != string(info(t, first).ID)+"\n" {
		t.Errorf("after a start it hears %q", got)
	}
	other := proctest.Value(d.Create(t.Context(), driver.Spec{}))(t)
	if got := inSandbox(t, other, line); got != "nobody\n" {
		t.Errorf("another sandbox hears %q", got)
	}
	second := strings.Replace(line, "49983", fmt.Sprint(cfg.WarmPort), 1)
	for _, s := range []driver.Sandbox{first, other} {
		if got := inSandbox(t, s, second); got != "nobody\n" {
			t.Errorf("a sandbox without the start command hears %q", got)
		}
	}
	doors.mu.Lock()
	defer doors.mu.Unlock()
	if n := doors.opened[info(t, other).ID]; n != 0 || len(doors.opened) != 3 {
		t.Errorf("doors were opened: %v", doors.opened)
	}
}
