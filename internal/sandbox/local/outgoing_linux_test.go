package local

import (
	"errors"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// oneDoor returns what a driver is opened with whose sandboxes reach one port of this
// machine, at which "door" is said, and the command that goes there from inside. Tests
// have no other network than the machine's loopback.
func oneDoor(t *testing.T) (cfg Config, knock string) {
	t.Helper()
	cfg = real(t)
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.WriteString(c, "door\n")
				io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	reach := proctest.Value(network.ParseReach([]string{"127.0.0.1:" + port}))(t)
	deny := proctest.Value(network.ParseDeny([]string{"*"}))(t)
	host := network.NewHost(network.Config{Reach: reach, Deny: deny})
	proctest.Must(t, host.Unable())
	cfg.Network = host
	return cfg, `exec 3<>/dev/tcp/` + network.Gateway + `/` + port + ` && head -1 <&3`
}

// bash is what a line writes inside.
func bash(t *testing.T, s driver.Sandbox, line string) string {
	t.Helper()
	p := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"/bin/bash", "-c", line}})
	proctest.Wait(t, p, process.Until{})
	return proctest.Output(t, p, process.Stdout)
}

// TestTheWayOutFollowsTheSandbox: through pause, stop, fork, changed rules, builds and the
// next server.
func TestTheWayOutFollowsTheSandbox(t *testing.T) {
	t.Parallel()
	cfg, knock := oneDoor(t)
	d := openReal(t, cfg)
	defer d.disconnectAll()
	s, _ := create(t, d, driver.Spec{Name: "goes"})
	reaches := func(what string, s driver.Sandbox, want bool) {
		t.Helper()
		if got := bash(t, s, knock); (got == "door\n") != want || got != "door\n" && got != "" {
			t.Errorf("%s it hears %q", what, got)
		}
	}
	reaches("at first", s, true)
	proctest.Must(t, d.Pause(t.Context(), s.id, driver.PauseSpec{Memory: !drivertest.Lacks(t, d, container.LayerFreeze)}))
	proctest.Must(t, d.Resume(t.Context(), s.id))
	reaches("after a pause", s, true)
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, s.Start(t.Context()))
	reaches("after a stop", s, true)

	rules := func(allow, deny []string) {
		t.Helper()
		in := proctest.Value(s.Update(t.Context(), driver.Change{Network: &driver.Network{Allow: allow, Deny: deny}}))(t)
		if len(in.Network.Allow) != len(allow) || len(in.Network.Deny) != len(deny) {
			t.Errorf("the rules are %+v", in.Network)
		}
	}
	rules(nil, []string{"0.0.0.0/0"})
	reaches("with all denied", s, false)
	rules([]string{network.Gateway}, []string{"0.0.0.0/0"})
	reaches("with that allowed", s, true)
	rules([]string{"203.0.113.9"}, nil)
	reaches("with another allowed", s, false)
	rules(nil, nil)

	shut, _ := create(t, d, driver.Spec{Name: "shut", Network: driver.Network{Deny: []string{"0.0.0.0/0"}}})
	reaches("one without a way out", shut, false)
	proctest.Value(shut.Update(t.Context(), driver.Change{Network: &driver.Network{}}))(t)
	reaches("when it was opened", shut, true)

	// What runs continues. A connection that it begins while there is no server waits for the
	// next one.
	p := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"/bin/bash", "-c", `read line; ` + knock}, Stdin: process.StdinPipe})
	d.disconnectAll()
	proctest.Write(t, p, "\n")
	next := openOn(t, cfg)
	defer next.disconnectAll()
	if _, err := next.List(t.Context()); err != nil { // it meets the containers
		t.Fatal(err)
	}
	next.reconnect(t.Context())
	proctest.WantExit(t, p, 0)
	proctest.WantOutput(t, p, process.Stdout, "door\n")
}

func TestRulesThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	cfg, _ := onPaper(t)
	d := openOn(t, cfg)
	for field, n := range map[string]driver.Network{
		"network.allow": {Allow: []string{"a b"}},
		"network.deny":  {Deny: []string{"1.2.3.4:99999"}},
	} {
		var wrong *driver.InvalidError
		if _, err := d.Create(t.Context(), driver.Spec{Network: n}); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	// Its host leads nowhere.
	var lacks *driver.UnsupportedError
	if _, err := d.Create(t.Context(), driver.Spec{Network: driver.Network{Allow: []string{"example.com"}}}); !errors.As(err, &lacks) || lacks.Field != "network.allow" {
		t.Errorf("without a way out: %v", err)
	}
}
