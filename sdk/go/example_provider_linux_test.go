package tend_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// This file is docs/providers.md as code: a provider of sandboxes in 100 lines, over
// whatever reaches a place by a command: ssh, docker exec, kubectl exec. Here it is
// nsenter, into namespaces of this machine, so that it can be tried anywhere.

// A Bridge is a process.Manager for processes in another place. Each is a process of
// Manager that goes there by a command. What Manager can do (output from the first byte,
// stdin, terminals, timeouts, restarts of the daemon) is so of the processes there.
type Bridge struct {
	process.Manager
	Place string   // names the place, in a label of its processes
	Enter []string // "ssh", "host", "--" or "docker", "exec", "-i", "ID"
}

// enter is what the place runs: $1 is the directory, and then the command.
const enter = `if [ -n "$1" ]; then cd -- "$1" || exit 126; fi; shift; exec "$@"`

// Start implements process.Manager.
func (b *Bridge) Start(ctx context.Context, s process.Spec) (process.Process, error) {
	argv := s.Argv
	if s.Shell != "" {
		argv = []string{"/bin/sh", "-c", s.Shell}
	}
	there := []string{"/bin/sh", "-c", enter, "sh", s.Dir, "env"}
	for k, v := range s.Env {
		there = append(there, k+"="+v)
	}
	s.Argv, s.Shell, s.Dir, s.Env = append(append(b.Enter[:len(b.Enter):len(b.Enter)], there...), argv...), "", "/", nil
	s.Labels = maps.Clone(s.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels["place"] = b.Place
	return b.Manager.Start(ctx, s)
}

// List implements process.Manager.
func (b *Bridge) List(ctx context.Context, f process.Filter) ([]process.Info, error) {
	f.Labels = maps.Clone(f.Labels)
	if f.Labels == nil {
		f.Labels = map[string]string{}
	}
	f.Labels["place"] = b.Place
	return b.Manager.List(ctx, f)
}

// Get implements process.Manager.
func (b *Bridge) Get(ctx context.Context, sel process.Selector) (process.Process, error) {
	p, err := b.Manager.Get(ctx, sel)
	if err != nil {
		return nil, err
	}
	info, err := p.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Spec.Labels["place"] != b.Place {
		return nil, process.ErrNotFound // of another place
	}
	return p, nil
}

// A Sandbox is a sandbox of this provider. Its Processes start it before they need it.
type Sandbox struct {
	tend.Processes
	On     process.Manager // where the bridges run
	Name   string
	holder process.Process // holds the namespaces; Ensure has one caller at a time
}

// NewBox returns a sandbox that is not made yet.
func NewSandbox(on process.Manager, name string) *Sandbox {
	b := &Sandbox{On: on, Name: name}
	b.Ensure = b.start
	return b
}

// start makes the sandbox, unless it is there.
func (b *Sandbox) start(ctx context.Context) (process.Manager, error) {
	if b.holder != nil {
		if info, err := b.holder.Info(ctx); err == nil && info.Exit == nil {
			return b.bridge(info.PID)
		}
	}
	p, err := b.On.Start(ctx, process.Spec{
		Argv: []string{"unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "hostname " + b.Name + "; echo made; exec sleep infinity"},
	})
	if err != nil {
		return nil, err
	}
	b.holder = p
	made, err := p.Wait(ctx, process.Until{Match: "^made$"})
	if err != nil {
		return nil, err
	}
	if !made.Met {
		return nil, errors.New("the sandbox could not be made")
	}
	info, err := p.Info(ctx)
	if err != nil {
		return nil, err
	}
	return b.bridge(info.PID)
}

func (b *Sandbox) bridge(pid int) (process.Manager, error) {
	first, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	inside := strings.Fields(string(first))
	if len(inside) == 0 {
		return nil, errors.New("the sandbox has ended")
	}
	return &Bridge{Manager: b.On, Place: b.Name, Enter: []string{"nsenter", "--target", inside[0], "--uts", "--pid", "--mount", "--"}}, nil
}

// Destroy ends the sandbox with all that runs in it.
func (b *Sandbox) Destroy(ctx context.Context) error {
	if b.holder == nil {
		return nil
	}
	_, err := b.holder.Kill(ctx)
	if errors.Is(err, process.ErrExited) {
		return nil
	}
	return err
}

// Example_provider is the provider at work.
func Example_provider() {
	t := &exampleTB{}
	defer t.end()
	sandbox := NewSandbox(testkeeper.New(t), "my-box") // where a program would take the client of DialDefault
	ctx := context.Background()
	defer sandbox.Destroy(ctx)

	cmd := tend.Shell(`hostname; echo "$GREETING"`)
	cmd.Env = map[string]string{"GREETING": "hello"}
	res, err := sandbox.Run(ctx, cmd)
	if err != nil {
		panic(err)
	}
	fmt.Print(res.Stdout)
	// Output:
	// my-box
	// hello
}

func TestAProviderInAHundredLines(t *testing.T) {
	t.Parallel()
	on := testkeeper.New(t)
	one, two := NewSandbox(on, "one"), NewSandbox(on, "two")
	t.Cleanup(func() { one.Destroy(context.Background()); two.Destroy(context.Background()) })

	// Nothing is made before it is needed; then spawn, stdin and exit status are of the
	// program inside.
	if one.holder != nil {
		t.Error("it was made before it was needed")
	}
	cmd := piped(tend.Shell("hostname; read -r l; echo got $l; exit 7"))
	p := proctest.Value(one.Spawn(t.Context(), cmd))(t)
	defer p.Close()
	proctest.Value(p.Stdin().Write([]byte("input\n")))(t)
	if res := proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t); res.Stdout != "one\ngot input\n" || res.ExitCode != 7 {
		t.Errorf("it ended with %+v", res)
	}
	dir := t.TempDir()
	at := tend.Command("pwd")
	at.Dir = dir
	if res := proctest.Value(one.Run(t.Context(), at))(t); strings.TrimSpace(res.Stdout) != dir {
		t.Errorf("it ran in %q", res.Stdout)
	}
	if res := proctest.Value(one.Run(t.Context(), tend.Command("no-such-program")))(t); res.ExitCode != 127 {
		t.Errorf("a program that there is not: %+v", res)
	}

	// Programs inside see those of their own sandbox alone, and so does List.
	const mark = "1000.25" // which nothing else there has
	lists := tend.Shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	long := proctest.Value(one.Spawn(t.Context(), tend.Command("sleep", mark)))(t)
	defer long.Close()
	if res := proctest.Value(two.Run(t.Context(), lists))(t); !strings.Contains(res.Stdout, "cat /proc") || strings.Contains(res.Stdout, mark) {
		t.Errorf("inside two there are %q", res.Stdout)
	}
	if all := proctest.Value(two.List(t.Context()))(t); len(all) != 0 {
		t.Errorf("two lists %+v", all)
	}
	if _, err := two.Get(t.Context(), long.PID()); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("two finds a process of one: %v", err)
	}
	again := proctest.Value(one.Get(t.Context(), long.PID()))(t)
	defer again.Close()

	// A kill reaches what is inside, and the end of the sandbox all of it.
	if killed := proctest.Value(one.Kill(t.Context(), long.PID()))(t); !killed {
		t.Error("nothing was killed")
	}
	if res := proctest.Value(one.Run(t.Context(), lists))(t); !strings.Contains(res.Stdout, "cat /proc") || strings.Contains(res.Stdout, mark) {
		t.Errorf("after the kill there are %q", res.Stdout)
	}
	last := proctest.Value(one.Spawn(t.Context(), tend.Command("sleep", "1000")))(t)
	defer last.Close()
	proctest.Must(t, one.Destroy(t.Context()))
	if res := proctest.Value(last.Wait(t.Context(), tend.WaitOptions{}))(t); res.ExitCode == 0 {
		t.Errorf("the process of a sandbox that ended: %+v", res)
	}

	// It starts itself again.
	if res := proctest.Value(one.Run(t.Context(), tend.Command("hostname")))(t); res.Stdout != "one\n" {
		t.Errorf("after its end: %+v", res)
	}
}
