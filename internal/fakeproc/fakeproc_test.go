//go:build linux

package fakeproc_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/fakeproc"
	"github.com/tend-run/tend/observe"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/process/processtest"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	processtest.Run(t, func(t *testing.T) process.Manager { return fakeproc.New(t) },
		processtest.Without(processtest.Orphans))
}

func TestProcessesEndWithTheTest(t *testing.T) {
	var leader int
	t.Run("a test that leaves a tree behind", func(t *testing.T) {
		p, err := fakeproc.New(t).Start(t.Context(), process.Spec{Shell: "setsid sleep 1000 & sleep 1000 & echo ready; wait", Dir: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if res, err := p.Wait(t.Context(), process.Until{Match: "ready"}); err != nil || !res.Met {
			t.Fatalf("wait: %+v, %v", res, err)
		}
		in, err := p.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leader = in.PID
	})
	if left := observe.Tree(leader); leader == 0 || len(left) > 0 {
		t.Errorf("of the tree of %d, %v are left after the test", leader, left)
	}
}

func TestAManagerIsOfNoUseAfterItsTest(t *testing.T) {
	var m process.Manager
	t.Run("the test", func(t *testing.T) { m = fakeproc.New(t) })
	if _, err := m.Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("got %v; want ErrUnavailable", err)
	}
}
