//go:build linux

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// place is where a project and its service are.
type place interface {
	git(dir string, args []string) (string, error)
	write(path, text string) error
	read(path string) (string, error)
	program() string // of this test, as it is found there
	keys() string    // of the service, each with a comma behind it
}

var gitEnv = []string{
	"HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=dev", "GIT_AUTHOR_EMAIL=dev@example.org", "GIT_COMMITTER_NAME=dev", "GIT_COMMITTER_EMAIL=dev@example.org",
}

// machine is this machine, with a user who owns all.
type machine struct {
	uid  int
	exec string // a copy of this program that the user can run
}

func (m machine) git(dir string, args []string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), gitEnv...)
	if m.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(m.uid), Gid: uint32(m.uid)}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m machine) write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	err := os.WriteFile(path, []byte(text), 0o644)
	for at := path; m.uid != 0 && at != filepath.Dir(m.exec) && at != "/"; at = filepath.Dir(at) {
		err = errors.Join(err, os.Lchown(at, m.uid, m.uid))
	}
	return err
}

func (m machine) read(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(data), err
}

func (m machine) program() string {
	if m.exec != "" {
		return m.exec
	}
	return self
}

func (m machine) keys() string {
	if m.uid == 0 {
		return ""
	}
	return fmt.Sprintf("user: '%d', ", m.uid)
}

// inside is a sandbox.
type inside struct{ sandbox *tend.Sandbox }

func (s inside) git(dir string, args []string) (string, error) {
	cmd := tend.Command("git", args...)
	cmd.Dir, cmd.Env = dir, map[string]string{}
	for _, e := range gitEnv {
		name, value, _ := strings.Cut(e, "=")
		cmd.Env[name] = value
	}
	res, err := s.sandbox.Processes().Run(context.Background(), cmd)
	if err == nil && (res.Exit.Code != 0 || res.Exit.Signal != 0) {
		err = errors.New(res.Exit.String() + ": " + res.Stderr)
	}
	return res.Stdout, err
}

func (s inside) write(path, text string) error {
	return s.sandbox.Files().WriteFile(context.Background(), path, []byte(text))
}

func (s inside) read(path string) (string, error) {
	data, err := s.sandbox.Files().ReadFile(context.Background(), path)
	return string(data), err
}

func (s inside) program() string { return self }
func (s inside) keys() string    { return "sandbox: home, " }

// elsewhere are the places of a daemon beside its own user's, with a directory for a project;
// none: there can be none here.
var elsewhere = map[string]func(t *testing.T, c *tend.Client) (place, string){
	"another user": func(t *testing.T, _ *tend.Client) (place, string) {
		if os.Geteuid() != 0 {
			return nil, ""
		}
		base := proctest.Value(os.MkdirTemp("", "tend-heal-"))(t)
		t.Cleanup(func() { os.RemoveAll(base) })
		proctest.Must(t, os.Chmod(base, 0o755))
		m := machine{uid: 65534, exec: filepath.Join(base, "program")}
		proctest.Must(t, os.Chown(base, m.uid, m.uid))
		proctest.Must(t, os.WriteFile(m.exec, proctest.Value(os.ReadFile(self))(t), 0o755))
		return m, filepath.Join(proctest.Value(filepath.EvalSymlinks(base))(t), "app")
	},
	"a sandbox": func(t *testing.T, c *tend.Client) (place, string) {
		sandbox, err := c.CreateSandbox(t.Context(), tend.SandboxSpec{
			Name: "home", Isolation: tend.IsolationFull, Shares: []tend.SandboxShare{{Source: filepath.Dir(self), ReadOnly: true}},
		})
		if errors.Is(err, process.ErrUnsupported) {
			return nil, ""
		}
		proctest.Must(t, err)
		return inside{sandbox}, "/srv/app"
	},
}

// everywhere runs a test in each of them.
func everywhere(t *testing.T, test func(t *testing.T, d *daemon, c *tend.Client, at place, dir string)) {
	t.Parallel()
	for name, make := range elsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			c := d.Connect(t)
			if at, dir := make(t, c); at != nil {
				test(t, d, c, at, dir)
			}
		})
	}
}

// noTrace fails if something of a repair is left in the project.
func (p *project) noTrace() {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			out, err := p.at.git(p.dir, []string{"-c", "alias.x=!find " + p.dir + "/.tend -ls; cat /proc/locks", "-c", "core.fsmonitor=false", "x"})
			p.t.Logf("of the healer there are, with all locks:\n%s%v", out, err)
		}
	}()
	proctest.Eventually(p.t, "nothing of the repair is left in the project", func() bool {
		_, err := p.at.read(filepath.Join(p.dir, ".tend/heal/lock"))
		return err != nil
	})
}

// A service of another user, and one in a sandbox, are repaired where they are, with the rights
// that they have there: by a playbook, with a commit of it alone, or not at all, and then all
// is as it was. Nothing that the repository names is run.
func TestAServiceIsRepairedWhereItIs(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *daemon, c *tend.Client, at place, dir string) {
		p := newProjectAt(t, at, dir, "id -u > who; echo good > part.txt; cat who; rm who\n")
		p.git("config", "core.fsmonitor", "touch "+dir+"/pwned; id -u >> "+dir+"/pwned;")
		p.git("config", "filter.x.clean", "touch "+dir+"/pwned; cat")
		p.write(".git/info/attributes", "new.txt filter=x\n")
		p.spoil()
		for _, hook := range []string{"pre-commit", "post-commit", "post-index-change", "reference-transaction"} {
			p.write(".git/hooks/"+hook, "#!/bin/sh\ntouch "+dir+"/pwned\n")
			p.chmod(".git/hooks/"+hook, "755")
		}
		p.remove("pwned") // by git of the user
		p.up(c, "")
		e := repaired(t, c)
		if e.Status != tend.HealReady || len(e.Tries) != 1 || e.Tries[0].Name != "part" || e.Commit == "" || !strings.Contains(string(e.Diff), "+good") {
			t.Fatalf("it is %+v\n%s", e.Episode, e.Diff)
		}
		if text, err := at.read(filepath.Join(dir, "pwned")); err == nil {
			t.Errorf("a program of the repository was run: %q", text)
		}
		for _, hook := range []string{"pre-commit", "post-commit", "post-index-change", "reference-transaction"} {
			p.remove(".git/hooks/" + hook)
		}
		p.git("config", "--unset", "core.fsmonitor")
		p.git("config", "--unset", "filter.x.clean")
		if got := p.git("show", "--stat", "--format=%an", "HEAD"); !strings.HasPrefix(got, "tend healer\n") || !strings.Contains(got, "part.txt") || !strings.Contains(got, "1 file changed") {
			t.Errorf("the commit is\n%s", got)
		}
		p.remove("pwned")
		p.untouched()
		p.noTrace()
		if m, ok := at.(machine); ok {
			m.owns(t, dir)
		}
		if s, ok := at.(inside); ok {
			if b := proctest.Value(s.sandbox.Files().Before(t.Context(), filepath.Join(dir, "part.txt")))(t); b.ChangedBy != e.ID || !b.Existed || string(b.Content) != "bad\n" || b.Service != "web" || b.At.IsZero() {
				t.Errorf("before the repair the file was %+v", b)
			}
			if b := proctest.Value(s.sandbox.Files().Before(t.Context(), filepath.Join(dir, "other.txt")))(t); b.ChangedBy != "" || b.Content != nil {
				t.Errorf("another file was %+v", b)
			}
		}
		// What does not help is taken back, also if it made what only root may remove, or
		// leads out of the project.
		p.write("mend.sh", "echo worse > part.txt; echo x > left; rm -f other.txt; ln -s /etc/passwd other.txt; mkfifo pipe; rm mend.sh\n")
		p.git("add", "mend.sh")
		p.git("commit", "-q", "-m", "worse", "mend.sh")
		p.spoil()
		proctest.Must(t, c.RestartServices(t.Context(), "web"))
		proctest.Eventually(t, "it was given up", func() bool {
			all := proctest.Value(c.Episodes(t.Context(), "web"))(t)
			return len(all) == 2 && all[0].Over()
		})
		if e = repaired(t, c); e.Status != tend.HealBroken || e.Dirty || e.Commit != "" {
			t.Fatalf("it is %+v", e.Episode)
		}
		if p.read("part.txt") != "bad\n" || p.read("left") == "x\n" || !strings.Contains(p.read("mend.sh"), "worse") {
			t.Errorf("the tree is not as it was: %q %q", p.read("part.txt"), p.read("left"))
		}
		p.untouched()
		// A change of a file there, by its user, has it tried again.
		p.write("mend.sh", "echo good > part.txt\n")
		proctest.Eventually(t, "it is repaired after a change", func() bool {
			all := proctest.Value(c.Episodes(t.Context(), "web"))(t)
			return len(all) == 3 && all[0].Status == tend.HealReady
		})
		// It is taken back there, too, with nothing of the repository run, and as the user.
		e = repaired(t, c)
		p.git("config", "core.fsmonitor", "touch "+dir+"/pwned;")
		p.write(".git/hooks/reference-transaction", "#!/bin/sh\ntouch "+dir+"/pwned\n")
		p.chmod(".git/hooks/reference-transaction", "755")
		p.remove("pwned")
		back := over(t, c, proctest.Value(c.RollBack(t.Context(), e.ID))(t))
		if back.Status != tend.HealReady || back.Commit == "" || len(back.Left) > 0 || p.read("part.txt") != "bad\n" {
			t.Fatalf("it is %+v, and the part is %q", back.Episode, p.read("part.txt"))
		}
		if text, err := at.read(filepath.Join(dir, "pwned")); err == nil {
			t.Errorf("a program of the repository was run: %q", text)
		}
		p.remove(".git/hooks/reference-transaction")
		p.git("config", "--unset", "core.fsmonitor")
		if got := p.git("log", "-1", "--format=%an %P"); got != "tend healer "+e.Commit+"\n" {
			t.Errorf("the commit is %q; the repair was %s", got, e.Commit)
		}
		p.noTrace()
		if m, ok := at.(machine); ok {
			m.owns(t, dir)
		}
	})
}

// owns fails if something below a directory is not the user's.
func (m machine) owns(t *testing.T, dir string) {
	t.Helper()
	proctest.Must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if info, ierr := os.Lstat(path); err == nil && ierr == nil && int(info.Sys().(*syscall.Stat_t).Uid) != m.uid {
			t.Errorf("%s is not the user's", path)
		}
		return err
	}))
}

func (p *project) chmod(name, mode string) {
	p.t.Helper()
	p.sh("chmod " + mode + " " + name)
}

func (p *project) remove(name string) {
	p.t.Helper()
	p.sh("rm -rf " + name)
}

// sh runs a line in the project.
func (p *project) sh(line string) {
	p.t.Helper()
	if out, err := p.at.git(p.dir, []string{"-c", "alias.x=!cd " + p.dir + " && " + line, "-c", "core.fsmonitor=false", "x"}); err != nil {
		p.t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// What dies while such a service is repaired, and at whatever step: it is repaired once, or
// what was tried is taken back, and the user's work is as it was.
func TestARepairWhereItIsOutlivesDeaths(t *testing.T) {
	t.Parallel()
	for name, make := range elsewhere {
		for _, c := range []struct {
			dies  string
			steps []healer.Action
		}{
			{"the worker", []healer.Action{healer.Look, healer.Checkpoint, healer.Act, healer.Verify, healer.Review, healer.Commit}},
			{"the hands", []healer.Action{healer.Act, healer.Verify}},
			{"all", []healer.Action{healer.Act}},
		} {
			for _, step := range c.steps {
				t.Run(name+"/"+c.dies+"/"+step.String(), func(t *testing.T) {
					t.Parallel()
					for try := 1; ; try++ {
						d := serve(t)
						cl := d.Connect(t)
						at, dir := make(t, cl)
						if at == nil {
							return
						}
						p := newProjectAt(t, at, dir, "echo good > part.txt; echo half > left; sleep 0.3; rm left\n")
						p.spoil()
						p.up(cl, "")
						died := false
						if c.dies == "the worker" {
							died = killAt(t, d, cl, step)
						} else {
							died = reaches(t, d, step)
							dying := handsOf(t, cl, at)
							if c.dies == "all" {
								for role, pid := range d.Roles() {
									if role != testdaemon.Launcher {
										_ = syscall.Kill(pid, syscall.SIGKILL)
									}
								}
							}
							for _, pid := range dying {
								_ = syscall.Kill(pid, syscall.SIGKILL)
							}
							if !d.Settle(t.Context()) {
								t.Fatalf("not all roles came back: %v", d.Roles())
							}
							cl = d.Connect(t)
						}
						e := repaired(t, cl)
						if s, ok := at.(inside); ok {
							p.at = inside{proctest.Value(cl.Sandbox(t.Context(), proctest.Value(s.sandbox.ID(t.Context()))(t)))(t)}
						}
						p.untouched()
						got := strings.TrimSpace(p.git("rev-list", "--count", "HEAD")) + " " + p.read("part.txt")
						if e.Status != tend.HealReady || e.Dirty || got != "3 good\n" || p.read("left") == "half\n" {
							t.Fatalf("it is %+v, with %q", e.Episode, got)
						}
						if step != healer.Act { // else copies are kept of what nobody can say whose it is
							p.noTrace()
						}
						if died {
							return
						}
						if try == 5 { // some steps take milliseconds
							t.Fatal("it was never met at this step")
						}
					}
				})
			}
		}
	}
}

// handsOf are the processes that work on a project where it is.
func handsOf(t *testing.T, c *tend.Client, at place) (pids []int) {
	t.Helper()
	if s, ok := at.(inside); ok {
		for _, in := range proctest.Value(s.sandbox.Processes().List(t.Context()))(t) {
			if in.Spec.Name != "heal-project" {
				continue
			}
			for _, pid := range proctest.Value(procfs.PIDs())(t) { // in.PID is the one inside
				if exe, err := os.Readlink(procfs.Path(pid, "exe")); err == nil && strings.Contains(exe, "/.tend/heal/"+in.Spec.Labels["tend.heal"]+"/") && procfs.InnerPID(pid) == in.PID {
					pids = append(pids, pid)
				}
			}
		}
		return pids
	}
	pid := worker(t, c)
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)) // it may be over
	for _, one := range strings.Fields(string(data)) {
		if n, err := strconv.Atoi(one); err == nil && pid > 0 {
			pids = append(pids, n)
		}
	}
	return pids
}

// reaches waits until a repair is at a step; false: it is over.
func reaches(t *testing.T, d *daemon, step healer.Action) bool {
	t.Helper()
	r := repairs{d: d}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		if s := r.look(); s.Done() {
			return false
		} else if s.Doing == step {
			return true
		}
	}
	t.Fatal("no repair has begun")
	return false
}

// While its sandbox is paused or stopped a repair waits, also for another worker; it continues
// once the sandbox does, and ends with a sandbox that is removed. The next one of that name has
// nothing to do with it.
func TestARepairWaitsForItsSandbox(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	at, dir := elsewhere["a sandbox"](t, c)
	if at == nil {
		return
	}
	sandbox := at.(inside).sandbox
	p := newProjectAt(t, at, dir, "echo half > left; touch /tmp/acting; until [ -e /tmp/go ]; do sleep 0.05; done; echo good > part.txt; rm left\n")
	p.up(c, ", per_day: 1000")
	service(t, c, "web", "ready", isReady)
	begin := func() {
		t.Helper()
		before := len(proctest.Value(c.Episodes(t.Context(), ""))(t))
		p.sh("rm -f /tmp/acting /tmp/go")
		p.spoil()
		proctest.Must(t, c.RestartServices(t.Context(), "web"))
		proctest.Eventually(t, "it acts", func() bool {
			_, err := p.at.read("/tmp/acting")
			return err == nil && len(proctest.Value(c.Episodes(t.Context(), ""))(t)) > before
		})
	}
	waits := func(what string) {
		t.Helper()
		time.Sleep(3 * time.Second) // in which one that does not wait would end
		if e := proctest.Value(c.Episode(t.Context(), ""))(t); e.Over() {
			t.Fatalf("%s: it is over: %+v", what, e.Episode)
		}
	}
	for _, what := range []string{"paused", "paused, and its worker dies", "stopped"} {
		begin()
		switch what {
		case "stopped":
			proctest.Must(t, sandbox.Stop(t.Context()))
		case "paused":
			proctest.Must(t, sandbox.Pause(t.Context()))
		default:
			proctest.Must(t, sandbox.Pause(t.Context()))
			_ = syscall.Kill(worker(t, c), syscall.SIGKILL)
		}
		waits(what)
		proctest.Must(t, sandbox.Start(t.Context()))
		p.sh("touch /tmp/go")
		e := repaired(t, c)
		if e.Status != tend.HealReady || e.Dirty || p.read("part.txt") != "good\n" || p.read("left") == "half\n" {
			t.Fatalf("%s: it is %+v, and the part %q", what, e.Episode, p.read("part.txt"))
		}
		p.untouched()
		service(t, c, "web", "ready", isReady)
	}
	helped := repaired(t, c).ID
	begin()
	proctest.Must(t, sandbox.Destroy(t.Context()))
	if e := repaired(t, c); e.Status != tend.HealBroken || e.Dirty || !strings.Contains(e.Why, "its sandbox home is not there any more") {
		t.Errorf("removed: it is %+v", e.Episode)
	}
	proctest.Must(t, c.StopServices(t.Context()))
	at, _ = elsewhere["a sandbox"](t, c)
	part := filepath.Join(dir, "part.txt")
	proctest.Must(t, at.write(part, "good\n"))
	if b := proctest.Value(at.(inside).sandbox.Files().Before(t.Context(), part))(t); b.ChangedBy != "" || b.Content != nil {
		t.Errorf("in the next sandbox of that name, before a repair of the one before the file was %+v", b)
	}
	if _, err := c.RollBack(t.Context(), helped); err == nil || !strings.Contains(err.Error(), "its sandbox home is not there any more") {
		t.Errorf("in the next sandbox of that name a repair is taken back: %v", err)
	}
	if text, err := at.read(part); text != "good\n" {
		t.Errorf("in the next sandbox of that name the part is %q, %v", text, err)
	}
}

// A model repairs a service where it is, under the guards: no link leads it out of the project,
// no secret is shown, and what it changes is committed as the user's.
func TestAModelRepairsAServiceWhereItIs(t *testing.T) {
	everywhere(t, func(t *testing.T, _ *daemon, c *tend.Client, at place, dir string) {
		tool := func(name string, input any) any { return map[string]any{"tool": name, "input": input} }
		type m = map[string]any
		const hidden = "canary-of-the-project-77b1"
		url := model(t,
			m{"name": "look", "expect": []string{"attempt 1 of 1"}, "forbid": []string{hidden}, "reply": []any{
				tool("edit", m{"path": "out/gone", "content": "x"}), tool("read", m{"path": "out/secret"}), tool("read", m{"path": ".env"}), tool("read", m{"path": "pipe"}),
				tool("edit", m{"path": ".git/config", "content": "x"}), tool("exec", m{"command": "id -u; cat .env; echo x > made; rm -f new.txt"}),
			}},
			m{"name": "mend", "expect": []string{"[exit 0]"}, "forbid": []string{hidden, "of the machine"}, "reply": []any{tool("edit", m{"path": "part.txt", "content": "good\n"}), tool("restart", m{})}},
			m{"name": "finish", "repeat": true, "forbid": []string{hidden}, "reply": []any{tool("finish", m{"summary": "The part is good again."})}},
		)
		p := newProjectAt(t, at, dir, "true\n")
		p.sh("mkdir -p " + dir + "-out && echo of the machine > " + dir + "-out/secret && ln -s ../" + filepath.Base(dir) + "-out out && mkfifo pipe && chmod 4755 mend.sh")
		p.write(".env", "API_TOKEN="+hidden+"\n")
		p.write(".tend/playbooks/part.yaml", "disabled: true\n")
		p.write(".gitignore", "out\npipe\n.env\nmade\n")
		p.git("add", ".gitignore", "mend.sh", ".tend")
		p.git("commit", "-q", "--amend", "-m", "base", ".gitignore", "mend.sh", ".tend")
		p.spoil()
		shown := ""
		if m, ok := at.(machine); ok {
			shown = "show: [" + m.exec + "], "
		}
		text := fmt.Sprintf("services:\n  web: {command: [sh, server.sh], cwd: %[1]s, %[5]senv: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}, restart: {delay: 50ms, max_delay: 200ms, max: 100}}\nhealer: {root: %[1]s, hold: 500ms, attempts: 1, %[6]sllm: {provider: anthropic, model: scripted, base_url: '%[4]s'}}\n", p.dir, serveRole, p.addr, url, at.keys(), shown)
		proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": modelKey}}))
		proctest.Must(t, c.StartServices(t.Context()))
		e := repaired(t, c)
		if e.Status != tend.HealReady || e.Dirty || e.Commit == "" {
			t.Fatalf("it is %+v\n%s", e.Episode, e.Transcript)
		}
		p.untouched()
		p.noTrace()
		if got := p.git("show", "--stat", "--format=%an", "HEAD"); !strings.HasPrefix(got, "tend healer\n") || !strings.Contains(got, "1 file changed") {
			t.Errorf("the commit is\n%s", got)
		}
		if _, err := at.read(dir + "-out/gone"); err == nil {
			t.Error("it wrote out of the project")
		}
		if made := p.read("made"); made != "x\n" {
			t.Errorf("its command has made %q", made)
		}
	})
}
