//go:build linux

package client_test

import (
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestBriefInfoLeavesOutThatAProcessIsStopped(t *testing.T) {
	m, end := nextServer(t, testkeeper.Start(t), client.Config{})
	defer end()
	p := proctest.Start(t, m, process.Spec{Argv: []string{"sleep", "600"}})
	proctest.Must(t, p.Signal(t.Context(), int(syscall.SIGSTOP), process.ScopeLeader))
	proctest.Eventually(t, "it is stopped", func() bool {
		in, err := p.Info(t.Context())
		return err == nil && in.State == process.Stopped
	})
	in, err := p.Info(process.Brief(t.Context()))
	if err != nil || in.State != process.Running || in.PID == 0 || in.Exit != nil {
		t.Errorf("brief: %+v, %v", in, err)
	}
	proctest.Kill(t, p)
	proctest.Eventually(t, "its exit is told", func() bool {
		in, err := p.Info(process.Brief(t.Context()))
		return err == nil && in.Exit != nil && in.State == process.Exited
	})
}
