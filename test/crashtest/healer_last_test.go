//go:build linux

package crashtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// A repair by a model that was well in a view and for a while, and whose fault comes back soon, is taken
// back, and nothing else is. Another fault is one of its own, and so is what comes back after a change of
// the person's.
func TestARepairThatDoesNotLastIsTakenBack(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	tool := func(name string, input any) any { return m{"tool": name, "input": input} }
	for name, c := range map[string]struct {
		says  string // it, when it fails again
		edits bool
		back  bool
	}{
		"the same fault":                  {"the part is bad", false, true},
		"another fault":                   {"no disk is left", false, false},
		"the same in what a person edits": {"the part is bad", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := model(t,
				m{"name": "mend", "expect": []string{"attempt 1 of 1"}, "reply": []any{
					tool("edit", m{"path": "part.txt", "content": "good\n"}), tool("restart", m{}),
				}},
				m{"name": "finish", "repeat": true, "reply": []any{tool("finish", m{"summary": "The part is good again."})}},
			)
			d := serve(t)
			client := d.Connect(t)
			p := newProject(t, "true\n")
			later := filepath.Join(t.TempDir(), "later")
			p.write("server.sh", fmt.Sprintf("[ -e %s ] && { echo '%s'; exit 1; }\n%s", later, c.says, p.read("server.sh")))
			p.write(".tend/playbooks/part.yaml", "disabled: true\n")
			p.git("commit", "-q", "--amend", "-m", "base", "server.sh", ".tend")
			p.spoil()
			p.up(client, ", attempts: 1, show: ["+filepath.Dir(proctest.Value(os.Executable())(t))+"], llm: {provider: anthropic, model: scripted, base_url: '"+url+"'}")
			first := repaired(t, client)
			if first.Status != tend.HealReady || p.read("part.txt") != "good\n" {
				t.Fatalf("it is %+v, %s", first.Episode, first.Transcript)
			}
			if c.edits {
				p.write("part.txt", "good\nmine\n")
			}
			proctest.Must(t, os.WriteFile(later, nil, 0o600))
			for _, in := range proctest.Value(client.List(t.Context(), process.Filter{Live: true, Labels: map[string]string{process.LabelService: "web"}}))(t) {
				_, _ = proctest.Value(client.Get(t.Context(), process.Selector{ID: in.ID}))(t).Kill(t.Context())
			}
			var next tend.EpisodeRecord
			proctest.Eventually(t, "another episode is over", func() bool { next = repaired(t, client); return next.ID != first.ID })
			if back := strings.Contains(next.Why, "has not lasted"); next.Status != tend.HealBroken || back != c.back || next.Dirty {
				t.Fatalf("it is %+v", next.Episode)
			}
			log := p.git("log", "--format=%s")
			if c.back {
				if got := p.read("part.txt"); got != "bad\n" || !strings.HasPrefix(log, "Take back the repair of web\nThe part is good again.\n") {
					t.Errorf("the part is %q, and the log\n%s", got, log)
				}
				if was := over(t, client, first.ID); was.TakenBack != next.ID {
					t.Errorf("the first is %+v", was.Episode)
				}
				p.untouched()
				return
			}
			if strings.Contains(log, "Take back") || !strings.HasPrefix(p.read("part.txt"), "good\n") {
				t.Errorf("the part is %q, and the log\n%s", p.read("part.txt"), log)
			}
		})
	}
}
