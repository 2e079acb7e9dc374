package local

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// boxed opens a driver over real containers, whose background work runs.
func boxed(t *testing.T) (*Driver, Config) {
	t.Helper()
	d, cfg, _ := boxedUntil(t)
	return d, cfg
}

// boxedUntil is boxed. end ends what the driver does in the background, as the end of a server does.
func boxedUntil(t *testing.T) (d *Driver, cfg Config, end func()) {
	t.Helper()
	if !testkeeper.IsRootless() {
		proctest.Root(t)
	}
	m := testkeeper.New(t).(*client.Manager)
	dir, err := os.MkdirTemp("/var/tmp", "tend-boxes-")
	proctest.Must(t, err)
	t.Cleanup(func() { proctest.Must(t, os.RemoveAll(dir)) })
	cfg = Config{Dir: dir, Manager: m, Engine: m.Containers(), Inside: func(r Root) process.Manager { return m.In(r) }}
	d = openOn(t, cfg)
	end = work(t, d)
	t.Cleanup(func() {
		for _, s := range d.containers.All() {
			proctest.Must(t, s.Destroy(context.Background()))
		}
	})
	return d, cfg, end
}

// work runs what a driver does in the background, until end.
func work(t *testing.T, d *Driver) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	end = sync.OnceFunc(func() { cancel(); proctest.Must(t, <-done) })
	t.Cleanup(end)
	return end
}

// inSandbox runs a command line in a sandbox.
func inSandbox(t *testing.T, s driver.Sandbox, line string) string {
	t.Helper()
	p := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"/bin/bash", "-l", "-c", line}})
	out := proctest.Output(t, p, process.Stdout)
	if res := proctest.Wait(t, p, process.Until{}); res.Exit.Code != 0 {
		t.Errorf("%q ended with %+v: %s%s", line, res.Exit, out, proctest.Output(t, p, process.Stderr))
	}
	return out
}

// built waits for a build and returns it with its log.
func built(t *testing.T, d *Driver, spec driver.BuildSpec) (driver.Build, string) {
	t.Helper()
	b, err := d.Build(t.Context(), spec)
	proctest.Must(t, err)
	var text strings.Builder
	from := 0
	for deadline := time.Now().Add(2 * time.Minute); ; {
		now, logs, err := d.GetBuild(t.Context(), b.ID, from)
		proctest.Must(t, err)
		for _, l := range logs {
			text.WriteString(l.Fields["step"] + " " + l.Level + " " + l.Message + "\n")
		}
		from += len(logs)
		if now.Status >= driver.BuildReady && len(logs) == 0 {
			return now, text.String()
		}
		if time.Now().After(deadline) {
			t.Fatalf("the build does not end: %+v\n%s", now, text.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func step(kind string, args ...string) driver.Step { return driver.Step{Kind: kind, Args: args} }

func TestASandboxFromBaseHasAUser(t *testing.T) {
	d, _ := boxed(t)
	s, err := d.Create(t.Context(), driver.Spec{Template: "base"})
	proctest.Must(t, err)
	if got := inSandbox(t, s, `whoami; pwd; echo $HOME; ls -A ~; wc -c < ~/.bashrc; test -w ~ && ! test -w / && echo fine`); got != "user\n/home/user\n/home/user\n.bashrc\n.profile\n0\nfine\n" {
		t.Errorf("it sees %q", got)
	}
	f, err := s.Files("", "")
	proctest.Must(t, err)
	e, err := f.Write("made", strings.NewReader("x"), nil)
	if err != nil || e.Path != "/home/user/made" || e.Owner != "user" {
		t.Errorf("%+v, %v", e, err)
	}
	if in := info(t, s); in.Template != "base" || in.TemplateID != "base" || in.Run.User != "user" {
		t.Errorf("%+v", in)
	}
	if _, err := d.Create(t.Context(), driver.Spec{Template: "nothing"}); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
}

func TestABuildDoesItsSteps(t *testing.T) {
	d, cfg, end := boxedUntil(t)
	var blob bytes.Buffer
	w := tar.NewWriter(&blob)
	for name, text := range map[string]string{"app/a.txt": "A", "app/sub/b.txt": "B", "one.txt": "one"} {
		proctest.Must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: int64(len(text)), Typeflag: tar.TypeReg}))
		_, err := io.WriteString(w, text)
		proctest.Must(t, err)
	}
	proctest.Must(t, w.Close())
	copied := func(hash string, args ...string) driver.Step {
		return driver.Step{Kind: "COPY", Args: args, Hash: hash}
	}
	spec := driver.BuildSpec{
		Name: "ns/app", Tags: []string{"default", "v1"},
		Steps: []driver.Step{
			step("ENV", "GREETING", "hello", "N", "1"),
			step("RUN", "echo $GREETING > /greeting; echo to stderr >&2; echo stays > /tmp/stays; sleep 300 & cat /proc/sys/kernel/random/uuid > /random"),
			step("RUN", "cat /tmp/stays; true"),
			step("WORKDIR", "/srv/app"),
			copied("h", "app", ".", "user"),
			copied("h", "one.txt", "renamed.txt", "", "600"),
			copied("h", "one.txt", "into/"),
			step("USER", "user"),
			step("WORKDIR", "work"),
			step("RUN", "touch mine || touch ~/mine; id -un"),
		},
		Blob: func(hash string) (io.ReadCloser, error) {
			if hash != "h" {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(bytes.NewReader(blob.Bytes())), nil
		},
	}
	b, log := built(t, d, spec)
	if b.Status != driver.BuildReady || b.Reason != "" {
		t.Fatalf("%+v\n%s", b, log)
	}
	for _, want := range []string{"2 warn to stderr\n", "3 info stays\n", "10 info user\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	all, err := d.List(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("sandboxes of builds are seen: %+v, %v", all, err)
	}
	look := `cat /greeting /random; echo $GREETING$N; pwd; whoami; stat -c '%n %U %a' /srv/app/a.txt /srv/app/sub/b.txt /srv/app/renamed.txt /srv/app/into/one.txt; cat /srv/app/renamed.txt /srv/app/sub/b.txt; ls -A /srv/app /srv/app/into`
	one, err := d.Create(t.Context(), driver.Spec{Template: "ns/app:v1", Run: driver.RunConfig{Env: map[string]string{"N": "2"}}})
	proctest.Must(t, err)
	got := strings.Split(inSandbox(t, one, look), "\n")
	random := got[1]
	got[1] = "…"
	want := []string{"hello", "…", "hello2", "/srv/app/work", "user", "/srv/app/a.txt user 640", "/srv/app/sub/b.txt user 640",
		"/srv/app/renamed.txt root 600", "/srv/app/into/one.txt root 640"}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("%s\n%s", diff, strings.Join(got, "\n"))
	}
	if slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, ".copied") }) {
		t.Errorf("something is left: %q", got)
	}

	t.Run("the same again is taken from the cache", func(t *testing.T) {
		spec.ID, spec.Name = "", "other"
		spec.Steps = append(slices.Clone(spec.Steps), step("RUN", "echo more > ~/more"))
		b, log := built(t, d, spec)
		if b.Status != driver.BuildReady || strings.Count(log, "taken from the cache") != 8 {
			t.Errorf("%+v\n%s", b, log)
		}
		spec.Name, spec.Force = "forced", true
		if b, log := built(t, d, spec); b.Status != driver.BuildReady || strings.Contains(log, "cache") {
			t.Errorf("%+v\n%s", b, log)
		}
	})
	t.Run("variables in steps of E2B's builds, and in no others", func(t *testing.T) {
		steps := []driver.Step{step("ENV", "APP", "/srv/of", "PATH", "/opt/tools:$PATH"), step("ENV", "AT", "${APP}/it", "PRICE", `"5$"`),
			step("WORKDIR", "$AT"), copied("h", "one.txt", "$APP/one.txt"), step("RUN",
				"pwd; cat $APP/one.txt; echo; echo $PRICE; tr '\\0' '\\n' < /proc/$$/environ")}
		b, log := built(t, d, driver.BuildSpec{Name: "vars", AsParent: true, Steps: steps, Blob: spec.Blob})
		if b.Status != driver.BuildReady || !strings.Contains(log, "5 info /srv/of/it\n5 info one\n5 info \"5$\"\n") ||
			!strings.Contains(log, "PATH=/opt/tools:/usr/local/sbin:") {
			t.Errorf("%+v\n%s", b, log)
		}
		b, _ = built(t, d, driver.BuildSpec{Name: "vars", AsParent: true, Steps: []driver.Step{step("ENV", "A", "1"), step("ENV", "B", "${A")}})
		if b.Status != driver.BuildFailed || b.FailedStep != "2" || !strings.Contains(b.Reason, `ENV: "${A": `) {
			t.Errorf("%+v", b)
		}
		b, log = built(t, d, driver.BuildSpec{Name: "plain", Steps: []driver.Step{step("ENV", "A", "$HOME"), step("RUN", "echo $A")}})
		if b.Status != driver.BuildReady || !strings.Contains(log, "2 info $HOME\n") {
			t.Errorf("%+v\n%s", b, log)
		}
	})
	t.Run("from another template", func(t *testing.T) {
		b, log := built(t, d, driver.BuildSpec{Name: "child", From: "ns/app", Steps: []driver.Step{step("RUN", "test -f /srv/app/a.txt && pwd && whoami")}})
		if b.Status != driver.BuildReady || !strings.Contains(log, "/srv/app/work\n1 info root\n") {
			t.Errorf("%+v\n%s", b, log)
		}
	})
	t.Run("tags", func(t *testing.T) {
		id, err := d.Tag(t.Context(), "ns/app:v1", []string{"latest"})
		if err != nil || id != b.ID {
			t.Errorf("%s, %v", id, err)
		}
		proctest.Must(t, d.Untag(t.Context(), "ns/app", []string{"v1"}))
		tags, err := d.Tags(t.Context(), "ns/app")
		if err != nil || len(tags) != 2 {
			t.Errorf("%+v, %v", tags, err)
		}
		for _, err := range []error{d.Untag(t.Context(), "ns/app", []string{"v1"}), justErr(d.Template(t.Context(), "ns/app:v1")), justErr(d.Tag(t.Context(), "x", nil))} {
			if !errors.Is(err, driver.ErrNotFound) {
				t.Error(err)
			}
		}
	})
	t.Run("deleted", func(t *testing.T) {
		proctest.Must(t, d.DeleteTemplate(t.Context(), "ns/app"))
		if _, err := d.Create(t.Context(), driver.Spec{Template: "ns/app"}); !errors.Is(err, driver.ErrNotFound) {
			t.Error(err)
		}
		if out := inSandbox(t, one, "cat /greeting"); out != "hello\n" {
			t.Errorf("its sandbox sees %q", out)
		}
	})
	t.Run("by the next server", func(t *testing.T) {
		end()
		s, err := openOn(t, cfg).Create(t.Context(), driver.Spec{Template: "other"})
		proctest.Must(t, err)
		if out := inSandbox(t, s, "cat /random ~/more"); out != random+"\nmore\n" {
			t.Errorf("it sees %q", out)
		}
		proctest.Must(t, s.Destroy(t.Context()))
	})
}

func TestABuildThatFailsSaysWhere(t *testing.T) {
	d, _ := boxed(t)
	var torn bytes.Buffer
	whole := tar.NewWriter(&torn)
	proctest.Must(t, whole.WriteHeader(&tar.Header{Name: "other", Mode: 0o644, Size: 2000}))
	proctest.Value(whole.Write(make([]byte, 2000)))(t)
	proctest.Must(t, whole.Close())
	for name, c := range map[string]struct {
		steps  []driver.Step
		ready  string
		step   string
		reason string
	}{
		"status":       {[]driver.Step{step("RUN", "true"), step("RUN", "echo why >&2; exit 3")}, "", "2", "exit status 3"},
		"no such user": {[]driver.Step{step("USER", "nobody-there"), step("RUN", "true")}, "", "1", "nobody-there"},
		"of a command": {[]driver.Step{step("RUN", "whoami", "nobody-there")}, "", "1", "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'nobody-there'"},
		"no files":     {[]driver.Step{{Kind: "COPY", Args: []string{"a", "b"}, Hash: "missing"}}, "", "1", "not exist"},
		"junk":         {[]driver.Step{{Kind: "COPY", Args: []string{"a", "/b"}, Hash: "junk"}}, "", "1", "damaged"},
		"a torn one":   {[]driver.Step{{Kind: "COPY", Args: []string{"a", "/b"}, Hash: "torn"}}, "", "1", "damaged"},
		"bad mode":     {[]driver.Step{{Kind: "COPY", Args: []string{"a", "b", "", "9"}, Hash: "x"}}, "", "1", "octal"},
	} {
		b, log := built(t, d, driver.BuildSpec{Name: "fails", Steps: c.steps, Ready: c.ready, Blob: func(hash string) (io.ReadCloser, error) {
			text, ok := map[string]string{"junk": strings.Repeat("j", 2000), "torn": torn.String()[:700]}[hash]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}})
		if b.Status != driver.BuildFailed || b.FailedStep != c.step || !strings.Contains(b.Reason, c.reason) || strings.Contains(b.Reason, "limit") {
			t.Errorf("%s: %+v\n%s", name, b, log)
		}
	}
	if _, err := d.Template(t.Context(), "fails"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("a template of a failed build: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	proctest.Must(t, os.Symlink(d.cfg.State, link))
	for name, spec := range map[string]driver.BuildSpec{
		"the state": {Name: "a", FromDir: d.cfg.State},
		"below it":  {Name: "a", FromDir: filepath.Join(d.cfg.State, "sandboxes")},
		"above it":  {Name: "a", FromDir: filepath.Dir(d.cfg.State)},
		"a link":    {Name: "a", FromDir: link},
		"the root":  {Name: "a", FromDir: "/proc/self/root"},
		"relative":  {Name: "a", FromDir: "x"},
		"no dir":    {Name: "a", FromDir: "/does/not/exist"},
		"name":      {Name: "../x"},
		"upper":     {Name: "A"},
		"two names": {Name: "a/b/c"},
		"tag":       {Name: "a", Tags: []string{"a b"}},
		"kind":      {Name: "a", Steps: []driver.Step{step("MOUNT", "x")}},
		"few":       {Name: "a", Steps: []driver.Step{step("COPY", "x")}},
		"odd":       {Name: "a", Steps: []driver.Step{step("ENV", "a", "b", "c")}},
		"NUL":       {Name: "a", Steps: []driver.Step{step("RUN", "a\x00b")}},
		"many":      {Name: "a", Steps: make([]driver.Step, driver.MaxSteps+1)},
		"large":     {Name: "a", Steps: []driver.Step{step("RUN", strings.Repeat("x", driver.MaxStepBytes+1))}},
		"two froms": {Name: "a", From: "base", FromDir: "/x"},
	} {
		_, err := d.Build(t.Context(), spec)
		if _, ok := errors.AsType[*driver.InvalidError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.Build(t.Context(), driver.BuildSpec{Name: "a", From: "nothing"}); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
	if _, _, err := d.GetBuild(t.Context(), "nothing", 0); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
}

func TestStepsBeginAsTheTemplateHasIt(t *testing.T) {
	d, _ := boxed(t)
	for name, tt := range map[string]struct {
		steps     []driver.Step
		ask, want string
	}{
		"plain": {[]driver.Step{step("RUN", "whoami > who; pwd >> who")}, "stat -c %U who; cat who; whoami; pwd", "user\nuser\n/home/user\nuser\n/home/user\n"},
		"moved": {[]driver.Step{step("USER", "root"), step("WORKDIR", "/srv")}, "whoami; pwd", "root\n/srv\n"},
		// Another user alone changes no directory.
		"roots": {[]driver.Step{step("USER", "root"), step("RUN", "pwd > where")}, "whoami; pwd; cat where", "root\n/home/user\n/home/user\n"},
	} {
		if b, log := built(t, d, driver.BuildSpec{Name: name, AsParent: true, Steps: tt.steps}); b.Status != driver.BuildReady {
			t.Fatalf("%+v\n%s", b, log)
		}
		s := proctest.Value(d.Create(t.Context(), driver.Spec{Template: name}))(t)
		if got := inSandbox(t, s, tt.ask); got != tt.want {
			t.Errorf("%s has %q", name, got)
		}
	}
}

func TestAStartCommandThatFailsEndsTheBuild(t *testing.T) {
	d, _ := boxed(t)
	b, log := built(t, d, driver.BuildSpec{Name: "server", Start: "/does/not/exist", Ready: "sleep 600"})
	if b.Status != driver.BuildFailed || b.FailedStep != "finalize" || !strings.Contains(b.Reason, "start command: the command ended with exit status 127") {
		t.Errorf("%+v\n%s", b, log)
	}
	if b, log = built(t, d, driver.BuildSpec{Name: "server", Start: "true", Ready: "true"}); b.Status != driver.BuildReady {
		t.Errorf("%+v\n%s", b, log)
	}
}

func TestATemplateWithoutTheDefaultTag(t *testing.T) {
	d, _ := boxed(t)
	b, log := built(t, d, driver.BuildSpec{Name: "tagged", Tags: []string{"v1"}})
	if b.Status != driver.BuildReady {
		t.Fatalf("%+v\n%s", b, log)
	}
	for _, key := range []string{"tagged", b.TemplateID} {
		if tags, err := d.Tags(t.Context(), key); err != nil || len(tags) != 1 || tags[0].Tag != "v1" {
			t.Errorf("tags of %s: %+v, %v", key, tags, err)
		}
	}
	if _, err := d.Template(t.Context(), "tagged"); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
	if one, err := d.Template(t.Context(), "tagged:"+string(b.ID)); err != nil || one.Build != b.ID {
		t.Errorf("by its build: %+v, %v", one, err)
	}
	if _, err := d.Template(t.Context(), "tagged:"+string(driver.NewBuildID())); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("by a build that there is not: %v", err)
	}
	proctest.Must(t, d.DeleteTemplate(t.Context(), b.TemplateID))
	if _, err := d.Tags(t.Context(), "tagged"); !errors.Is(err, driver.ErrNotFound) {
		t.Error(err)
	}
}

func TestATemplatesStartCommandRunsInEachSandbox(t *testing.T) {
	d, _ := boxed(t)
	b, log := built(t, d, driver.BuildSpec{
		Name: "server", Steps: []driver.Step{step("RUN", "echo prepared > /prepared")},
		Start: "sleep 0.3; cat /prepared > ~/up; sleep 1000", Ready: "test -s ~/up",
	})
	if b.Status != driver.BuildReady {
		t.Fatalf("%+v\n%s", b, log)
	}
	s, err := d.Create(t.Context(), driver.Spec{Template: "server"})
	proctest.Must(t, err)
	if got := inSandbox(t, s, "cat ~/up; rm ~/up"); got != "prepared\n" {
		t.Errorf("it sees %q", got)
	}
	proctest.Must(t, errors.Join(s.Stop(t.Context()), s.Start(t.Context())))
	proctest.Eventually(t, "the start command after a start", func() bool { return inSandbox(t, s, "cat ~/up 2>/dev/null || true") == "prepared\n" })
}

// A sandbox from a snapshot of one, and a copy of one, begins with its files and without its
// processes: the start command runs again, and it is there when the ready command says so.
func TestAStartCommandRunsAgainInCopies(t *testing.T) {
	d, _ := boxed(t)
	b, log := built(t, d, driver.BuildSpec{
		Name: "server", Start: "sleep 0.3; echo began >> ~/starts; sleep 1000",
		Ready: `test "$(wc -l < ~/starts)" -gt "$(cat ~/wanted 2>/dev/null || echo 0)"`,
	})
	if b.Status != driver.BuildReady {
		t.Fatalf("%+v\n%s", b, log)
	}
	s, err := d.Create(t.Context(), driver.Spec{Template: "server"})
	proctest.Must(t, err)
	if got := inSandbox(t, s, "wc -l < ~/starts; wc -l < ~/starts > ~/wanted"); got != "1\n" {
		t.Fatalf("the first has started %q times", got)
	}
	snap, err := d.Snapshot(t.Context(), info(t, s).ID, driver.SnapshotSpec{})
	proctest.Must(t, err)
	forks, err := d.Fork(t.Context(), info(t, s).ID, driver.ForkSpec{Count: 3})
	proctest.Must(t, err)
	of, err := d.Create(t.Context(), driver.Spec{Snapshot: string(snap.ID)})
	proctest.Must(t, err)
	all := []driver.Sandbox{of}
	for _, f := range forks {
		proctest.Must(t, f.Err)
		all = append(all, f.Sandbox)
	}
	for i, c := range all {
		if got := inSandbox(t, c, "wc -l < ~/starts"); got != "2\n" {
			t.Errorf("copy %d has started %q times", i, got)
		}
		infos := proctest.Value(c.Processes().List(t.Context(), process.Filter{Labels: map[string]string{"start": "template"}}))(t)
		if len(infos) != 1 || infos[0].Exit != nil {
			t.Errorf("copy %d runs %+v", i, infos)
		}
	}
	// Copies of copies, too.
	inSandbox(t, of, "wc -l < ~/starts > ~/wanted")
	again := proctest.Value(d.Fork(t.Context(), info(t, of).ID, driver.ForkSpec{}))(t)
	proctest.Must(t, again[0].Err)
	if got := inSandbox(t, again[0].Sandbox, "wc -l < ~/starts"); got != "3\n" {
		t.Errorf("a copy of a copy has started %q times", got)
	}
}

// Programs are told which sandbox theirs is, by variables and files, whatever becomes of it;
// that says nothing of use, so a snapshot of it is as cheap as of one that knows nothing.
func TestProgramsAreToldOfTheirSandbox(t *testing.T) {
	d, _ := boxed(t)
	s, err := d.Create(t.Context(), driver.Spec{Template: "base", E2BTemplate: "own"})
	proctest.Must(t, err)
	id := string(info(t, s).ID)
	const look = `echo "$E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID"
cd /run/e2b; stat -c '%a %U %n' .[A-Z]*; cat .E2B_SANDBOX .E2B_SANDBOX_ID .E2B_TEMPLATE_ID`
	want := func(id string) string {
		return "true " + id + " own\n444 root .E2B_SANDBOX\n666 root .E2B_SANDBOX_ID\n666 root .E2B_TEMPLATE_ID\ntrue" + id + "own"
	}
	if got := inSandbox(t, s, look); got != want(id) {
		t.Errorf("it sees %q", got)
	}
	s.(*sandbox).mu.Lock()
	in := s.(*sandbox).container
	s.(*sandbox).mu.Unlock()
	proctest.Eventually(t, "what is told is no content", func() bool {
		idle, err := s.(*sandbox).idle(t.Context(), in)
		return err == nil && idle
	})
	inSandbox(t, s, "echo more > /run/e2b/more || echo more > /dev/shm/more")
	if idle, err := s.(*sandbox).idle(t.Context(), in); err != nil || idle {
		t.Errorf("a file is no content: %v %v", idle, err)
	}
	forks := proctest.Value(d.Fork(t.Context(), info(t, s).ID, driver.ForkSpec{}))(t)
	proctest.Must(t, forks[0].Err)
	if got := inSandbox(t, forks[0].Sandbox, look); got != want(string(info(t, forks[0].Sandbox).ID)) {
		t.Errorf("a copy sees %q", got)
	}
	proctest.Must(t, errors.Join(s.Stop(t.Context()), s.Start(t.Context())))
	if got := inSandbox(t, s, look); got != want(id) {
		t.Errorf("after a start it sees %q", got)
	}
	other, err := d.Create(t.Context(), driver.Spec{Template: "base"})
	proctest.Must(t, err)
	if got := inSandbox(t, other, `echo "$E2B_SANDBOX_ID"; ls -d /run/e2b 2>/dev/null || echo none`); got != "\nnone\n" {
		t.Errorf("one that is not E2B's sees %q", got)
	}
}

// TestSnapshotsOfWhatRuns: of sandboxes that run nothing, and of such that do.
func TestSnapshotsOfWhatRuns(t *testing.T) {
	d, _ := boxed(t)
	s, err := d.Create(t.Context(), driver.Spec{Template: "base"})
	proctest.Must(t, err)
	inSandbox(t, s, "echo idle > ~/f; echo tmp > /tmp/t; rm ~/.profile; mkdir ~/d; mv ~/.bashrc ~/d/; ln ~/f ~/g")
	look := "cat ~/f /tmp/t; ls ~/d -A; test -e ~/.profile; echo $?; stat -c %h ~/f"
	before := s.(*sandbox).rec.Layer
	proctest.Must(t, justErr(d.Snapshot(t.Context(), s.(*sandbox).id, driver.SnapshotSpec{Name: "idle"})))
	if s.(*sandbox).rec.Layer == before {
		t.Error("one that is idle was not sealed")
	}
	if got := inSandbox(t, s, look); got != "idle\ntmp\n.bashrc\n1\n2\n" {
		t.Errorf("it goes on with %q", got)
	}
	p := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"/bin/bash", "-c", "while read x; do echo $x > ~/f; echo wrote $x; done"}, Stdin: process.StdinPipe})
	proctest.Write(t, p, "busy\n")
	proctest.Wait(t, p, process.Until{Match: "wrote busy"})
	forks, err := d.Fork(t.Context(), s.(*sandbox).id, driver.ForkSpec{Count: 3})
	proctest.Must(t, err)
	proctest.Write(t, p, "later\n")
	proctest.Wait(t, p, process.Until{Match: "wrote later"})
	idle, err := d.Create(t.Context(), driver.Spec{Snapshot: "idle"})
	proctest.Must(t, err)
	if got := inSandbox(t, idle, look); got != "idle\ntmp\n.bashrc\n1\n2\n" {
		t.Errorf("the snapshot has %q", got)
	}
	for i, f := range forks {
		proctest.Must(t, f.Err)
		// A write to a file of a lower layer copies it, without its other names.
		if got := inSandbox(t, f.Sandbox, look); got != "busy\ntmp\n.bashrc\n1\n1\n" {
			t.Errorf("fork %d has %q", i, got)
		}
		inSandbox(t, f.Sandbox, "echo its own > ~/f")
	}
	if got := inSandbox(t, s, "cat ~/f"); got != "later\n" {
		t.Errorf("the sandbox has %q", got)
	}
	if names, err := os.ReadDir(filepath.Join(d.cfg.Dir, layersName)); err != nil || len(names) < 4 {
		t.Errorf("layers: %v, %v", names, err)
	}
}
