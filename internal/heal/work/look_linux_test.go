package work

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// Somebody asks for a repair of a service that has only just begun, and has not said yet
// what is wrong: what it says then is what the remedies are for.
func TestWhatIsWrongIsAwaitedWhereAServiceHasJustBegun(t *testing.T) {
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}, Dir: t.TempDir()})
	c := d.Connect(t)
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	proctest.Must(t, os.MkdirAll(filepath.Join(root, ".tend/playbooks"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(root, ".tend/playbooks/part.yaml"), []byte("why: the part is bad\nwhen: {log: the part is bad}\ndo:\n  - run: [sh, mend.sh]\n"), 0o644))
	text := "services:\n  web: {command: [sh, -c, 'sleep 1; echo the part is bad; exit 1'], readiness: {exec: [\"false\"], start: 1m}, restart: {delay: 1m, max_delay: 1m, max: 100}}\n"
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: root, Text: []byte(text)}))
	proctest.Must(t, c.StartServices(t.Context()))
	w := &worker{client: c, there: c, order: &healer.Order{
		Dir: t.TempDir(), StateDir: d.StateDir(), Service: "web", Signal: healer.Signal{Kind: "asked"}, Rules: &config.Service{Name: "web", Cwd: root}, Healer: &config.Healer{Root: root},
	}}
	p, _, err := w.openProject(t.Context())
	proctest.Must(t, err)
	defer p.Close()
	w.project = p
	proctest.Eventually(t, "it is being started", func() bool { return proctest.Value(w.service(t.Context()))(t).Phase.Alive() })
	out, err := w.look(t.Context())
	proctest.Must(t, err)
	if !slices.ContainsFunc(out.Remedies, func(r healer.Remedy) bool { return r.Kind == healer.Book && r.Name == "part" }) {
		t.Errorf("it would try %+v, after %q", out.Remedies, out.Text)
	}
}

// A person asks for a repair of a service that has failed: what playbooks say of its exit is
// tried, as if the supervisor had reported it.
func TestARepairThatIsAskedForKnowsTheFault(t *testing.T) {
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}, Dir: t.TempDir()})
	c := d.Connect(t)
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	holder := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer holder.Close()
	at := holder.Addr().String()
	text := "services:\n  web: {command: [sh, -c, \"echo 'Error: listen EADDRINUSE: address already in use " + at + "' >&2; exit 1\"], health: {tcp: \"" + at + "\"}, restart: never}\n"
	proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: root, Text: []byte(text)}))
	proctest.Must(t, c.StartServices(t.Context()))
	w := &worker{client: c, there: c, order: &healer.Order{
		Dir: t.TempDir(), StateDir: d.StateDir(), Service: "web", Signal: healer.Signal{Kind: "asked"}, Rules: &config.Service{Name: "web", Cwd: root, Health: &config.Probe{TCP: config.Address(at)}}, Healer: &config.Healer{Root: root},
	}}
	p, _, err := w.openProject(t.Context())
	proctest.Must(t, err)
	defer p.Close()
	w.project = p
	proctest.Eventually(t, "it has failed", func() bool { return proctest.Value(w.service(t.Context()))(t).Phase == tend.ServiceFailed })
	out, err := w.look(t.Context())
	proctest.Must(t, err)
	if len(out.Remedies) == 0 || out.Remedies[0].Kind != healer.Book || out.Remedies[0].Name != "port-in-use" {
		t.Errorf("it would try %+v, after %q", out.Remedies, out.Text)
	}
}
