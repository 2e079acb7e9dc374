package services

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// restarted waits until a service is ready in its n-th run.
func (y *yard) restarted(name string, n int64) run.Status {
	y.t.Helper()
	return y.until(name, "ready in another run", func(s run.Status) bool { return s.State.Ready && s.State.Run >= n })
}

// steady makes sure that nothing restarts a service that has n runs: what restarts comes
// later than what was there before.
func (y *yard) steady(s driver.Sandbox, name string, n int64) {
	y.t.Helper()
	y.inside(s, "echo "+name+" > /app/src/steady.ts")
	if st := y.restarted(name, n+1); st.State.Run != n+1 {
		y.t.Errorf("it is in run %d; want %d", st.State.Run, n+1)
	}
}

// Files of a sandbox are watched as those of the machine are, by whoever they are changed.
func TestAChangedFileInASandboxRestarts(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("home")
	y.inside(s, "mkdir -p /app/src/deep /app/node_modules/x; echo 1 > /app/src/a.ts")
	y.declare("  dev: {sandbox: home, cwd: /app, command: exec sleep 1000, watch: {paths: 'src/**/*.ts', delay: 1s}}\n")
	y.ready("dev")
	runs := int64(1)
	change := func(line string) {
		t.Helper()
		y.inside(s, line)
		runs++
		if st := y.restarted("dev", runs); st.State.Run != runs {
			t.Errorf("after %s it is in run %d; want %d", line, st.State.Run, runs)
		}
	}
	change("echo 2 > /app/src/a.ts")
	change("echo 2 > /app/src/deep/b.ts")
	change("cd /app/src; touch 4913; rm 4913; mv a.ts a.ts~; echo 3 > a.ts; rm a.ts~") // an editor
	change("mkdir -p /app/src/new/er; for i in 1 2 3 4 5 6 7 8 9; do echo 1 > /app/src/new/er/$i.ts; done")
	change("echo 2 > /app/src/new/er/9.ts")
	change("rm /app/src/deep/b.ts")
	change("mv /app/src/new /app/src/moved")
	change("echo 3 > /app/src/moved/er/9.ts")
	y.inside(s, "cd /app; echo x > src/x.js; echo x > node_modules/x/y.ts; mkdir src/node_modules src/empty; echo x > src/node_modules/y.ts; chmod 600 src/a.ts; touch src/a.ts; echo x > src/.a.ts.swp; mkdir lib; echo x > lib/z.ts")
	y.steady(s, "dev", runs)
	runs++
	// By the files of the driver, as a face writes them.
	f := proctest.Value(s.Files("", "/app"))(t)
	proctest.Value(f.Write("/app/src/c.ts", strings.NewReader("1"), nil))(t)
	runs++
	y.restarted("dev", runs)
	y.steady(s, "dev", runs)
	runs++
	// The first directory, too, is followed.
	change("rm -rf /app/src")
	y.inside(s, "mv /app /gone")
	y.inside(s, "mkdir -p /back/src; echo 1 > /back/src/a.ts; mv /back /app")
	runs++
	y.restarted("dev", runs)
	// Another server continues, and finds what has changed before.
	files := filepath.Join(y.dir, "dev.files")
	proctest.Eventually(t, "it is known what the files are", func() bool {
		_, err := os.Stat(files)
		return err == nil
	})
	before := y.restarted("dev", runs)
	y.stop()
	y.begin()
	if st := y.ready("dev"); st.ID != before.ID {
		t.Errorf("%s was adopted; want %s", st.ID, before.ID)
	}
	y.stop()
	y.inside(s, "echo while no server runs > /app/src/a.ts")
	y.begin()
	runs++
	y.restarted("dev", runs)
	y.steady(s, "dev", runs)
}

// A change is noticed whatever its sandbox went through just before.
func TestNoChangeInASandboxIsLost(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("home")
	// Each run reads the file at its start, and says so once it has.
	const file = "/tmp/app/src/a.ts"
	y.inside(s, "mkdir -p /tmp/app/src; echo 0 > "+file)
	y.declare("  dev: {sandbox: home, cwd: /tmp, command: 'cat app/src/a.ts 2>/dev/null || echo none; exec sleep 1000', watch: {paths: app/src, delay: 50ms}, restart: {max: 0}}\n")
	reads := func(after, text string) {
		t.Helper()
		var got string
		proctest.Eventually(t, "after "+after+" a run has read "+text, func() bool {
			st := y.until("dev", "there", func(s run.Status) bool { return s.State.Run > 0 })
			p, err := y.m.Get(t.Context(), process.Selector{ID: st.ID})
			if err != nil {
				return false
			}
			got = strings.TrimSpace(soFar(t, p))
			return st.State.Phase == supervisor.Running && got == text
		})
	}
	reads("the start", "0")
	info := proctest.Value(s.Info(t.Context()))(t)
	change := func(text string) {
		t.Helper()
		f := proctest.Value(s.Files("", "/"))(t)
		proctest.Value(f.Write(file, strings.NewReader(text), nil))(t)
	}
	for range 3 {
		proctest.Must(t, y.d.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: true}))
		change("1")
		proctest.Must(t, y.d.Resume(t.Context(), info.ID))
		reads("a pause", "1")
		change("2")
		reads("a change after a pause", "2")
		proctest.Must(t, s.Stop(t.Context()))
		y.waits("dev", "is stopped")
		proctest.Must(t, s.Start(t.Context()))
		reads("a stop", "2")
		change("3")
		reads("a change after a stop", "3")
		// A snapshot lets the root go and takes it again.
		snap := proctest.Value(y.d.Snapshot(t.Context(), info.ID, driver.SnapshotSpec{}))(t)
		change("4")
		reads("a snapshot", "4")
		proctest.Must(t, y.d.DeleteSnapshot(t.Context(), string(snap.ID)))
	}
	proctest.Must(t, s.Destroy(t.Context()))
	y.waits("dev", "is not there any more")
	s = y.sandbox("home")
	reads("another sandbox", "none")
	y.inside(s, "mkdir -p /tmp/app/src; echo 5 > "+file)
	reads("the first change in it", "5")
	change("6")
	reads("a change in it", "6")
}

// More directories than may be watched are refused, and what is left out is not counted.
func TestTooManyDirectoriesOfASandboxAreRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.sandbox("home")
	y.inside(s, "mkdir -p /app/lib/x /app/node_modules/x; cd /app/lib/x; seq 10000 | xargs mkdir; cd ../../node_modules/x; seq 10000 | xargs mkdir")
	declare := func(watch string) error {
		return y.Apply(t.Context(), fileOf("/", "services: {dev: {sandbox: home, cwd: /app, command: exec sleep 1000, watch: "+watch+"}}", nil))
	}
	if err := declare("{paths: ['*.ts', src]}"); err != nil {
		t.Error(err)
	}
	if err := declare("{paths: '**/*.ts', ignore: [lib]}"); err != nil {
		t.Error(err)
	}
	if err := declare("'**/*.ts'"); err == nil || !strings.Contains(err.Error(), "services.dev.watch has too many directories below /app") {
		t.Errorf("got %v", err)
	}
}
