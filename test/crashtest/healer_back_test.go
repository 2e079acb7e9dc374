//go:build linux

package crashtest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// over waits until an episode is over.
func over(t *testing.T, c *tend.Client, id string) (e tend.EpisodeRecord) {
	t.Helper()
	proctest.Eventually(t, "the episode "+id+" is over", func() bool {
		var err error
		e, err = c.Episode(t.Context(), id)
		return err == nil && e.Over()
	})
	return e
}

// kill kills a process, if there is one.
func kill(pid int) {
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// death is who dies in a round of a test that takes something back, of which a worker is at work.
type death struct {
	name string
	die  func(worker int) // nil: nobody dies
}

// deathsOf are those of a daemon and the worker.
func deathsOf(d *daemon) []death {
	return []death{
		{"nobody", nil},
		{"the worker", kill},
		{"the server", func(int) { kill(d.Roles()[testdaemon.Server]) }},
		{"all of them", func(worker int) {
			for role, pid := range d.Roles() {
				if role != testdaemon.Launcher {
					kill(pid)
				}
			}
			kill(worker)
		}},
	}
}

// takenBack takes back a repair or a turn, while somebody dies, and returns the episode that did.
func takenBack(t *testing.T, d *daemon, c *tend.Client, name string, death death) (back tend.EpisodeRecord) {
	t.Helper()
	meanwhile, end := context.WithCancel(t.Context())
	died := make(chan string, 1)
	go func() {
		at := "after its end" // then the round is as the first one
		defer func() { died <- at }()
		for death.die != nil && backoff.Wait(meanwhile, 10*time.Millisecond) {
			if pid := workerOf(meanwhile, c); pid > 0 {
				at = "while a worker lived"
				death.die(pid)
				return
			}
		}
	}()
	id, err := c.RollBack(t.Context(), name)
	if err == nil {
		over(t, c, id)
	}
	end()
	t.Logf("the death of %s came %s", death.name, <-died)
	if !d.Settle(t.Context()) {
		t.Fatalf("not all roles came back: %v", d.Roles())
	}
	if err != nil { // the connection broke for longer than it is repeated
		id, err = c.RollBack(t.Context(), name)
	}
	proctest.Must(t, err)
	return over(t, c, id)
}

// A repair that somebody takes back is taken back once, whoever dies meanwhile, with nothing
// of the user's work touched; it is not made again by itself, and made again when it is
// asked for.
func TestTakingBackOutlivesDeaths(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "echo good > part.txt; echo fixed > added.txt\n")
	p.spoil()
	p.up(c, ", per_day: 1000")
	e := repaired(t, c)
	for _, round := range deathsOf(d) {
		if e.Status != tend.HealReady || e.Commit == "" || !e.CanRollBack || e.TakenBack != "" {
			t.Fatalf("before %s: it is %+v", round.name, e.Episode)
		}
		head := strings.TrimSpace(p.git("rev-parse", "HEAD"))
		back := takenBack(t, d, c, e.ID, round)
		id := back.ID
		if back.Status != tend.HealReady || back.TakesBack != e.ID || len(back.Left) > 0 || len(back.Tries) != 1 || strings.Join(back.Tries[0].Paths, " ") != "added.txt part.txt" {
			t.Fatalf("after the death of %s it is %+v", round.name, back.Episode)
		}
		if got := p.git("log", "-1", "--format=%H|%P|%an|%B"); got != back.Commit+"|"+head+"|tend healer|Take back the repair of web\n\nIt was made by "+e.ID+", in the commit "+e.Commit+".\n\nHeal-Id: "+e.ID+"\nTend-Rollback: "+id+"\n\n" {
			t.Errorf("the commit is %q", got)
		}
		if _, err := p.at.read(p.dir + "/added.txt"); p.read("part.txt") != "bad\n" || err == nil {
			t.Errorf("the part is %q, and %v", p.read("part.txt"), err)
		}
		p.untouched()
		if again, err := c.RollBack(t.Context(), e.ID); again != id || err != nil {
			t.Errorf("again it is %q, %v; want %s", again, err, id)
		}
		if now := proctest.Value(c.Episode(t.Context(), e.ID))(t); now.TakenBack != id {
			t.Errorf("it is %+v", now.Episode)
		}
		service(t, c, "web", "broken, and not repaired by itself", func(s tend.Service) bool { return s.Healing == tend.HealBroken })
		e = over(t, c, proctest.Value(c.Heal(t.Context(), "", false))(t))
	}
	// What has changed since is named, and nothing is done.
	p.write("part.txt", "good, and better\n")
	head := p.git("rev-parse", "HEAD")
	_, err := c.RollBack(t.Context(), e.ID)
	var changed *tend.ChangedError
	if !errors.As(err, &changed) || strings.Join(changed.Paths, " ") != "part.txt" || !strings.Contains(err.Error(), "part.txt: it has changed since, and that is not committed") {
		t.Errorf("it is %v: %+v", err, changed)
	}
	if p.read("part.txt") != "good, and better\n" || p.read("added.txt") != "fixed\n" || p.git("rev-parse", "HEAD") != head {
		t.Error("something was done")
	}
}

// workerOf is the pid of a worker; 0: none is known.
func workerOf(ctx context.Context, c *tend.Client) int {
	all, err := c.List(ctx, process.Filter{Live: true})
	if err != nil {
		return 0
	}
	for _, in := range all {
		if in.Spec.Labels["tend.heal.worker"] != "" && in.Exit == nil {
			return in.PID
		}
	}
	return 0
}

// What a repair has changed is compared with what was before it while it is not known yet
// whether it helps, and afterwards, until it is taken back.
func TestAFileIsComparedWithWhatItWasBeforeARepair(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "true\n")
	wait := t.TempDir() + "/go"
	p.write("mend.sh", "echo good > part.txt; (echo 'until [ -e "+wait+" ]; do sleep 0.1; done'; cat server.sh) > new.sh; mv new.sh server.sh\n")
	p.git("commit", "-q", "-m", "mend", "mend.sh")
	p.spoil()
	f := tendv1connect.NewFileServiceClient(http.DefaultClient, d.URL)
	before := func() *tendv1.FileBeforeResponse {
		out, err := f.FileBefore(t.Context(), connect.NewRequest(&tendv1.FileBeforeRequest{Path: p.dir + "/part.txt"}))
		if err != nil {
			t.Log(err) // the server may be away
			return &tendv1.FileBeforeResponse{}
		}
		return out.Msg
	}
	if got := before(); got.GetChangedBy() != "" {
		t.Errorf("before a repair it is %v", got)
	}
	p.up(c, "")
	proctest.Eventually(t, "what is tried is compared", func() bool { return before().GetChangedBy() != "" })
	tried := before()
	if all := proctest.Value(c.Episodes(t.Context(), "web"))(t); len(all) != 1 || all[0].Over() || tried.GetChangedBy() != all[0].ID || string(tried.GetContent()) != "bad\n" {
		t.Errorf("it is %v of %+v", tried, all)
	}
	proctest.Must(t, os.WriteFile(wait, nil, 0o600))
	e := repaired(t, c)
	if got := before(); e.Status != tend.HealReady || e.Commit == "" || got.GetChangedBy() != e.ID || string(got.GetContent()) != "bad\n" || got.GetService() != "web" {
		t.Errorf("afterwards it is %v of %+v", got, e.Episode)
	}
	live := proctest.Value(filepath.Glob(d.StateDir() + "/healing/episodes/*/live.json"))(t)
	if len(live) > 0 {
		t.Errorf("of what was tried there is %v", live)
	}
	if back := over(t, c, proctest.Value(c.RollBack(t.Context(), e.ID))(t)); back.Status != tend.HealReady {
		t.Errorf("it is taken back with %+v", back.Episode)
	}
	// The list of episodes that is asked is read again a moment after its last line.
	proctest.Eventually(t, "what is taken back is compared no more", func() bool { return before().GetChangedBy() == "" })
}
