package tend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/server/exits"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

func TestWhatACommandAsksForAtItsEndIsDone(t *testing.T) {
	t.Parallel()
	m := testkeeper.New(t)
	part := exits.Open(exits.Config{Manager: m, Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	sandboxes := proctest.Value(host.Open(host.Config{Dir: t.TempDir(), Manager: m}))(t)
	c := dial(t, serveFace(t, native.Config{Manager: m, Driver: sandboxes}, nil, nil).URL, tend.Options{})
	for _, pinned := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "ended")
		cmd := tend.Shell("exit 3")
		cmd.OnExit = fmt.Sprintf(`echo $TEND_EXIT_STATUS > %[1]s.new && mv %[1]s.new %[1]s`, file)
		cmd.Retention.Pin = pinned
		p := proctest.Value(c.Spawn(t.Context(), cmd))(t)
		var text []byte
		proctest.Eventually(t, "the command runs", func() (ok bool) {
			var err error
			text, err = os.ReadFile(file)
			return err == nil
		})
		if string(text) != "3\n" {
			t.Errorf("it wrote %q", text)
		}
		proctest.Eventually(t, "it is pinned only if that was asked for", func() bool {
			return proctest.Info(t, p.Raw()).Pinned == pinned && (!pinned || doneFor(t, c, p.ID()))
		})
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	sandbox := proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Name: "box"}))(t)
	inside := proctest.Value(sandbox.Client(t.Context()))(t)
	wrong := func(field string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*process.InvalidError](err); !ok || e.Field != field {
			t.Errorf("%v; want %s to be invalid", err, field)
		}
	}
	cmd := tend.Shell("true")
	cmd.OnExitURL = "https://example.com"
	_, err := inside.Spawn(t.Context(), cmd)
	wrong("Cmd.OnExit", err)
	_, err = c.Processes().Run(t.Context(), cmd)
	wrong("Cmd.OnExit", err)
	cmd.OnExitURL = "ftp://example.com"
	_, err = c.Spawn(t.Context(), cmd)
	wrong("Cmd.OnExitURL", err)
}

// doneFor reports whether the command at the end of a process has ended, too.
func doneFor(t *testing.T, c *tend.Client, id process.ID) bool {
	t.Helper()
	p, err := c.Get(t.Context(), process.Selector{ID: id + "-on-exit"})
	return err == nil && proctest.Info(t, p).Exit != nil
}
