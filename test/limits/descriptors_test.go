//go:build linux

package limits

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Processes are started until no descriptors are left. The next start is refused
// with an error that says what to do. The processes can be killed, and then
// everything works as before.
func TestWithoutDescriptorsStartsAreRefusedAndAllElseGoesOn(t *testing.T) {
	for _, files := range []int{64, 96, 128} {
		t.Run(fmt.Sprintf("%d descriptors", files), func(t *testing.T) {
			d := serve(t, fmt.Sprintf("ulimit -n %d", files))
			same := d.sameRoles()
			all, refusal := d.startAll(t.Context(), files)
			if len(all) == 0 || refusal == nil {
				t.Fatalf("%d processes were started; then %v", len(all), refusal)
			}
			t.Logf("%d processes run", len(all))
			text := refusal.Error()
			if !strings.Contains(text, "end some") || strings.Contains(text, "\n") {
				t.Errorf("a refused start does not say, in one line, what to do: %q", text)
			}
			// Over HTTP, as long as one is refused: another may have fitted.
			for range files {
				res := proctest.Value(http.Post(d.URL+"/tend.v1.ProcessService/Start", "application/json", strings.NewReader(`{"spec":{"argv":["/bin/sleep","3600"]}}`)))(t)
				res.Body.Close()
				if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
					break
				}
				if res.StatusCode != http.StatusOK {
					t.Fatalf("a refused start is answered with %s", res.Status)
				}
			}
			live, err := d.c.List(t.Context(), process.Filter{Live: true})
			if err != nil || len(live) < len(all) {
				t.Errorf("List shows %d of %d, %v", len(live), len(all), err)
			}
			all = all[:0]
			for _, in := range live {
				p := proctest.Value(d.c.Get(t.Context(), process.Selector{ID: in.ID}))(t)
				all = append(all, p)
			}
			d.killAll(t.Context(), all)
			proctest.Eventually(t, "a start is possible again", func() bool {
				p, err := d.c.Start(t.Context(), process.Spec{Shell: "echo again"})
				if err != nil && !limited(err) {
					t.Fatal(err)
				}
				if err != nil {
					return false
				}
				res, err := p.Wait(t.Context(), process.Until{EOF: true})
				if err != nil || res.Exit == nil || res.Exit.Code != 0 || res.Streams[0].End != 6 {
					t.Fatalf("the process ended with %+v, %v", res, err)
				}
				return true
			})
			same()
		})
	}
}

func TestTooFewDescriptorsToServeAtAllAreReportedAtTheStart(t *testing.T) {
	for _, files := range []int{24, 63} {
		state := filepath.Join(t.TempDir(), "state")
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, files), "sh", bin, "serve", "--socket", "none", "--listen", "127.0.0.1:0", "--state-dir", state)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "ulimit -n") {
			t.Errorf("with %d descriptors: %v, %s", files, err, out)
		}
	}
}
