package confine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/healer/confine"
	"github.com/tend-run/tend/internal/scene"
)

// TestMain plays the program that Argv names.
func TestMain(m *testing.M) {
	if confine.Called(os.Args) {
		os.Exit(confine.Main(os.Args[2:], os.Environ()))
	}
	os.Exit(m.Run())
}

const secret = "not-a-secret-canary-7f3a9c21"

// project is a directory with secrets, and the paths that hide them.
func project(t *testing.T, uid int) (dir, self string, hide []string) {
	t.Helper()
	scene.Root(t)
	dir = t.TempDir()
	for name, text := range map[string]string{".env": "KEY=" + secret, "apps/web/.env": "K=" + secret, "state/keys/a": secret, "server.js": "ok"} {
		full := filepath.Join(dir, filepath.FromSlash(name))
		scene.Must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		scene.Must(t, os.WriteFile(full, []byte(text+"\n"), 0o644))
		scene.Must(t, os.Lchown(full, uid, uid))
		scene.Must(t, os.Lchown(filepath.Dir(full), uid, uid))
	}
	// Another user must reach the program and the directory.
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		scene.Must(t, os.Chmod(d, 0o755))
	}
	self = filepath.Join(t.TempDir(), "self")
	scene.Must(t, os.WriteFile(self, scene.Value(os.ReadFile("/proc/self/exe"))(t), 0o755))
	for d := filepath.Dir(self); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		scene.Must(t, os.Chmod(d, 0o755))
	}
	return dir, self, hidden(t, dir)
}

// hidden is found before each command: one before may have moved a directory.
func hidden(t *testing.T, dir string) []string {
	t.Helper()
	hide := []string{filepath.Join(dir, "state"), filepath.Join(dir, "not/there")}
	scene.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".env" {
			hide = append(hide, path)
		}
		return err
	}))
	return hide
}

func shell(t *testing.T, dir, self string, uid int, hide []string, line string) (string, int) {
	t.Helper()
	return under(t, dir, self, uid, confine.Rules{Hide: hide}, line)
}

func under(t *testing.T, dir, self string, uid int, rules confine.Rules, line string) (string, int) {
	t.Helper()
	argv := confine.Argv(self, rules, []string{"sh", "-c", line})
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

var users = map[string]int{"root": 0, "another user": 65534}

// TestACommandDoesNotSeeWhatIsHidden: in whichever way it looks, and it cannot take
// that back.
func TestACommandDoesNotSeeWhatIsHidden(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, _ := project(t, uid)
			for _, line := range []string{
				"cat .env apps/web/.env state/keys/a",
				"cat .env | tr a-z n-za-m",
				"umount .env; umount -l " + dir + "/.env; cat .env",
				"rm -f .env; mv .env x; cat .env x",
				"mv apps other; cat other/web/.env",
				"ln .env hard; cp .env copy; cat hard copy",
				"cat /proc/$PPID/root" + dir + "/.env; cat /proc/1/root" + dir + "/.env; for p in /proc/[0-9]*; do cat $p/root" + dir + "/.env $p/cwd/.env; done",
				"unshare -m sh -c 'umount .env; umount -l " + dir + "/state; cat .env state/keys/a'",
				"unshare -Urm sh -c 'umount .env; umount -l " + dir + "/state; cat .env state/keys/a'",
				"unshare -Urm sh -c 'mkdir m; mount --bind . m; cat m/.env; mount --rbind . m; umount m/.env; cat m/.env'",
				"nsenter -t 1 -m cat " + dir + "/.env; chroot /proc/1/root cat " + dir + "/.env",
				"python3 -c 'import os; d=os.open(\".\", os.O_RDONLY); print(os.read(os.open(\".env\", os.O_RDONLY, dir_fd=d), 99))'",
				"grep -r canary .; find . -name '*.env' -exec cat {} +; git grep --no-index canary; tar cf - . | grep -a canary",
			} {
				out, _ := shell(t, dir, self, uid, hidden(t, dir), line)
				// What is asked for may be in a message, the secret in none; rot13 of it neither.
				if strings.Contains(out, "7f3a9c21") || strings.Contains(out, "7s3n9p21") {
					t.Errorf("%s\n%s", line, out)
				}
			}
			for name, want := range map[string]string{".env": "KEY=" + secret, "state/keys/a": secret} {
				// rm and mv of the lines above have changed nothing outside either.
				if got := scene.Value(os.ReadFile(filepath.Join(dir, name)))(t); string(got) != want+"\n" {
					t.Errorf("%s is %q", name, got)
				}
			}
		})
	}
}

// TestACommandIsOtherwiseAsItWas: its output, status, directory, arguments and
// files.
func TestACommandIsOtherwiseAsItWas(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, hide := project(t, uid)
			scene.Must(t, os.Chown(dir, uid, uid))
			out, code := shell(t, dir, self, uid, hide, "cat server.js; pwd; id -u; echo new > made; head -1 .env; ls state; env | grep TEND; exit 7")
			want := "ok\n" + dir + "\n" + map[int]string{0: "0", 65534: "65534"}[uid] + "\n# hidden by tend: nothing of this file is shown to commands of the healer\n"
			if out != want || code != 7 {
				t.Errorf("status %d: %q, want %q", code, out, want)
			}
			if got := scene.Value(os.ReadFile(filepath.Join(dir, "made")))(t); string(got) != "new\n" {
				t.Errorf("%q", got)
			}
			if _, code := shell(t, dir, self, uid, hide, "kill -9 $$"); code != -1 && code != 137 {
				t.Errorf("killed: status %d", code)
			}
		})
	}
}

// TestWhatCannotBeHiddenIsNotRun: nothing is run then.
func TestWhatCannotBeHiddenIsNotRun(t *testing.T) {
	dir, self, _ := project(t, 0)
	for _, hide := range [][]string{{"relative"}, make([]string, confine.MaxPaths+1)} {
		if out, code := shell(t, dir, self, 0, hide, "echo ran"); code != confine.Refused || strings.Contains(out, "ran\n") {
			t.Errorf("%d %q", code, out)
		}
	}
	if code := confine.Main([]string{"/x"}, nil); code != confine.Refused {
		t.Errorf("without a command: %d", code)
	}
}

// TestACommandChangesOneDirectoryAlone: not the machine, not what is kept, and git's
// own files only for itself.
func TestACommandChangesOneDirectoryAlone(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, _ := project(t, uid)
			outside := filepath.Join(filepath.Dir(dir), "outside")
			git := func(args ...string) string {
				out, err := exec.Command("git", append([]string{"-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@y", "-C", dir}, args...)...).CombinedOutput()
				if err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
				return string(out)
			}
			git("init", "-q")
			git("add", "server.js")
			git("commit", "-qm", "one")
			for name, text := range map[string]string{"engine/core.js": "core", "server.js": "broken", "data/x": "x"} {
				scene.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777))
				scene.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
			}
			scene.Must(t, os.MkdirAll(outside, 0o777))
			scene.Must(t, os.WriteFile(filepath.Join(outside, "theirs"), []byte("theirs"), 0o666))
			scene.Must(t, filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
				return errors.Join(err, os.Lchown(path, uid, uid))
			}))
			rules := func() confine.Rules {
				return confine.Rules{Write: []string{dir}, Private: []string{filepath.Join(dir, ".git")}, Keep: []string{filepath.Join(dir, "engine"), filepath.Join(dir, "data/x")}, Hide: hidden(t, dir)}
			}
			head := git("rev-parse", "HEAD")
			for _, line := range []string{
				"rm -rf " + outside + " .git engine; echo x > engine/core.js; echo x > data/x; rm -rf engine data",
				"ln -s engine e2; echo x > e2/core.js; ln -s " + outside + " o2; echo x > o2/theirs; rm -rf o2/* e2/*",
				"mv engine e3; mv data d3; echo x > d3/x; echo x > e3/core.js; mv d3 data",
				"mount -o remount,rw /; mount -o remount,rw " + dir + "/engine; umount engine; umount -l " + dir + "/engine; echo x > engine/core.js; echo x > " + outside + "/theirs",
				"unshare -Urm sh -c 'mount -o remount,rw,bind engine; umount engine; umount data/x; echo x > engine/core.js; echo x > " + outside + "/theirs; echo x > data/x'",
				"echo x > /proc/1/root" + outside + "/theirs; echo x > /proc/$PPID/root" + outside + "/theirs",
				"touch /etc/tend-was-here /root/tend-was-here /usr/tend-was-here /var/lib/tend-was-here",
				"git -c safe.directory='*' commit -qam evil; git -c safe.directory='*' update-ref -d HEAD; rm -rf .git/*",
			} {
				out, _ := under(t, dir, self, uid, rules(), line)
				for name, want := range map[string]string{filepath.Join(dir, "engine/core.js"): "core", filepath.Join(dir, "data/x"): "x", filepath.Join(outside, "theirs"): "theirs"} {
					if got, err := os.ReadFile(name); err != nil || string(got) != want {
						t.Fatalf("%s\n%s\n%s is %q: %v", line, out, name, got, err)
					}
				}
				if got := git("rev-parse", "HEAD"); got != head {
					t.Fatalf("%s\n%s\nHEAD is %s", line, out, got)
				}
			}
			for _, name := range []string{"/etc/tend-was-here", "/root/tend-was-here", "/usr/tend-was-here", "/var/lib/tend-was-here"} {
				if _, err := os.Lstat(name); err == nil {
					os.Remove(name)
					t.Errorf("%s was made", name)
				}
			}
			// What a repair needs goes on.
			out, code := under(t, dir, self, uid, rules(), "set -e; cat server.js; git -c safe.directory='*' checkout -q -- server.js; echo more >> server.js; mkdir -p lib; echo y > lib/y; mktemp; echo done > /dev/null; pwd")
			if code != 0 || !strings.Contains(out, dir) {
				t.Errorf("status %d: %s", code, out)
			}
			if got := scene.Value(os.ReadFile(filepath.Join(dir, "server.js")))(t); string(got) != "ok\nmore\n" {
				t.Errorf("server.js is %q", got)
			}
		})
	}
}

// TestACommandWritesOnlyWhereItMay: whatever it is, and as whichever user; and it cannot
// take that back.
func TestACommandWritesOnlyWhereItMay(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, hide := project(t, uid)
			outside := t.TempDir()
			for d := outside; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
				scene.Must(t, os.Chmod(d, 0o777))
			}
			scene.Must(t, os.Chmod(dir, 0o777))
			for _, name := range []string{outside + "/file", dir + "/.git/config", dir + "/data/orders"} {
				scene.Must(t, os.MkdirAll(filepath.Dir(name), 0o777))
				scene.Must(t, os.WriteFile(name, []byte("as it was\n"), 0o666))
				scene.Must(t, os.Chmod(filepath.Dir(name), 0o777))
				scene.Must(t, os.Chmod(name, 0o666))
			}
			rules := confine.Rules{Hide: hide, Write: []string{dir}, Keep: []string{dir + "/.git", dir + "/data", dir + "/none"}}
			all := []string{outside + "/file", dir + "/.git/config", dir + "/data/orders"}
			for _, line := range []string{
				"rm -rf .git data " + outside, "for f in " + strings.Join(all, " ") + "; do echo x > $f; chmod 0 $f; mv $f $f.x; truncate -s 0 $f; done",
				"mv .git git; mv data d; rmdir data; ln -sfn /etc data", "mount -o remount,rw /; mount -o remount,rw,bind " + dir + "/.git; umount " + dir + "/.git; umount -l " + dir + "/data; rm -rf .git data " + outside,
				"unshare -m sh -c 'umount -l .git; rm -rf .git data " + outside + "'", "unshare -Urm sh -c 'umount -l .git; mount -o remount,rw /; rm -rf .git data " + outside + "'",
				"ln " + outside + "/file here; echo x > here; ln -s " + outside + " out; rm -rf out/*", "cd /proc/1/root" + outside + " && rm -rf file; echo x > /proc/1/root" + outside + "/file",
			} {
				argv := confine.Argv(self, rules, []string{"sh", "-c", line})
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
				if uid != 0 {
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
				}
				out, _ := cmd.CombinedOutput() // what fails is what is wanted
				for _, name := range all {
					if got, err := os.ReadFile(name); err != nil || string(got) != "as it was\n" {
						t.Fatalf("%s: %s is %q, %v\n%s", line, name, got, err, out)
					}
				}
			}
			argv := confine.Argv(self, rules, []string{"sh", "-c", "echo new > made && mkdir -p src && echo x > src/a && echo y >/dev/null && cat data/orders && ! cat .env | grep canary"})
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH")}
			if uid != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "as it was\n" {
				t.Errorf("%q, %v", out, err)
			}
			if got := scene.Value(os.ReadFile(filepath.Join(dir, "made")))(t); string(got) != "new\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// Neither what runs elsewhere on the machine, nor anybody outside, hears from a command.
func TestACommandReachesNobodyElse(t *testing.T) {
	for _, uid := range []int{0, 65534} {
		dir, self, hide := project(t, uid)
		victim := exec.Command("sleep", "1000")
		if uid != 0 {
			victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		scene.Must(t, victim.Start())
		ended := make(chan error, 1)
		go func() { ended <- victim.Wait() }()
		l := scene.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		rules := confine.Rules{Hide: hide, Write: []string{dir}}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		for line, want := range map[string]string{
			fmt.Sprintf("kill -9 %d 2>/dev/null || echo none", victim.Process.Pid): "none",
			fmt.Sprintf("test -e /proc/%d || echo none", victim.Process.Pid):       "none",
			// bash knows /dev/tcp.
			"bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + port + "' 2>/dev/null || echo none": "none",
			"ls -A /run | wc -l": "0",
			"bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>&1 | grep -q refused && echo yes":                                               "yes", // there is a loopback
			"cat /proc/1/environ /proc/1/mem 2>/dev/null; readlink /proc/1/root /proc/1/fd/*; ls /proc/1/root 2>/dev/null; echo none": "none",
		} {
			if got, code := under(t, dir, self, uid, rules, line); strings.TrimSpace(got) != want {
				t.Errorf("as %d, %s: %d %q", uid, line, code, got)
			}
		}
		select {
		case err := <-ended:
			t.Errorf("as %d, a command has ended another's process: %v", uid, err)
		default:
			scene.Must(t, victim.Process.Kill())
			<-ended
		}
	}
}

// What a command leaves running ends with it, and so does a command that is killed.
func TestNothingOfACommandStays(t *testing.T) {
	dir, self, hide := project(t, 0)
	mark := filepath.Join(dir, "alive")
	got, code := under(t, dir, self, 0, confine.Rules{Hide: hide, Write: []string{dir}}, "(setsid sh -c 'while sleep 0.01; do echo x >> alive; done' >/dev/null 2>&1 &); while ! test -s alive; do sleep 0.01; done; exit 7")
	if code != 7 {
		t.Fatalf("%d %q", code, got)
	}
	size := func() int64 { return scene.Value(os.Stat(mark))(t).Size() }
	last := size()
	for range 20 { // its pace is 10 ms
		time.Sleep(10 * time.Millisecond)
		if now := size(); now != last {
			t.Fatal("it goes on")
		}
	}
	if got, code := under(t, dir, self, 0, confine.Rules{Write: []string{dir}}, "kill -TERM $$"); code != 128+15 {
		t.Errorf("a signal: %d %q", code, got)
	}
}
