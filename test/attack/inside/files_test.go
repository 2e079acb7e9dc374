//go:build linux

package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

func unixNumber(sig unix.Signal) string { return strconv.Itoa(int(sig)) }

// enough is a writer that wants no more than some bytes.
type enough struct{ left int }

var errEnough = errors.New("that is enough")

func (e *enough) Write(b []byte) (int, error) {
	if e.left -= len(b); e.left < 0 {
		return 0, errEnough
	}
	return len(b), nil
}

// inTime runs a call that has to come back, whatever it says.
func inTime(t *testing.T, what string, do func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := do(ctx)
	if ctx.Err() != nil {
		t.Errorf("%s does not come back: %v", what, err)
	}
	return err
}

// ofFiles are attempts on the files that are read and written from outside, which is with rights of the daemon.
var ofFiles = []attempt{
	{"holds leases on files, which make others wait", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = []
for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
    open("/tmp/leased%d" % kind, "w").write("text")
    f = os.open("/tmp/leased%d" % kind, os.O_RDONLY)
    files.append((f, tried(lambda: fcntl.fcntl(f, 1024, kind)))) # F_SETLEASE
holds(files)`)
		for _, name := range []string{"/tmp/leased0", "/tmp/leased1"} {
			inTime(t, "a read", func(ctx context.Context) error { _, err := s.Files().Read(ctx, name, io.Discard); return err })
			inTime(t, "a write", func(ctx context.Context) error { return s.Files().WriteFile(ctx, name, []byte("other")) })
			w.goesOn(t)
		}
		proctest.Kill(t, p)
	}},
	{"puts FIFOs, sockets, devices, its own terminal and links of /proc where files are expected", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		says(t, s, "0:0", `
os.mkdir("/tmp/odd"); os.chdir("/tmp/odd")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
for name, to in (("zero", "/dev/zero"), ("tty", "/dev/tty"), ("ptmx", "/dev/pts/ptmx"), ("self", "/proc/self/exe"), ("root",
    "/proc/1/root/etc/passwd"), ("fd", "/proc/self/fd/0"),
                 ("up", "../" * 60 + "proc/self/environ"), ("loop", "loop"), ("trace", "/proc/1/environ"), ("ns",
                     "/proc/self/ns/net"), ("mem", "/proc/1/mem"), ("task", "/proc/thread-self/mem")): os.symlink(to, name)
os.mkdir("dir"); os.symlink("/proc/1/cwd", "dir/x")`)
		for _, name := range []string{"fifo", "socket", "zero", "tty", "ptmx", "self", "root", "fd", "up", "loop", "trace", "ns", "mem",
			"task", "dir/x/etc/passwd"} {
			path := "/tmp/odd/" + name
			var text strings.Builder
			err := inTime(t, "a read of "+name, func(ctx context.Context) error {
				_, err := s.Files().Read(ctx, path, io.MultiWriter(&text, &enough{1 << 20}))
				return err
			})
			if err == nil && strings.Contains(text.String(), "TEND") {
				t.Errorf("%s reads %.100q", name, text.String())
			}
			if errors.Is(err, errEnough) {
				t.Errorf("%s is read without an end", name)
			}
			inTime(t, "a look at "+name, func(ctx context.Context) error { _, err := s.Files().Stat(ctx, path); return err })
			inTime(t, "a write of "+name, func(ctx context.Context) error { return s.Files().WriteFile(ctx, path, []byte("x")) })
		}
		inTime(t, "the list", func(ctx context.Context) error { _, err := s.Files().List(ctx, "/tmp/odd", 5); return err })
		inTime(t, "the removal", func(ctx context.Context) error { return s.Files().Remove(ctx, "/tmp/odd") })
	}},
	{"has the daemon write to files of /proc for it", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, pid := hold(t, s, "0:0", `holds(os.getpid())`)
		for path, text := range map[string]string{"oom_score_adj": "-1000", "uid_map": "0 0 1", "setgroups": "deny",
			"timens_offsets": "monotonic 1 0", "coredump_filter": "7f", "attr/current": "x", "mem": "x", "clear_refs": "1"} {
			inTime(t, "a write of "+path, func(ctx context.Context) error { return s.Files().WriteFile(ctx, "/proc/"+pid+"/"+path, []byte(text)) })
		}
		for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
			"/proc/sys/net/core/somaxconn", "/proc/sys/kernel/hostname", "/proc/acpi/wakeup"} {
			if err := inTime(t, "a write of "+path, func(ctx context.Context) error {
				return s.Files().WriteFile(ctx, path, []byte("1"))
			}); err == nil {
				t.Errorf("%s was written", path)
			}
		}
		score := says(t, s, "0:0", `print(open("/proc/`+pid+`/oom_score_adj").read())`)
		if n, err := strconv.Atoi(strings.TrimSpace(score)); err != nil || n < 0 {
			t.Errorf("the kernel spares it when memory is short: %s, %v", score, err)
		}
		proctest.Kill(t, p)
	}},
	{"has files of a size that is no memory's", false, func(t *testing.T, w *world) {
		before := w.memory(t)
		s := w.sandbox(t)
		says(t, s, "0:0", `
for shift in (42, 43):
    with open("/tmp/sparse%d" % shift, "w") as f: tried(lambda: f.truncate((1 << shift) - 1))`)
		for _, name := range []string{"/tmp/sparse42", "/tmp/sparse43"} {
			if err := inTime(t, "a read", func(ctx context.Context) error {
				_, err := s.Files().Read(ctx, name, &enough{8 << 20})
				return err
			}); err == nil {
				t.Error("terabytes were read")
			}
		}
		w.grewBy(t, before, 64<<20)
	}},
	{"has thousands of long names in a directory", false, func(t *testing.T, w *world) {
		before := w.memory(t)
		s := w.sandbox(t)
		says(t, s, "0:0", `
os.mkdir("/dev/shm/many"); os.chdir("/dev/shm/many")
name = "\u65e5" * 80
for n in range(8000): os.close(os.open(name + "%05d" % n, os.O_CREAT | os.O_WRONLY))`)
		inTime(t, "the list", func(ctx context.Context) error { _, err := s.Files().List(ctx, "/dev/shm/many", 1); return err })
		w.goesOn(t)
		if err := inTime(t, "the removal", func(ctx context.Context) error { return s.Files().Remove(ctx, "/dev/shm/many") }); err != nil {
			t.Error(err)
		}
		w.grewBy(t, before, 256<<20)
	}},
	{"has directories in each other, deeper than any path", false, func(t *testing.T, w *world) {
		before := w.memory(t)
		s := w.sandbox(t)
		says(t, s, "0:0", `
os.mkdir("/tmp/deep"); os.chdir("/tmp/deep")
for n in range(1500): os.mkdir("d" * 100); os.chdir("d" * 100)
open("bottom", "w")`)
		inTime(t, "the list", func(ctx context.Context) error { _, err := s.Files().List(ctx, "/tmp/deep", 1<<20); return err })
		inTime(t, "the removal", func(ctx context.Context) error { return s.Files().Remove(ctx, "/tmp/deep") })
		w.grewBy(t, before, 128<<20)
	}},
	{"swaps a directory for links while files are written through it", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		p, _ := hold(t, s, "0:0", `
os.makedirs("/tmp/race/a"); os.symlink("/proc/1/root", "/tmp/race/b"); os.symlink("/" + "../" * 20 + "proc/self/fd", "/tmp/race/c")
print("holds", flush=True)
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p] * 2 + [ctypes.c_uint]
while True:
    for other in (b"/tmp/race/b", b"/tmp/race/c"):
        for _ in range(2): libc.renameat2(-100, b"/tmp/race/a", -100, other, 2)`)
		canary := proctest.Value(os.CreateTemp("/tmp", "tend-attack-"))(t).Name()
		defer os.Remove(canary)
		for n := range 150 {
			inTime(t, "a write", func(ctx context.Context) error {
				return s.Files().WriteFile(ctx, "/tmp/race/a"+canary, []byte("written"))
			})
			if n%10 == 0 {
				inTime(t, "a removal", func(ctx context.Context) error { return s.Files().Remove(ctx, "/tmp/race/a"+canary) })
			}
		}
		if b, err := os.ReadFile(canary); err != nil || len(b) != 0 {
			t.Errorf("a file of the machine is %q, %v", b, err)
		}
		proctest.Kill(t, p)
	}},
	{"takes away the rights to its files, and what is needed to remove them", false, func(t *testing.T, w *world) {
		s := w.sandbox(t)
		says(t, s, "0:0", `
for n in range(20):
    os.makedirs("/tmp/shut/%d/a" % n); open("/tmp/shut/%d/a/f" % n, "w").close()
    for path in ("/tmp/shut/%d/a/f" % n, "/tmp/shut/%d/a" % n, "/tmp/shut/%d" % n):
        tried(lambda: os.chown(path, 1000 + n, 65535 - n)); os.chmod(path, 0)
    fd = os.open("/tmp/shut/%d" % n, os.O_RDONLY)
    for flags in (0x10, 0x20, 0x40000000): tried(lambda: fcntl.ioctl(fd, 0x40086602, struct.pack("l",
        flags))) # immutable, append-only, casefold
    fcntl.flock(fd, fcntl.LOCK_EX)`)
		if err := inTime(t, "the removal", func(ctx context.Context) error {
			return s.Files().As("root").Remove(ctx, "/tmp/shut")
		}); err != nil && !testkeeper.IsRootless() {
			// A daemon that is not root has no right there that programs inside have; the sandbox is removed all the same.
			t.Error(err)
		}
	}},
}

// ofRoots are attempts by what lies in the root of a sandbox.
var ofRoots = []attempt{
	{"puts a FIFO, a device, a link out and gigabytes in the place of the files of accounts", false, func(t *testing.T, w *world) {
		before := w.memory(t)
		for _, line := range []string{`os.mkfifo(path)`, `os.symlink("/dev/zero", path)`, `os.symlink("/proc/1/root/etc/passwd", path)`,
			`os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 1 << 42)`, `os.mkdir(path)`,
			`open(path, "w").write("root:x:0:0::/root:/bin/sh\n" + "x" * (32 << 20))`, `open(path,
				"w").write("user:x:" + "9" * 4000 + ":4294967295::" + "/x" * 4000 + "\n" + ":" * 4000 + "\n\0\n")`} {
			s := w.sandbox(t)
			says(t, s, "0:0", `
for path in ("/etc/passwd", "/etc/group"):
    os.rename(path, path + ".old")
    `+line)
			for _, user := range []string{"root", "user"} {
				c := programs(t, s)
				inTime(t, "a start with "+line, func(ctx context.Context) error {
					p, err := c.Start(ctx, process.Spec{User: user, Argv: []string{"true"}})
					if err == nil {
						_, err = p.Wait(ctx, process.Until{})
					}
					return err
				})
				inTime(t, "a list with "+line, func(ctx context.Context) error { _, err := s.Files().As(user).List(ctx, "/etc", 1); return err })
			}
		}
		w.grewBy(t, before, 128<<20)
	}},
	{"is a template whose /proc, /dev and /run are links", true, func(t *testing.T, w *world) {
		for n, link := range []string{"/m/x", "x", "/", "/s", "../../../x"} {
			dir := t.TempDir()
			for _, d := range []string{"x/self", "m/x/self", "usr", "etc", "tmp"} {
				proctest.Must(t, os.MkdirAll(dir+"/"+d, 0o755))
			}
			for _, f := range []string{"x/self/status", "m/x/self/status"} {
				proctest.Must(t, os.WriteFile(dir+"/"+f, []byte("forged"), 0o644))
			}
			proctest.Must(t, os.Symlink(link, dir+"/proc"))
			proctest.Must(t, os.Symlink(link, dir+"/dev"))
			proctest.Must(t, os.Symlink("/x", dir+"/run"))
			for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
				proctest.Must(t, os.Symlink("usr/"+name, dir+"/"+name))
			}
			name := fmt.Sprintf("attack-%d", n)
			b, err := w.c.BuildTemplate(t.Context(), tend.TemplateSpec{Name: name, FromDir: dir}, nil)
			if err != nil {
				t.Logf("a template with /proc at %s: %v", link, err)
				continue
			}
			s, err := w.c.CreateSandbox(t.Context(), tend.SandboxSpec{Template: b.Name, Isolation: tend.IsolationFull,
				Shares: []tend.SandboxShare{{Source: "/usr", ReadOnly: true}}})
			if err == nil {
				if got := says(t, s, "0:0", `
at = [m.split()[4] for m in open("/proc/self/mountinfo")]
print("/proc" in at, "/proc/sys" in at, "/dev" in at, open("/proc/self/status").read()[:5],
    [m.split()[4]
        for m in open("/proc/self/mountinfo")
        if " - proc " in m and m.split()[4].split("/")[1] != "proc"])`); got != "True True True Name: []" {
					t.Errorf("with /proc at %s a program sees %s", link, got)
				}
				proctest.Must(t, s.Destroy(t.Context()))
			}
			proctest.Must(t, w.c.DeleteTemplate(t.Context(), name))
		}
	}},
	{"is the tar of a build: names and links that lead out, devices, attributes of overlays", true, func(t *testing.T, w *world) {
		canary := proctest.Value(os.CreateTemp("/tmp", "tend-attack-"))(t).Name()
		defer os.Remove(canary)
		for n, entry := range hostileEntries(canary) {
			name := fmt.Sprintf("attack-tar-%d", n)
			inTime(t, "a build", func(ctx context.Context) error {
				_, err := w.c.BuildTemplate(ctx, tend.TemplateSpec{Name: name, Steps: []tend.TemplateStep{{Kind: "COPY", Args: []string{".",
					"/tmp/copied/"}, Files: entry}}}, nil)
				return err
			})
			if b, err := os.ReadFile(canary); err != nil || len(b) != 0 {
				t.Errorf("entry %d: a file of the machine is %q, %v", n, b, err)
			}
			w.c.DeleteTemplate(t.Context(), name)
		}
	}},
}
