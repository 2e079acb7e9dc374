package work

import (
	"fmt"
	"testing"

	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestAServiceIsTriedWithWhatItNeeds: it has a port of where it runs, of the machine or of its sandbox, if that
// is to be passed.
func TestAServiceIsTriedWithWhatItNeeds(t *testing.T) {
	for _, name := range []string{"root", "a user of a sandbox"} {
		t.Run(name, func(t *testing.T) {
			g := newGroundOf(t, users[name])
			port := fmt.Sprint(proctest.FreePort(t))
			proctest.Value(g.w.there.Start(t.Context(), process.Spec{
				Argv: []string{"python3", "-m", "http.server", "--bind", "127.0.0.1", port}, Dir: "/usr"}))(t)
			rules := g.w.order.Rules
			rules.Env = map[string]string{"PATH": insidePath}
			rules.Command.Argv = []string{"python3", "-c", `import sys, time, urllib.request
for left in range(300, -1, -1):
    try:
        urllib.request.urlopen("http://127.0.0.1:%s/" % sys.argv[1], timeout=60).read()
        break
    except OSError as e:
        if not left or sys.argv[2] == "once": sys.exit("no database: %s" % e)
        time.sleep(0.1)
print("it has one", flush=True)
time.sleep(1000)`, port, "once"}
			rules.Startup = &config.Probe{Log: "^it has one"}
			for _, pass := range [][]string{nil, {"127.0.0.1:" + port}} {
				if g.w.order.Healer.Pass = pass; pass != nil {
					rules.Command.Argv[4] = "until it answers"
				}
				g.w.view = nil
				v, _, err := g.w.openView(t.Context())
				proctest.Must(t, err)
				out := proctest.Value(g.w.prove(t.Context(), v, &view.Set{}, false))(t)
				if out.Well != (pass != nil) {
					t.Errorf("with %q: %+v", pass, out)
				}
				proctest.Must(t, v.Close(t.Context()))
			}
		})
	}
}
