//go:build linux

package noise

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

// A repair has ten minutes. While it works the clock is set by an hour, ahead and back: it has
// the rest of them all the same. Once it is broken, a change of a file lets the next repair
// begin, whatever the clock says since.
func TestARepairOutlivesAClockThatIsSet(t *testing.T) {
	dir := proctest.Value(os.MkdirTemp("", "tend-noise-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &noisy{t: t}
	n.d = n.clock.daemon(t, dir)
	n.c = n.d.Connect(t)
	project := filepath.Join(dir, "project")
	at := func(name string) string { return filepath.Join(project, name) }
	write := func(name, text string) {
		t.Helper()
		proctest.Must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		proctest.Must(t, os.WriteFile(at(name), []byte(text), 0o644))
	}
	write(".tend/playbooks/mend.yaml", `why: it needs mending
when: {log: needs mending}
do: [run: [sh, -c, "touch begun; until test -e go; do sleep 0.05; done; mv go mended"]]
`)
	text := "services:\n  app: {command: 'test -e mended && exec sleep 1000; echo needs mending; exit 1', restart: {max: 1}}\nhealer: {data: [begun]}\n"
	proctest.Must(t, n.c.ApplyServices(t.Context(), tend.ServiceFile{Dir: project, Text: []byte(text)}))
	proctest.Must(t, n.c.StartServices(t.Context()))
	ended := func(count int) tend.Episode {
		t.Helper()
		var last tend.Episode
		proctest.Eventually(t, "a repair is over", func() bool {
			all := proctest.Value(n.c.Episodes(t.Context(), ""))(t)
			for _, e := range all {
				if !e.Opened.Before(last.Opened) {
					last = e
				}
			}
			return len(all) == count && last.Doing == "over"
		})
		return last
	}
	works := func() {
		t.Helper()
		proctest.Eventually(t, "a repair works", func() bool { return os.Remove(at("begun")) == nil })
	}
	works()
	n.clock.jump(time.Hour)
	write("go", "")
	if e := ended(1); e.Status != tend.HealReady {
		t.Errorf("over a jump ahead it is %s: %s", e.Status, e.Why)
	}
	n.until("app", "ready", func(s tend.Service) bool { return s.Ready })

	// It fails again, and there is no playbook for it.
	proctest.Must(t, os.Remove(at(".tend/playbooks/mend.yaml")))
	proctest.Must(t, os.Remove(at("mended")))
	proctest.Must(t, n.c.RestartServices(t.Context(), "app"))
	if e := ended(2); e.Status != tend.HealBroken {
		t.Errorf("without a playbook it is %s: %s", e.Status, e.Why)
	}
	n.clock.jump(0)
	write("mended", "")
	n.until("app", "ready", func(s tend.Service) bool { return s.Ready })
}
