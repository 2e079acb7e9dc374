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

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/heal/confine"
	"github.com/tend-run/tend/internal/support/proctest"
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
	proctest.Root(t)
	dir = t.TempDir()
	for name, text := range map[string]string{".env": "KEY=" + secret, "apps/web/.env": "K=" + secret, "state/keys/a": secret, "server.js": "ok"} {
		full := filepath.Join(dir, filepath.FromSlash(name))
		proctest.Must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		proctest.Must(t, os.WriteFile(full, []byte(text+"\n"), 0o644))
		proctest.Must(t, os.Lchown(full, uid, uid))
		proctest.Must(t, os.Lchown(filepath.Dir(full), uid, uid))
	}
	// Another user must reach the program and the directory.
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		proctest.Must(t, os.Chmod(d, 0o755))
	}
	self = filepath.Join(t.TempDir(), "self")
	proctest.Must(t, os.WriteFile(self, proctest.Value(os.ReadFile("/proc/self/exe"))(t), 0o755))
	for d := filepath.Dir(self); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		proctest.Must(t, os.Chmod(d, 0o755))
	}
	return dir, self, hidden(t, dir)
}

// hidden is found before each command: one before may have moved a directory.
func hidden(t *testing.T, dir string) []string {
	t.Helper()
	hide := []string{filepath.Join(dir, "state"), filepath.Join(dir, "not/there")}
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".env" {
			hide = append(hide, path)
		}
		return err
	}))
	return hide
}

func shell(t *testing.T, dir, self string, uid int, hide []string, line string) (string, int) {
	t.Helper()
	out, code, _ := under(t, dir, self, uid, confine.Rules{Hide: hide}, line)
	return out, code
}

// under runs a line, and returns what it has changed: one line for each path.
func under(t *testing.T, dir, self string, uid int, rules confine.Rules, line string) (out string, code int, changes []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "changes")
	proctest.Must(t, os.WriteFile(file, nil, 0o600))
	proctest.Must(t, os.Lchown(file, uid, uid))
	for d := filepath.Dir(file); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		proctest.Must(t, os.Chmod(d, 0o755))
	}
	rules.Root, rules.Changes = dir, file
	// The shell and this test's own program are where a test may be.
	rules.Show = append(rules.Show, filepath.Dir(self))
	argv := confine.Argv(self, rules, []string{"sh", "-c", line})
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	all, err := confine.Read(file)
	for _, c := range all {
		one := string(c.Kind) + " " + string(c.Path)
		if c.Kind == confine.File {
			one += fmt.Sprintf(" %o %q", c.Mode, c.Data)
		}
		changes = append(changes, one)
	}
	if err != nil {
		changes = []string{err.Error()}
	}
	return string(b), cmd.ProcessState.ExitCode(), changes
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
				if got := proctest.Value(os.ReadFile(filepath.Join(dir, name)))(t); string(got) != want+"\n" {
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
			proctest.Must(t, os.Chown(dir, uid, uid))
			out, code, changes := under(t, dir, self, uid, confine.Rules{Hide: hide}, "cat server.js; pwd; id -u; echo new > made; cat made >&2; head -1 .env; ls state; env | grep TEND; exit 7")
			want := "ok\n" + dir + "\n" + map[int]string{0: "0", 65534: "65534"}[uid] + "\nnew\n# hidden by tend: nothing of this file is shown to commands of the healer\n"
			if out != want || code != 7 {
				t.Errorf("status %d: %q, want %q", code, out, want)
			}
			if len(changes) != 1 || !strings.HasSuffix(changes[0], ` "new\n"`) {
				t.Errorf("%q", changes)
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
	for _, rules := range []confine.Rules{{Show: []string{"relative"}}, {Drop: []string{"a/b"}}, {Hide: []string{"/a/../b"}}} {
		if out, code, _ := under(t, dir, self, 0, rules, "echo ran"); code != confine.Refused || strings.Contains(out, "ran\n") {
			t.Errorf("%d %q", code, out)
		}
	}
	for _, rules := range []confine.Rules{{Root: dir + "/none", Changes: dir + "/c"}, {Root: dir, Changes: dir + "/none/c"}, {Root: "x", Changes: dir + "/c"}} {
		argv := confine.Argv(self, rules, []string{"/bin/echo", "ran"})
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err == nil || strings.Contains(string(out), "ran\n") {
			t.Errorf("%v %q", err, out)
		}
	}
	if code := confine.Main([]string{"/x"}, nil); code != confine.Refused {
		t.Errorf("without a command: %d", code)
	}
}

// snapshot is everything in a directory, byte for byte.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Size() > 1<<20: // the program
		case info.Mode().IsRegular():
			text += string(proctest.Value(os.ReadFile(path))(t))
		case info.Mode()&fs.ModeSymlink != 0:
			text += proctest.Value(os.Readlink(path))(t)
		}
		all[path] = text
		return nil
	}))
	return all
}

// TestACommandChangesNothing: neither the project, nor git's own files, nor the machine.
func TestACommandChangesNothing(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, _ := project(t, uid)
			outside := filepath.Join(filepath.Dir(dir), "outside")
			git := func(args ...string) {
				out, err := exec.Command("git", append([]string{"-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@y", "-C", dir}, args...)...).CombinedOutput()
				if err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
			}
			git("init", "-q")
			git("add", "server.js")
			git("commit", "-qm", "one")
			for name, text := range map[string]string{"engine/core.js": "core", "server.js": "broken", "data/x": "x"} {
				proctest.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777))
				proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
			}
			proctest.Must(t, os.MkdirAll(outside, 0o777))
			proctest.Must(t, os.WriteFile(filepath.Join(outside, "theirs"), []byte("theirs"), 0o666))
			proctest.Must(t, filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
				return errors.Join(err, os.Lchown(path, uid, uid))
			}))
			before := snapshot(t, filepath.Dir(dir))
			for _, line := range []string{
				"rm -rf * .[a-z]*; echo x > new; chmod -R 777 .",
				"rm -rf " + outside + " .git engine; echo x > engine/core.js; echo x > data/x; rm -rf engine data",
				"ln -s engine e2; echo x > e2/core.js; ln -s " + outside + " o2; echo x > o2/theirs; rm -rf o2/* e2/*",
				"mv engine e3; mv data d3; echo x > d3/x; echo x > e3/core.js; mv d3 data",
				"umount -l .; umount -l " + dir + "; cd " + dir + " && rm -rf *; mount -o remount,rw /; echo x > " + outside + "/theirs",
				"unshare -m sh -c 'umount -l " + dir + "; cd " + dir + "; rm -rf * " + outside + "'",
				"unshare -Urm sh -c 'umount -l " + dir + "; cd " + dir + "; mount -o remount,rw /; rm -rf * " + outside + "'",
				"ln " + outside + "/theirs here; echo x > here; cd /proc/1/root" + outside + " && rm -rf theirs; echo x > /proc/1/root" + outside + "/theirs; echo x > /proc/1/root" + dir + "/data/x",
				"touch /etc/tend-was-here /root/tend-was-here /usr/tend-was-here /var/lib/tend-was-here; echo x > /proc/sys/kernel/core_pattern",
				"git -c safe.directory='*' commit -qam evil; git -c safe.directory='*' update-ref -d HEAD; rm -rf .git/*",
				"git -c safe.directory='*' reset --hard; git -c safe.directory='*' stash -u; git -c safe.directory='*' clean -fdx",
			} {
				pattern := proctest.Value(os.ReadFile("/proc/sys/kernel/core_pattern"))(t)
				out, _, _ := under(t, dir, self, uid, confine.Rules{Hide: hidden(t, dir)}, line)
				after := snapshot(t, filepath.Dir(dir))
				for path, text := range before {
					if after[path] != text {
						t.Fatalf("%s\n%s\n%s is %q, and was %q", line, out, path, after[path], text)
					}
					delete(after, path)
				}
				for path := range after {
					if strings.HasPrefix(path, dir+"/") || strings.HasPrefix(path, outside+"/") {
						t.Fatalf("%s\n%s\n%s was made", line, out, path)
					}
				}
				if now := proctest.Value(os.ReadFile("/proc/sys/kernel/core_pattern"))(t); string(now) != string(pattern) {
					proctest.Must(t, os.WriteFile("/proc/sys/kernel/core_pattern", pattern, 0o644))
					t.Fatal("the kernel's settings were changed")
				}
			}
			for _, name := range []string{"/etc/tend-was-here", "/root/tend-was-here", "/usr/tend-was-here", "/var/lib/tend-was-here"} {
				if _, err := os.Lstat(name); err == nil {
					os.Remove(name)
					t.Errorf("%s was made", name)
				}
			}
		})
	}
}

// TestWhatACommandHasChangedIsCollected: each change, exactly, and nothing that was dropped.
func TestWhatACommandHasChangedIsCollected(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, _ := project(t, uid)
			for _, name := range []string{"a", "b", "d/one", "d/two", "d/sub/three", "node_modules/p/x", "run.sh", "closed"} {
				proctest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
			}
			proctest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				return errors.Join(err, os.Lchown(path, uid, uid))
			}))
			for line, want := range map[string]string{
				"true":                                  "",
				"cat a; grep -r o .; ls -lR >/dev/null": "",
				"printf new > n; printf more >> a":      `file a 644 "amore"|file n 644 "new"`,
				"rm a; rm -rf d":                        "gone a|gone d",
				"rm d/one":                              "directory d|gone d/one",
				"rm -rf d; mkdir d; printf x > d/one":   `gone d|directory d|file d/one 644 "x"`,
				"mv d e && ls d":                        `gone d|directory e|file e/one 644 "d/one"|directory e/sub|file e/sub/three 644 "d/sub/three"|file e/two 644 "d/two"`,
				"chmod +x run.sh":                       `file run.sh 755 "run.sh"`,
				"printf y > b; chmod 0 b":               `file b 0 "y"`,
				"ln -s a l; mkfifo f; ln a hard":        `file a 644 "a"|other f|file hard 644 "a"|other l`,
				"rm -rf node_modules":                   "",
				"echo x > node_modules/p/x; mkdir -p d/node_modules; echo x > d/node_modules/y": "directory d",
				"mkdir -p up/loads":  "directory up|directory up/loads",
				"rm a; printf a > a": `file a 644 "a"`,
				"rm a; mkdir a":      "gone a|directory a",
				"dd if=/dev/zero of=big bs=1M count=40 2>/dev/null":       "it has changed more than 32 MiB",
				"mkdir many; cd many; seq 2100 | xargs touch":             "it has changed more than 2000 files and directories",
				"(sleep 600 & sleep 600 &) >/dev/null 2>&1; printf x > a": `file a 644 "x"`,
			} {
				out, _, changes := under(t, dir, self, uid, confine.Rules{Drop: []string{"node_modules"}}, "umask 022; "+line)
				if got := strings.Join(changes, "|"); got != want {
					t.Errorf("%s\n%s\nis %s\nnot %s", line, out, got, want)
				}
			}
		})
	}
}

// TestACommandSeesProgramsAndTheProject: and what is shown to it, and nothing else of the
// machine.
func TestACommandSeesProgramsAndTheProject(t *testing.T) {
	for who, uid := range users {
		t.Run(who, func(t *testing.T) {
			dir, self, hide := project(t, uid)
			beside := filepath.Join(filepath.Dir(dir), "beside")
			proctest.Must(t, os.MkdirAll(beside, 0o755))
			for _, name := range []string{"shown", "other"} {
				proctest.Must(t, os.WriteFile(filepath.Join(beside, name), []byte(name), 0o644))
			}
			rules := confine.Rules{Hide: hide, Show: []string{beside + "/shown", beside + "/none"}}
			top := onMachine(t, "/")
			settings := onMachine(t, "/usr/local/etc")
			for line, want := range map[string]string{
				"cat " + beside + "/shown":                                                                              "shown",
				"cat " + beside + "/other 2>/dev/null || echo no":                                                       "no",
				"(echo x > " + beside + "/shown) 2>/dev/null || echo no":                                                "no",
				"ls -A /home /root /var/lib /srv /mnt /opt 2>/dev/null | grep -v : | grep . | wc -l":                    "0",
				"cat " + top + " " + settings + " 2>/dev/null | grep -c canary; ls -d /bin /etc/hostname":               "0\n/bin\n/etc/hostname",
				"cat /etc/shadow /etc/gshadow /etc/sudoers 2>/dev/null | grep -v hidden | wc -l":                        "0",
				"find /dev -type b | wc -l; ls /dev/mem /dev/kmsg /dev/sda /dev/vda 2>/dev/null | wc -l":                "0\n0",
				"echo x > /dev/null && head -c 4 /dev/urandom | wc -c; cat < /dev/stdin; test -p /dev/stdout && echo y": "4\ny",
				"for d in /tmp /var/tmp /dev/shm $HOME; do echo x > $d/x && cat $d/x; done":                             "x\nx\nx\nx",
				"ls -A /tmp/home": "",
			} {
				if got, _, _ := under(t, dir, self, uid, rules, line); strings.TrimSpace(got) != want {
					t.Errorf("%s: %q", line, got)
				}
			}
		})
	}
}

// onMachine makes a file that only root may read.
func onMachine(t *testing.T, dir string) string {
	t.Helper()
	f := proctest.Value(os.CreateTemp(dir, "tend-test-"))(t)
	t.Cleanup(func() { os.Remove(f.Name()) })
	proctest.Value(f.WriteString(secret))(t)
	proctest.Must(t, f.Close())
	return f.Name()
}

// A command of root's has no right to what the whole machine has once.
func TestACommandHasFewRights(t *testing.T) {
	dir, self, hide := project(t, 0)
	keyctl := fmt.Sprintf(`perl -e 'print syscall(%d, 0, -4, 0) < 0 ? "none" : "a keyring"'`, unix.SYS_KEYCTL)
	for line, want := range map[string]string{
		"grep CapBnd /proc/self/status | cut -f2":           "00000000800004fb",
		"chrt -f 10 true 2>/dev/null || echo none":          "none",
		"dmesg 2>/dev/null | wc -l":                         "0",
		"cat /proc/keys /proc/timer_list | grep -vc hidden": "0",
		"touch a b && chown 1 a && kill -0 $$ && echo yes":  "yes",
		keyctl: "none",
	} {
		if got, code, _ := under(t, dir, self, 0, confine.Rules{Hide: hide}, line); strings.TrimSpace(got) != want {
			t.Errorf("%s: %d %q", line, code, got)
		}
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
		proctest.Must(t, victim.Start())
		l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		rules := confine.Rules{Hide: hide}
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
			if got, code, _ := under(t, dir, self, uid, rules, line); strings.TrimSpace(got) != want {
				t.Errorf("as %d, %s: %d %q", uid, line, code, got)
			}
		}
		if state := proctest.Value(os.ReadFile(fmt.Sprintf("/proc/%d/stat", victim.Process.Pid)))(t); strings.Contains(string(state), ") Z ") {
			t.Errorf("as %d, a command has ended another's process", uid)
		}
		proctest.Must(t, victim.Process.Kill())
		_ = victim.Wait() // it was killed
	}
}

// What a command leaves running ends with it, and so does a command that is killed.
func TestNothingOfACommandStays(t *testing.T) {
	dir, self, hide := project(t, 0)
	// Its name is on the machine, whatever its namespace.
	name := fmt.Sprintf("%d.%d", 1000+os.Getpid(), time.Now().UnixNano()%1e9)
	alive := func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range all {
			if b, err := os.ReadFile(f); err == nil && strings.HasSuffix(string(b), "sleep\x00"+name+"\x00") {
				return true
			}
		}
		return false
	}
	line := "(setsid sleep " + name + " >/dev/null 2>&1 &); (trap '' TERM HUP INT; sleep " + name + " >/dev/null 2>&1) & while ! grep -q " + name + " /proc/[0-9]*/cmdline; do sleep 0.01; done; "
	got, code, _ := under(t, dir, self, 0, confine.Rules{Hide: hide}, line+"exit 7")
	if code != 7 {
		t.Fatalf("%d %q", code, got)
	}
	if alive() {
		t.Fatal("it goes on")
	}
	if got, code, _ := under(t, dir, self, 0, confine.Rules{}, "kill -TERM $$"); code != 128+15 {
		t.Errorf("a signal: %d %q", code, got)
	}
	file := filepath.Join(t.TempDir(), "changes")
	argv := confine.Argv(self, confine.Rules{Root: dir, Changes: file, Show: []string{filepath.Dir(self)}}, []string{"/bin/sh", "-c", line + "echo x > made; sleep " + name})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	proctest.Must(t, cmd.Start())
	for end := time.Now().Add(2 * time.Minute); !alive() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	proctest.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	for end := time.Now().Add(2 * time.Minute); alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a command outlives the process that it is of")
		}
	}
	if all, err := confine.Read(file); !errors.Is(err, confine.ErrKilled) {
		t.Errorf("of one that was killed: %v, %v", all, err)
	}
}
