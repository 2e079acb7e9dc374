//go:build linux

package crashtest

import (
	"errors"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// gateway is what the machine's loopback is called inside (internal/sandbox/network).
const gateway = "192.0.0.1"

// door listens on a port of this machine, says "door" to who comes, and then waits for them
// to leave. Tests have no other network than the machine's loopback.
func door(t *testing.T) (port string) {
	t.Helper()
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "door\n")
				io.Copy(io.Discard, c)
			}()
		}
	}()
	return portOf(l.Addr().String())
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// knock is a line for bash that prints what a port of this machine says at once.
func knock(port string) string {
	return `exec 3<>/dev/tcp/` + gateway + `/` + port + ` && head -1 <&3; exec 3>&-; `
}

// networked makes a sandbox whose network has a way out; false: the machine cannot.
func networked(t *testing.T, c *tend.Client) (*tend.Sandbox, bool) {
	t.Helper()
	sandbox, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull, Name: "goes"})
	if errors.Is(err, process.ErrUnsupported) {
		return nil, false
	}
	proctest.Must(t, err)
	return sandbox, true
}

// hears is what a command inside is told at a port of this machine.
func hears(t *testing.T, sandbox *tend.Sandbox, port string) string {
	t.Helper()
	return proctest.Value(sandbox.Processes().Run(t.Context(), tend.Command("/bin/bash", "-c", knock(port))))(t).Stdout
}

// A sandbox has its way out again behind the death of the server, of the keeper and of both,
// and behind an upgrade, without a restart: so do processes that used it at that time.
func TestTheWayOutOutlivesTheRoles(t *testing.T) {
	t.Parallel()
	port := door(t)
	d := serve(t, "--sandbox-reach", "127.0.0.1:"+port, "--sandbox-deny", "*")
	c := d.Connect(t)
	sandbox, ok := networked(t, c)
	if !ok {
		return
	}
	inside := proctest.Value(sandbox.Client(t.Context()))(t)
	for what, strike := range map[string]func(){
		"server": func() { proctest.Must(t, d.Replace(t.Context(), testdaemon.Server)) },
		"keeper": func() { proctest.Must(t, d.Replace(t.Context(), testdaemon.Keeper)) },
		"upgrade": func() {
			for _, what := range []tend.Upgrade{{Keeper: true, Binary: bin}, {Server: true, Binary: bin}} {
				proctest.Must(t, d.Upgrade(t.Context(), what))
			}
		},
	} {
		// It has a connection open, and makes another at once and when it is told to.
		p := proctest.Start(t, inside, process.Spec{
			Argv:  []string{"/bin/bash", "-c", `exec 4<>/dev/tcp/` + gateway + `/` + port + `; read x <&4; echo "$x open"; read x; ` + knock(port)},
			Stdin: process.StdinPipe,
		})
		proctest.Wait(t, p, process.Until{Match: "door open"})
		strike()
		proctest.Write(t, p, "\n")
		proctest.WantExit(t, p, 0)
		proctest.WantOutput(t, p, process.Stdout, "door open\ndoor\n")
		if got := hears(t, sandbox, port); got != "door\n" {
			t.Errorf("behind the %s a new process hears %q", what, got)
		}
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))
}

// A fork and a RUN of a build have the network as well.
func TestForksAndBuildsHaveAWayOut(t *testing.T) {
	t.Parallel()
	port := door(t)
	d := serve(t, "--sandbox-reach", "127.0.0.1:"+port, "--sandbox-deny", "*")
	c := d.Connect(t)
	sandbox, ok := networked(t, c)
	if !ok {
		return
	}
	if got := hears(t, sandbox, port); got != "door\n" {
		t.Errorf("it hears %q", got)
	}
	for _, copied := range proctest.Value(sandbox.Fork(t.Context(), 2))(t) {
		if got := hears(t, copied, port); got != "door\n" {
			t.Errorf("a fork hears %q", got)
		}
		proctest.Must(t, copied.Destroy(t.Context()))
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))

	spec := tend.TemplateSpec{Name: "knocks", Steps: []tend.TemplateStep{{Kind: "RUN", Args: []string{`bash -c '` + knock(port) + `' > /tmp/heard`}}}}
	proctest.Value(c.BuildTemplate(t.Context(), spec, nil))(t)
	made := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull, Template: "knocks"}))(t)
	if res := proctest.Value(made.Processes().Run(t.Context(), tend.Shell("cat /tmp/heard")))(t); res.Stdout != "door\n" {
		t.Errorf("a build heard %q", res.Stdout)
	}
	proctest.Must(t, made.Destroy(t.Context()))
}

// A sandbox that is kept over a shutdown has a way out of the next daemon, whose flags
// hold. Its own port is not opened by any.
func TestAKeptSandboxFollowsTheNextDaemonsFlags(t *testing.T) {
	t.Parallel()
	first, second := door(t), door(t)
	flags := []string{"--sandbox-deny", "*", "--sandbox-reach", "127.0.0.1:" + first, "--sandbox-reach", "127.0.0.1:1"}
	d := serve(t, flags...)
	c := d.Connect(t)
	sandbox, ok := networked(t, c)
	if !ok {
		return
	}
	inside := proctest.Value(sandbox.Client(t.Context()))(t)
	p := proctest.Start(t, inside, process.Spec{
		Argv: []string{"/bin/bash", "-c", knock(first) + `read x; ` + knock(second)}, Stdin: process.StdinPipe,
	})
	proctest.Wait(t, p, process.Until{Match: "door"})
	if got := hears(t, sandbox, second); got != "" {
		t.Errorf("what is not open says %q", got)
	}

	launcher := d.Roles()[testdaemon.Launcher]
	proctest.Must(t, c.Shutdown(t.Context(), true))
	proctest.Eventually(t, "launcher and server have ended", func() bool {
		stat, ok := procfs.ReadStat(launcher)
		return (!ok || stat.Dead()) && d.Roles()[testdaemon.Server] == 0
	})
	d.KillLauncher() // it has ended; this collects it
	// The daemon is started with this slice: its port is known now.
	own := portOf(d.Addr())
	flags[3], flags[5] = "127.0.0.1:"+second, "127.0.0.1:"+own
	proctest.Must(t, d.ServeAgain())
	c = d.Connect(t)
	p = proctest.Find(t, proctest.Value(proctest.Value(c.Sandbox(t.Context(), "goes"))(t).Client(t.Context()))(t), p.ID())
	proctest.Write(t, p, "\n")
	proctest.WantExit(t, p, 0)
	proctest.WantOutput(t, p, process.Stdout, "door\ndoor\n")
	sandbox = proctest.Value(c.Sandbox(t.Context(), "goes"))(t)
	if got := hears(t, sandbox, first); got != "" {
		t.Errorf("what is not open any more says %q", got)
	}
	ask := `exec 3<>/dev/tcp/` + gateway + `/` + own + ` && printf 'GET /-/healthz HTTP/1.0\r\n\r\n' >&3 && cat <&3`
	if res := proctest.Value(sandbox.Processes().Run(t.Context(), tend.Command("/bin/bash", "-c", ask)))(t); res.Stdout != "" {
		t.Errorf("the daemon answers a sandbox: %q", res.Stdout)
	}
	if n, err := strconv.Atoi(own); err != nil || n == 0 {
		t.Errorf("its port is %q", own)
	}
	proctest.Must(t, sandbox.Destroy(t.Context()))
}
