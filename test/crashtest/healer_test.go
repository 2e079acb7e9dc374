//go:build linux

package crashtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// project is one that a playbook of its own can repair, with work of its user in it that is
// nobody else's.
type project struct {
	t    *testing.T
	at   place
	dir  string
	addr string
}

func (p *project) git(args ...string) string {
	p.t.Helper()
	out, err := p.at.git(p.dir, args)
	if err != nil {
		p.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

func (p *project) write(name, text string) {
	p.t.Helper()
	proctest.Must(p.t, p.at.write(filepath.Join(p.dir, name), text))
}

func (p *project) read(name string) string {
	text, err := p.at.read(filepath.Join(p.dir, name))
	if err != nil {
		return err.Error()
	}
	return text
}

// newProject makes a project whose part is good. mend is what its playbook runs.
func newProject(t *testing.T, mend string) *project {
	t.Helper()
	return newProjectAt(t, machine{}, proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t), mend)
}

func newProjectAt(t *testing.T, at place, dir, mend string) *project {
	t.Helper()
	p := &project{t: t, at: at, dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))}
	p.write("server.sh", "grep -q good part.txt || { echo 'the part is bad'; exit 1; }\nexec "+at.program()+"\n")
	p.write("mend.sh", mend)
	p.write("part.txt", "good\n")
	p.write("other.txt", "one\n")
	p.write("staged.txt", "one\n")
	p.write(".tend/playbooks/part.yaml", "why: the part is bad\nwhen: {log: the part is bad}\ncommit: true\ndo:\n  - run: [sh, mend.sh]\n")
	p.git("init", "-q", "-b", "main")
	p.git("add", "-A")
	p.git("commit", "-q", "-m", "base")
	p.write("other.txt", "one\ntwo, which the user is about to write\n")
	p.write("staged.txt", "one\ntwo, staged\n")
	p.git("add", "staged.txt")
	p.write("new.txt", "not tracked\n")
	return p
}

// spoil commits what the service cannot run with.
func (p *project) spoil() {
	p.t.Helper()
	p.write("part.txt", "bad\n")
	p.git("commit", "-q", "-m", "spoil", "part.txt")
}

// up declares the service and its healer, and starts it.
func (p *project) up(c *tend.Client, healer string) {
	p.t.Helper()
	text := fmt.Sprintf("services:\n  web: {command: [sh, server.sh], cwd: %[1]s, %[5]senv: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}, restart: {delay: 50ms, max_delay: 200ms, max: 100}}\nhealer: {root: %[1]s, hold: 500ms%[4]s}\n", p.dir, serveRole, p.addr, healer, p.at.keys())
	proctest.Must(p.t, c.ApplyServices(p.t.Context(), tend.ServiceFile{Dir: p.t.TempDir(), Text: []byte(text),
		Env: map[string]string{"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": modelKey}}))
	proctest.Must(p.t, c.StartServices(p.t.Context()))
}

// untouched fails if something of the user's is not as it was.
func (p *project) untouched() {
	p.t.Helper()
	for name, want := range map[string]string{"other.txt": "one\ntwo, which the user is about to write\n", "staged.txt": "one\ntwo, staged\n", "new.txt": "not tracked\n"} {
		if got := p.read(name); got != want {
			p.t.Errorf("the user's %s is %q", name, got)
		}
	}
	if got := p.git("diff", "--cached", "--name-only"); got != "staged.txt\n" {
		p.t.Errorf("the user's index has %q", got)
	}
	// A worker of another user has its program there while it ends (.tend/heal).
	got := ""
	defer func() {
		if p.t.Failed() {
			p.t.Logf("git status says\n%s", got)
		}
	}()
	proctest.Eventually(p.t, "git status says what the user has changed, and no more", func() bool {
		got = p.git("status", "--porcelain")
		return strings.Contains(got, " M other.txt\n") && strings.Contains(got, "M  staged.txt\n") && strings.Contains(got, "?? new.txt\n") && strings.Count(got, "\n") == 3
	})
	if refs := p.git("for-each-ref", "refs/tend"); refs != "" {
		p.t.Errorf("in the user's repository there is %s", refs)
	}
}

// repaired waits until the newest episode is over.
func repaired(t *testing.T, c *tend.Client) tend.EpisodeRecord {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		e, err := c.Episode(ctx, "")
		if err == nil && e.Over() {
			return e
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it is not repaired: %v; %+v", err, e.Episode)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// worker is the pid of the newest worker; 0: none lives.
func worker(t *testing.T, c *tend.Client) (pid int) {
	t.Helper()
	for _, in := range proctest.Value(c.List(t.Context(), process.Filter{Live: true}))(t) {
		if in.Spec.Labels["tend.heal.worker"] != "" && in.Exit == nil {
			pid = in.PID
		}
	}
	return pid
}

// A service that a playbook can repair is repaired, and only that is committed.
func TestAServiceIsRepaired(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "echo good > part.txt\n")
	p.spoil()
	p.up(c, "")
	e := repaired(t, c)
	if e.Status != tend.HealReady || len(e.Tries) != 1 || e.Tries[0].Name != "part" || e.Commit == "" {
		t.Fatalf("it is %+v", e.Episode)
	}
	service(t, c, "web", "ready", func(s tend.Service) bool { return isReady(s) && s.Healing == tend.HealReady })
	if got := p.git("show", "--stat", "--format=%an%n%B", "HEAD"); !strings.HasPrefix(got, "tend healer\n") || !strings.Contains(got, "Heal-Id: "+e.ID) || !strings.Contains(got, "part.txt") || !strings.Contains(got, "1 file changed") {
		t.Errorf("the commit is\n%s", got)
	}
	if !strings.Contains(string(e.Diff), "+good") {
		t.Errorf("the diff is %q", e.Diff)
	}
	p.untouched()
	proctest.Eventually(t, "no worker is left", func() bool { return worker(t, c) == 0 })
}

// What does not help is taken back, and the service is broken until somebody changes a
// file: then it is repaired once more.
func TestWhatDoesNotHelpIsTakenBack(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "echo worse > part.txt; echo x > left; rm mend.sh\n")
	p.spoil()
	p.up(c, "")
	e := repaired(t, c)
	if e.Status != tend.HealBroken || e.Dirty || len(e.Tries) != 1 || e.Tries[0].Failed == "" || e.Commit != "" {
		t.Fatalf("it is %+v", e.Episode)
	}
	if p.read("part.txt") != "bad\n" || p.read("left") == "x\n" || !strings.Contains(p.read("mend.sh"), "worse") {
		t.Errorf("the tree is not as it was: %q %q", p.read("part.txt"), p.read("left"))
	}
	p.untouched()
	service(t, c, "web", "broken", func(s tend.Service) bool { return s.Healing == tend.HealBroken })
	p.write("mend.sh", "echo good > part.txt\n")
	proctest.Eventually(t, "it is repaired after a change", func() bool {
		all := proctest.Value(c.Episodes(t.Context(), "web"))(t)
		return len(all) == 2 && all[0].Status == tend.HealReady
	})
}

// Whatever dies while a service is repaired, and whenever: it is repaired once, or what was
// tried is taken back, and the user's work is as it was.
func TestARepairOutlivesDeaths(t *testing.T) {
	t.Parallel()
	kill := func(pid int) {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for name, die := range map[string]func(t *testing.T, d *daemon, c *tend.Client){
		"the worker": func(t *testing.T, d *daemon, c *tend.Client) { kill(worker(t, c)) },
		"the server": func(t *testing.T, d *daemon, c *tend.Client) { kill(d.Roles()[testdaemon.Server]) },
		"the keeper": func(t *testing.T, d *daemon, c *tend.Client) { kill(d.Roles()[testdaemon.Keeper]) },
		"all of them": func(t *testing.T, d *daemon, c *tend.Client) {
			pid := worker(t, c)
			for role, one := range d.Roles() {
				if role != testdaemon.Launcher {
					kill(one)
				}
			}
			kill(pid)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			c := d.Connect(t)
			p := newProject(t, "echo good > part.txt; echo half > left; sleep 0.3; rm left\n")
			p.up(c, ", per_day: 1000")
			service(t, c, "web", "ready", isReady)
			seen := map[string]bool{}
			for round := range 4 { // a fifth in a row is refused
				p.spoil()
				head := p.git("rev-parse", "HEAD")
				before := len(proctest.Value(c.Episodes(t.Context(), ""))(t))
				proctest.Must(t, c.StopServices(t.Context()))
				service(t, c, "web", "idle", func(s tend.Service) bool { return s.Phase == tend.ServiceIdle })
				proctest.Must(t, c.StartServices(t.Context()))
				at := ""
				proctest.Eventually(t, "a repair has begun", func() bool {
					all := proctest.Value(c.Episodes(t.Context(), ""))(t)
					return len(all) > before
				})
				time.Sleep(time.Duration(round) * 400 * time.Millisecond) // another moment each time; none of them matters
				if e, err := c.Episode(t.Context(), ""); err == nil {
					at = e.Doing
				}
				seen[at] = true
				die(t, d, c)
				if !d.Settle(t.Context()) {
					t.Fatalf("not all roles came back: %v", d.Roles())
				}
				c = d.Connect(t)
				e := repaired(t, c)
				p.untouched()
				if e.Status != tend.HealReady {
					t.Fatalf("after a death at %s it is %+v", at, e.Episode)
				}
				if got := p.git("rev-list", "--count", strings.TrimSpace(head)+"..HEAD"); got != "1\n" || p.read("part.txt") != "good\n" || p.read("left") == "half\n" {
					t.Errorf("after a death at %s there are %s commits, the part is %q and %q is left", at, strings.TrimSpace(got), p.read("part.txt"), p.read("left"))
				}
				service(t, c, "web", "ready", isReady)
			}
			t.Logf("it died at %v", seen)
		})
	}
}

// A repair that somebody ends is taken back.
func TestARepairThatIsCancelledIsTakenBack(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "echo good > part.txt; touch acting; exec sleep 1000\n")
	p.spoil()
	p.up(c, "")
	proctest.Eventually(t, "it acts", func() bool { _, err := os.Stat(filepath.Join(p.dir, "acting")); return err == nil })
	proctest.Must(t, c.CancelHeal(t.Context(), ""))
	e := repaired(t, c)
	if e.Status != tend.HealBroken || !strings.Contains(e.Why, "stopped") || p.read("part.txt") != "bad\n" {
		t.Errorf("it is %+v, and the part is %q", e.Episode, p.read("part.txt"))
	}
	p.untouched()
	// The worker itself ends once it has left nothing else behind.
	proctest.Eventually(t, "nothing of the repair lives", func() bool {
		return !slices.ContainsFunc(proctest.Value(c.List(t.Context(), process.Filter{Live: true}))(t), func(in process.Info) bool { return in.Spec.Labels["tend.heal"] != "" })
	})
}

// What would be tried is said, and nothing is done.
func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	p := newProject(t, "echo good > part.txt\n")
	p.spoil()
	p.up(c, ", per_day: 1")
	repaired(t, c)
	p.spoil()
	proctest.Must(t, c.RestartServices(t.Context(), "web"))
	service(t, c, "web", "broken", func(s tend.Service) bool { return s.Healing == tend.HealBroken }) // per_day
	id := proctest.Value(c.Heal(t.Context(), "", true))(t)
	proctest.Eventually(t, "it is known what would be tried", func() bool {
		e := proctest.Value(c.Episode(t.Context(), id))(t)
		part := func(r tend.HealRemedy) bool { return r.Name == "part" }
		return e.Over() && slices.ContainsFunc(e.Remedies, part) && len(e.Tries) == 0 && e.DryRun
	})
	if p.read("part.txt") != "bad\n" {
		t.Error("it was repaired")
	}
	// It is over for who asks next, too, though its worker may still be ending.
	_, err := c.Heal(t.Context(), "", false)
	if err == nil || !strings.Contains(err.Error(), "per_day") {
		t.Errorf("beyond the bound of a day: %v", err)
	}
	if _, err := c.Heal(t.Context(), "other", false); err == nil || !strings.Contains(err.Error(), "the healer is for web") {
		t.Errorf("another service: %v", err)
	}
}
