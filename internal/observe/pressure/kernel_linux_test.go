package pressure

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Of this machine, whatever it has.
func TestALookAtThisProcess(t *testing.T) {
	var s System
	g := proctest.Value(s.GroupOf(os.Getpid()))(t)
	got := s.Look(g, []int{os.Getpid()}, []string{t.TempDir(), "/no/such/directory"})
	if m := got.Memory; m.Limit <= 0 || m.Working <= 0 || m.Own <= 0 || m.Own > m.Limit {
		t.Errorf("memory is %+v", m)
	}
	if d := got.Descriptors; d.Used < 3 || d.Limit < d.Used {
		t.Errorf("descriptors are %+v", d)
	}
	if len(got.Disks) != 1 || got.Disks[0].Size <= 0 || got.Disks[0].Free > got.Disks[0].Size {
		t.Errorf("disks are %+v", got.Disks)
	}
}

func TestATriggerEndsWhenItIsClosed(t *testing.T) {
	var s System
	g := proctest.Value(s.GroupOf(os.Getpid()))(t)
	trigger := proctest.Value(s.Trigger(g))(t)
	done := make(chan error, 1)
	go func() {
		for {
			if err := trigger.Wait(); err != nil {
				done <- err
				return
			}
		}
	}()
	proctest.Must(t, trigger.Close())
	if err := <-done; err == nil {
		t.Error("it ended without a reason")
	}
	if _, err := (System{Root: t.TempDir()}).Trigger(g); err == nil {
		t.Error("a kernel that tells of no stalls has triggers")
	}
}
