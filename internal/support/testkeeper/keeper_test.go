//go:build linux

package testkeeper_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProcessesEndWithTheTest(t *testing.T) {
	var leader int
	t.Run("a test that leaves a tree behind", func(t *testing.T) {
		p := proctest.Value(testkeeper.New(t).Start(t.Context(), process.Spec{Shell: "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo ready; wait", Dir: "/"}))(t)
		if res, err := p.Wait(t.Context(), process.Until{Match: "ready"}); err != nil || !res.Met {
			t.Fatalf("wait: %+v, %v", res, err)
		}
		in := proctest.Info(t, p)
		leader = in.PID
	})
	if left := observe.Tree(leader, 0); leader == 0 || len(left) > 0 {
		t.Errorf("of the tree of %d, %v are left after the test", leader, left)
	}
}

func TestAManagerIsOfNoUseAfterItsTest(t *testing.T) {
	var m process.Manager
	t.Run("the test", func(t *testing.T) { m = testkeeper.New(t) })
	if _, err := m.Start(t.Context(), process.Spec{Shell: "true"}); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("got %v; want ErrUnavailable", err)
	}
}
