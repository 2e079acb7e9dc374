//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/cgroup"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

const patience = time.Minute

// world is a state directory with a maker.
type world struct {
	*Maker
	state string
	n     int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	state := proctest.Value(os.MkdirTemp("", "tend-cell-"))(t)
	groups := cgroup.Find("tend-" + filepath.Base(state))
	proctest.Must(t, os.MkdirAll(state+"/run", 0o700))
	m := proctest.Value(NewMaker(state, groups))(t)
	proctest.Must(t, m.Force(os.Getenv(container.WayVariable)))
	t.Cleanup(func() {
		groups.RemoveAll()
		os.RemoveAll(state)
	})
	return &world{Maker: m, state: state}
}

// spec of a container with a directory of its own.
func (w *world) spec(t testing.TB) container.Spec {
	t.Helper()
	w.n++
	s := container.Spec{ID: container.ID(fmt.Sprintf("00000000-0000-4000-8000-%012x", w.n)), UIDBase: 100000, Volatile: true}
	s.Dir = filepath.Join(w.state, "boxes", string(s.ID))
	for _, d := range []string{"up", "wk"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(s.Dir, d), 0o755))
	}
	return s
}

// container makes one, which ends with the test.
func (w *world) container(t testing.TB, s container.Spec) *Container {
	t.Helper()
	c := proctest.Value(w.Make(&s))(t)
	t.Cleanup(func() { w.end(t, c) })
	return c
}

func (w *world) end(t testing.TB, c *Container) {
	t.Helper()
	if c.pidfd < 0 {
		return
	}
	if err := c.Kill(); err != nil {
		t.Error(err)
	}
	if err := c.End(time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
}

// inside runs a shell line in a container, as its root.
func inside(t testing.TB, c *Container, line string) string {
	t.Helper()
	args := []string{"-t", fmt.Sprint(c.PID), "-a", "-S", "0", "-G", "0"}
	if testkeeper.IsRootless() {
		args = []string{"-t", fmt.Sprint(c.PID), "-U", "-m", "-p", "--preserve-credentials"}
	}
	out, err := exec.Command("nsenter", append(args, "/bin/sh", "-c", line)...).CombinedOutput()
	if err != nil {
		t.Logf("%s: %v", line, err)
	}
	return strings.TrimSpace(string(out))
}

func TestNothingOfTheMachineIsReachedInside(t *testing.T) {
	w := newWorld(t)
	secret := proctest.Value(os.MkdirTemp("/usr/local", "tend-secret-"))(t)
	defer os.RemoveAll(secret)
	config := proctest.Value(os.MkdirTemp("/etc/profile.d", "tend-test-"))(t)
	defer os.RemoveAll(config)
	elsewhere := proctest.Value(os.MkdirTemp("/opt", "tend-opt-"))(t)
	defer os.RemoveAll(elsewhere)
	for _, dir := range []string{config, secret, elsewhere} {
		proctest.Must(t, os.Chmod(dir, 0o755))
	}
	for path, mode := range map[string]os.FileMode{secret + "/key": 0o644, secret + "/open": 0o644, secret + "/closed": 0o600, w.state + "/key": 0o644,
		config + "/open": 0o644, config + "/closed": 0o640, elsewhere + "/key": 0o644} {
		proctest.Must(t, os.WriteFile(path, []byte("secret"), mode))
	}
	s := w.spec(t)
	s.Hide = []string{secret + "/key", secret + "/later"}
	c := w.container(t, s)
	for line, want := range map[string]string{
		"id -u; cat /proc/self/uid_map":                                               "0\n         0     100000      65536",
		"ls -A /root /home /home/user /run /tmp /var/tmp /boot /mnt /media /srv /sys": "/boot:\n\n/home:\nuser\n\n/home/user:\n\n/media:\n\n/mnt:\n\n/root:\n\n/run:\n\n/srv:\n\n/sys:\n\n/tmp:\n\n/var/tmp:",
		"ls -A " + config: "open",
		"ls -A " + secret: "open",
		"ls -A /opt":      "",
		"cat /etc/shadow- /etc/gshadow- 2>/dev/null; ls /etc/ssh/*_key 2>/dev/null; ls -A /etc/sudoers.d 2>/dev/null":                                                "",
		"cat " + w.state + "/key 2>/dev/null; find / -xdev -name key -newer /etc/hostname \\( -path '*/tend-container-*' -o -path '*/tend-secret-*' \\) 2>/dev/null": "",
		"ps -e -o pid= | head -1": "1",
		"kill -9 1; kill -USR1 1; kill -TERM 1; kill -0 1 && echo there":                                      "there",
		"echo x > /proc/sys/kernel/panic || echo b > /proc/sysrq-trigger || echo refused":                     "refused",
		"touch /dev/x || mknod /tmp/d b 254 0 || echo refused":                                                "refused",
		"mount | grep -v 'none on' | wc -l":                                                                   "0",
		"readlink /proc/1/root || echo refused":                                                               "/",
		"cat /proc/keys /proc/timer_list":                                                                     "",
		"test -c /dev/null && echo x > /dev/null && echo ok":                                                  "ok",
		"echo y > /etc/new && rm /etc/hostname && stat -c %u /etc/new":                                        "0",
		"script -qc tty /dev/null | tr -d '\\r'":                                                              "/dev/pts/0",
		"f=/proc/sys/kernel/random/boot_id; stat -c '%a %u %s' $f; (echo x > $f) 2>/dev/null || echo refused": "444 0 37\nrefused",
		"umask 0; mkdir /tmp/a && stat -c '%a' /tmp /tmp/a /dev/shm; rmdir /tmp/a":                            "1777\n777\n1777",
	} {
		got := inside(t, c, line)
		if lines := strings.Split(got, "\n"); want == "refused" {
			got = lines[len(lines)-1]
		}
		if got != want {
			t.Errorf("%s: %q; want %q", line, got, want)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(s.Dir+"/up/etc/new", &st); err != nil || st.Uid != 0 {
		t.Errorf("what root made inside is of uid %d on the disk, %v", st.Uid, err)
	}
	if _, err := os.Stat("/etc/hostname"); err != nil {
		t.Errorf("the machine's own file: %v", err)
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d", c.PID), &st); err != nil || st.Uid != 100000 {
		t.Errorf("pid 1 is of uid %d outside, %v", st.Uid, err)
	}
}

// TestRootInsideBecomesEachUser: by files alone, also on a machine without nss-systemd. Nobody
// has a password, whatever the machine's own files say.
func TestRootInsideBecomesEachUser(t *testing.T) {
	w := newWorld(t)
	c := w.container(t, w.spec(t))
	inside(t, c, "sed -i 's/systemd//g' /etc/nsswitch.conf")
	for line, want := range map[string]string{
		"for u in $(cut -d: -f1 /etc/passwd); do test \"$(su -s /bin/sh $u -c 'id -un')\" = $u || echo $u; done":                          "",
		"su -s /bin/sh - nobody -c 'id -un' 2>/dev/null":                                                                                  "nobody",
		"stat -c '%a %U' /etc/shadow /etc/gshadow":                                                                                        "640 root\n640 root",
		"test \"$(stat -c %G /etc/shadow /etc/gshadow | uniq)\" = \"$(grep -o ^shadow: /etc/group | tr -d : || echo root)\" && echo same": "same",
		"cut -d: -f2 /etc/shadow /etc/gshadow | uniq":                                                                                     "*",
		"cut -d: -f1 /etc/passwd >/tmp/a; cut -d: -f1 /etc/shadow | cmp - /tmp/a && echo same":                                            "same",
		"useradd -m -s /bin/sh new && su - new -c 'id -un; pwd' && userdel -r new 2>/dev/null; id new >/dev/null 2>&1 || echo gone":       "new\n/home/new\ngone",
	} {
		if got := inside(t, c, line); got != want {
			t.Errorf("%s: %q; want %q", line, got, want)
		}
	}
	// A layer has such files of its own.
	s := w.spec(t)
	s.Layers = []string{w.state + "/own"}
	proctest.Must(t, os.MkdirAll(s.Layers[0]+"/etc", 0o755))
	proctest.Must(t, os.WriteFile(s.Layers[0]+"/etc/shadow", []byte("root:x1:::::::\n"), 0o640))
	if got := inside(t, w.container(t, s), "cat /etc/shadow"); got != "root:x1:::::::" {
		t.Errorf("a layer's own is %q", got)
	}
	// Nor has one in which nobody may see users.
	s = w.spec(t)
	s.Hide = []string{"/etc/passwd"}
	if got := inside(t, w.container(t, s), "cat /etc/shadow"); got != "" {
		t.Errorf("without users it is %q", got)
	}
}

// TestASkeletonIsForTheSettingsOfNow: those of before are not used once the machine's have changed.
func TestASkeletonIsForTheSettingsOfNow(t *testing.T) {
	w := newWorld(t)
	stages := func() int {
		w.container(t, w.spec(t))
		return len(w.parts.stages)
	}
	stages()
	s := w.spec(t)
	s.Hide = []string{"/usr/other"}
	w.container(t, s)
	if n := stages(); n != 2 {
		t.Errorf("with the same settings there are %d", n)
	}
	w.parts.settings[0].size-- // as if /etc/passwd had been shorter
	if n := stages(); n != 1 {
		t.Errorf("with others there are %d", n)
	}
	w.parts.stages[0].pieces[0].ino-- // as if /usr had been another directory
	if w.parts.renew(); len(w.parts.stages) != 0 {
		t.Error("a stage lives whose piece is gone")
	}
}

func TestLayersLieOverEachOther(t *testing.T) {
	w := newWorld(t)
	s := w.spec(t)
	for i := range container.MaxLayers {
		dir := fmt.Sprintf("%s/layer%d", w.state, i)
		proctest.Must(t, os.MkdirAll(dir+"/data", 0o755))
		for name, text := range map[string]string{"top": fmt.Sprint(i), fmt.Sprintf("of%d", i): "x"} {
			proctest.Must(t, os.WriteFile(dir+"/data/"+name, []byte(text), 0o644))
		}
		s.Layers = append(s.Layers, dir)
	}
	proctest.Must(t, unix.Mknod(s.Layers[0]+"/data/of5", unix.S_IFCHR, 0))
	c := w.container(t, s)
	if got := inside(t, c, "cat /data/top; ls /data | wc -l; ls /data/of5 2>/dev/null; test -e /etc/passwd && echo base"); got != fmt.Sprintf("0%d\nbase", container.MaxLayers) {
		t.Errorf("inside: %q", got)
	}
	w.end(t, c)
	// A root that lacks all places for mounts, and in which one leads elsewhere.
	root := w.state + "/root"
	if out, err := exec.Command("sh", "-c", "mkdir -p "+root+"/bin && ln -s /bin "+root+"/run && cp $(readlink -f $(command -v busybox || echo /bin/true)) "+root+"/bin/").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s = w.spec(t)
	s.Base, s.Layers = container.BaseNone, []string{root}
	if c, err := w.Make(&s); err == nil { // the kernel mounts over /bin inside
		w.end(t, c)
	}
	proctest.Must(t, os.Remove(root+"/run"))
	s = w.spec(t)
	s.Base, s.Layers = container.BaseNone, []string{root}
	c = w.container(t, s)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", c.PID))
	if err != nil || len(entries) != 5 {
		t.Errorf("a root of its own has %v, %v", entries, err)
	}
}

func TestBindsShowWhatTheyShouldAndNoMore(t *testing.T) {
	w := newWorld(t)
	s := w.spec(t)
	data := w.state + "/data"
	proctest.Must(t, os.Mkdir(data, 0o755))
	proctest.Must(t, os.WriteFile(data+"/f", []byte("text"), 0o644))
	// What an earlier life of the container left where a bind is to be.
	proctest.Must(t, os.Symlink("../../../../etc", s.Dir+"/up/sly"))
	s.Binds = []container.Bind{{Source: data, Target: "/deep/data"}, {Source: data, Target: "/ro", ReadOnly: true}, {Source: data + "/f", Target: "/file"}, {Source: data, Target: "/sly/data"}}
	c := w.container(t, s)
	if got := inside(t, c, "cat /deep/data/f /ro/f /file /etc/data/f; echo new > /deep/data/new; stat -c %u /deep/data/new; touch /ro/x 2>/dev/null || echo refused"); got != "texttexttexttext0\nrefused" {
		t.Errorf("inside: %q", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(data+"/new", &st); err != nil || st.Uid != 0 {
		t.Errorf("on the disk: uid %d, %v", st.Uid, err)
	}
	if _, err := os.Stat("/etc/data"); err == nil {
		t.Error("a symbolic link inside led to a directory of the machine")
	}
}

func TestABindThatItsTargetCannotTakeIsRefused(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir()
	proctest.Must(t, os.WriteFile(data+"/f", nil, 0o644))
	for _, b := range []container.Bind{{Source: data, Target: "/etc/passwd"}, {Source: data, Target: "/etc/passwd/below"}, {Source: data + "/f", Target: "/etc"}, {Source: data, Target: "/proc/none"}} {
		s := w.spec(t)
		s.Binds = []container.Bind{b}
		c, err := w.Make(&s)
		if err == nil {
			err = errors.Join(errors.New("it was made"), c.Kill(), c.End(time.Now().Add(patience)))
		}
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "binds[0].target" {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

func TestAContainerComesBackOnItsFiles(t *testing.T) {
	w := newWorld(t)
	s := w.spec(t)
	c := w.container(t, s)
	inside(t, c, "echo kept > /tmp/f; rm /etc/hostname")
	w.end(t, c)
	c = w.container(t, s)
	if got := inside(t, c, "cat /tmp/f; ls /etc/hostname 2>/dev/null"); got != "kept" {
		t.Errorf("inside: %q", got)
	}
}

// what is left of containers, by kind.
func leftovers(t testing.TB, w *world) string {
	t.Helper()
	count := func(path string) (all, dirs int) {
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			if all++; e.IsDir() {
				dirs++
			}
		}
		return all, dirs
	}
	descriptors, _ := count("/proc/self/fd")
	_, groups := count(w.groups.Root()) // its files are more once somebody asks for a controller
	files, _ := count(w.dir)
	mounts := proctest.Value(os.ReadFile("/proc/self/mountinfo"))(t)
	return fmt.Sprintf("%d descriptors, %d mounts, %d groups, %d files", descriptors, strings.Count(string(mounts), "\n"), groups, files)
}

func TestManyContainersLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.end(t, w.container(t, w.spec(t)))
	was := leftovers(t, w)
	var pids []int
	for range 20 {
		var wg sync.WaitGroup
		specs := make([]container.Spec, 10)
		for i := range specs {
			specs[i] = w.spec(t)
			specs[i].Limits = container.Limits{Memory: 64 << 20, Tasks: 50, CPUs: 1}
		}
		containers := make([]*Container, len(specs))
		for i := range specs {
			wg.Go(func() {
				c, err := w.Make(&specs[i])
				if err != nil {
					t.Error(err)
					return
				}
				containers[i] = c
				if i%2 == 0 {
					if err := c.Network(); err != nil {
						t.Error(err)
					}
				}
				w.end(t, c)
			})
		}
		wg.Wait()
		for _, c := range containers {
			if c != nil {
				pids = append(pids, c.PID)
			}
		}
	}
	proctest.Eventually(t, "there is what was there before: "+was, func() bool { return leftovers(t, w) == was })
	for _, pid := range pids {
		if isFirst(pid) {
			t.Errorf("pid %d is there", pid)
		}
	}
}

// TestStagesThatFallOutLeaveNothing: what is hidden differs from container to container here, so each has a
// stage of its own, more than are kept. One that has fallen out lives as long as its containers need
// what is hidden there, and no longer.
func TestStagesThatFallOutLeaveNothing(t *testing.T) {
	others := mountNamespaces(t)
	w := newWorld(t)
	secret := proctest.Value(os.MkdirTemp("/usr/local", "tend-secret-"))(t)
	defer os.RemoveAll(secret)
	proctest.Must(t, os.Chmod(secret, 0o755))
	var containers []*Container
	for i := range 3 * mostBases {
		s := w.spec(t)
		name := fmt.Sprint(secret, "/", i)
		proctest.Must(t, os.WriteFile(name, nil, 0o644))
		s.Hide = []string{name}
		containers = append(containers, w.container(t, s))
	}
	for i, c := range containers {
		// A file that was made after a container's stage is not hidden there, and may show or not.
		if names := strings.Fields(inside(t, c, "ls "+secret)); slices.Contains(names, fmt.Sprint(i)) || i > 0 && !slices.Contains(names, "0") {
			t.Errorf("container %d sees %v", i, names)
		}
		w.end(t, c)
	}
	was := leftovers(t, w)
	for i := range 3 * mostBases {
		s := w.spec(t)
		s.Hide = []string{fmt.Sprint(secret, "/other", i)}
		w.end(t, w.container(t, s))
	}
	proctest.Eventually(t, "there is what was there before: "+was, func() bool { return leftovers(t, w) == was })
	if now := mountNamespaces(t); now != others+mostBases {
		t.Errorf("this process holds %d mount namespaces, and held %d before the first container", now, others)
	}
}

// mountNamespaces is how many this process has open.
func mountNamespaces(t *testing.T) (n int) {
	t.Helper()
	for _, e := range proctest.Value(os.ReadDir("/proc/self/fd"))(t) {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "mnt:") {
			n++
		}
	}
	return n
}

func TestLimitsAreThoseOfTheKernel(t *testing.T) {
	w := newWorld(t)
	s := w.spec(t)
	s.Limits = container.Limits{Memory: 32 << 20, Tasks: 20, CPUs: 0.5}
	c := w.container(t, s)
	for _, l := range []string{container.LayerMemory, container.LayerTasks, container.LayerCPU} {
		if !slices.Contains(c.Active, l) {
			t.Errorf("%s is not among %v", l, c.Active)
		}
	}
	if tasks := proctest.Value(c.Nest.Tasks())(t); len(tasks) > 0 {
		t.Errorf("an idle container has %d groups of v1 controllers", len(tasks))
	}
	// A program that is more than the first one changes nothing of a limit that was changed.
	s.Limits.Tasks = 25
	proctest.Must(t, c.Limit(s.Limits))
	proctest.Must(t, c.Furnish())
	s.Limits.Tasks = 20
	proctest.Must(t, c.Limit(s.Limits))
	proctest.Must(t, c.Furnish())
	tasks := proctest.Value(c.Nest.Tasks())(t)
	cmd := exec.Command("sh", "-c", "read go; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 60 & done; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in := proctest.Value(cmd.StdinPipe())(t)
	proctest.Must(t, cmd.Start())
	end := sync.OnceFunc(func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL); cmd.Wait() })
	defer end()
	for _, fd := range tasks {
		if _, err := unix.Write(fd, []byte(fmt.Sprint(cmd.Process.Pid))); err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	}
	if len(tasks) == 0 { // a pure v2 machine
		proctest.Must(t, os.WriteFile(c.Nest.Dir()+"/init/cgroup.procs", []byte(fmt.Sprint(cmd.Process.Pid)), 0))
	}
	fmt.Fprintln(in, "go")
	in.Close()
	for end := time.Now().Add(patience); time.Now().Before(end) && c.Nest.Usage().Tasks < 19; time.Sleep(time.Millisecond) {
	}
	if n := c.Nest.Usage().Tasks; n < 19 || n > 20 {
		t.Errorf("%d tasks", n)
	}
	end()
	if err := c.Limit(container.Limits{}); err != nil {
		t.Error(err)
	}
}

// FuzzFile: whatever lies in the directory of files makes no trouble, and what is read is
// written as it was.
func FuzzFile(f *testing.F) {
	w := record{state: made, pid: 5, started: 1 << 40, boot: "0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a10", nest: "abc-1", spec: container.Spec{ID: "0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a10", Dir: "/d", UIDBase: 100000, Layers: []string{"/l"}}}
	f.Add(w.encode())
	w.nest = "../.."
	f.Add(w.encode())
	f.Add(w.encode()[:offSpec])
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		if strings.ContainsRune(r.nest, '/') || r.spec.Validate() != nil {
			t.Fatalf("%+v", r)
		}
		again, err := decode(r.encode())
		if err != nil || !again.spec.Equal(&r.spec) || again.pid != r.pid || again.nest != r.nest || again.started != r.started {
			t.Fatalf("%+v, %v; want %+v", again, err, r)
		}
	})
}

func TestABindFollowsNoLinks(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir()
	proctest.Must(t, os.Symlink("/root", data+"/link"))
	for _, source := range []string{data + "/link", data + "/link/x", "/proc/self/root/etc", "/proc/self/cwd"} {
		s := w.spec(t)
		s.Binds = []container.Bind{{Source: source, Target: "/s"}}
		c, err := w.Make(&s)
		if err == nil {
			err = errors.Join(errors.New("it was made"), c.Kill(), c.End(time.Now().Add(patience)))
		}
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "binds[0].source" {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// A group may be left without a file: of a container whose file another one of the same ID took.
func TestAGroupWithoutAFileIsEndedWithAllInIt(t *testing.T) {
	w := newWorld(t)
	c := w.container(t, w.spec(t))
	pid := c.PID
	proctest.Must(t, os.Remove(c.path()))
	live, over := Find(w.state, w.groups, t.Logf)
	if len(live) != 0 || len(over) != 1 || !over[0].Unfiled() {
		t.Fatalf("found %+v, %+v", live, over)
	}
	proctest.Must(t, over[0].Kill())
	collect(pid)
	proctest.Must(t, over[0].End(time.Now().Add(patience)))
	if names := w.groups.Nests(); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	if _, err := os.Stat(w.dir); err != nil {
		t.Errorf("the directory of the files: %v", err)
	}
}
