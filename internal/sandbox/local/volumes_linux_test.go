package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// runAs runs a command as a user, and returns what it writes. It has to end with 0.
func runAs(t *testing.T, s driver.Sandbox, user, line string) string {
	t.Helper()
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: "{ " + line + "; } 2>&1", User: user})
	text := strings.TrimSpace(proctest.Output(t, p, process.Stdout))
	if e := proctest.Wait(t, p, process.Until{}).Exit; e == nil || e.Code != 0 {
		t.Fatalf("%s: %+v: %s", line, e, text)
	}
	return text
}

func mountsOf(names ...string) (all []driver.VolumeMount) {
	for _, n := range names {
		all = append(all, driver.VolumeMount{Name: n, Target: "/data/" + n})
	}
	return all
}

func TestAVolumeIsInSeveralSandboxesAndOutlivesThem(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	d := openReal(t, cfg)
	v, err := d.CreateVolume(t.Context(), "kept")
	proctest.Must(t, err)
	one, err := d.Create(t.Context(), driver.Spec{Volumes: mountsOf("kept")})
	proctest.Must(t, err)
	two, err := d.Create(t.Context(), driver.Spec{Volumes: mountsOf("kept")})
	proctest.Must(t, err)
	user := ""
	if !testkeeper.IsRootless() {
		user = "1001:1001"
	}
	runAs(t, one, user, "cd /data/kept && echo first > a && mkdir dir && echo second > dir/b")
	if got := runAs(t, two, user, "cd /data/kept && cat a dir/b && echo more >> a"); got != "first\nsecond" {
		t.Errorf("the other sandbox reads %q", got)
	}
	if got := runAs(t, one, user, "tail -n 1 /data/kept/a"); got != "more" {
		t.Errorf("what the other wrote is %q", got)
	}
	f, err := d.VolumeFiles(t.Context(), v.ID)
	proctest.Must(t, err)
	defer f.Close()
	content, _, err := f.Open("/a")
	proctest.Must(t, err)
	defer content.Close()
	if text, err := io.ReadAll(content); err != nil || string(text) != "first\nmore\n" {
		t.Errorf("from outside it is %q, %v", text, err)
	}
	if err := d.DeleteVolume(t.Context(), v.ID); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("a volume that two have is deleted: %v", err)
	}
	proctest.Must(t, one.Stop(t.Context()))
	proctest.Must(t, one.Start(t.Context()))
	if got := runAs(t, one, user, "cat /data/kept/dir/b"); got != "second" {
		t.Errorf("after a start it has %q", got)
	}
	those := []driver.Sandbox{one, two}
	if forks, err := d.Fork(t.Context(), infoOf(t, two).ID, driver.ForkSpec{}); err == nil {
		proctest.Must(t, forks[0].Err)
		those = append(those, forks[0].Sandbox)
		if got := runAs(t, forks[0].Sandbox, user, "cat /data/kept/dir/b"); got != "second" {
			t.Errorf("a copy has %q", got)
		}
	} else if !testkeeper.IsRootless() || !errors.Is(err, driver.ErrUnsupported) {
		t.Fatal(err)
	}
	for _, s := range those {
		proctest.Must(t, s.Destroy(t.Context()))
	}
	again := openOn(t, cfg) // a server after this one
	all, err := again.Volumes(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "kept" || all[0].ID != v.ID {
		t.Fatalf("the next server has %+v, %v", all, err)
	}
	three, err := d.Create(t.Context(), driver.Spec{Volumes: mountsOf("kept")})
	proctest.Must(t, err)
	if got := runAs(t, three, user, "cat /data/kept/a"); got != "first\nmore" {
		t.Errorf("a later sandbox has %q", got)
	}
	if in := infoOf(t, three); len(in.Volumes) != 1 || in.Volumes[0] != mountsOf("kept")[0] {
		t.Errorf("it says it has %+v", in.Volumes)
	}
	proctest.Must(t, three.Destroy(t.Context()))
	proctest.Must(t, d.DeleteVolume(t.Context(), v.ID))
	if _, err := os.Lstat(d.volumeDir(v.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are left: %v", err)
	}
}

func infoOf(t *testing.T, s driver.Sandbox) driver.Info {
	t.Helper()
	in, err := s.Info(t.Context())
	proctest.Must(t, err)
	return in
}

func TestWhatNoVolumeCanBe(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	v, err := d.CreateVolume(t.Context(), "a")
	proctest.Must(t, err)
	if _, err := d.CreateVolume(t.Context(), "a"); !errors.Is(err, driver.ErrVolumeExists) {
		t.Errorf("two of one name: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", "a b", strings.Repeat("a", 129)} {
		var invalid *driver.InvalidError
		if _, err := d.CreateVolume(t.Context(), name); !errors.As(err, &invalid) || invalid.Field != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := d.DeleteVolume(t.Context(), driver.NewVolumeID()); !errors.Is(err, driver.ErrNoVolume) {
		t.Errorf("one that there is not: %v", err)
	}
	for name, tc := range map[string]struct {
		mounts []driver.VolumeMount
		field  string
	}{
		"of no volume":        {[]driver.VolumeMount{{Name: "b", Target: "/b"}}, "volumes[0].name"},
		"by its ID":           {[]driver.VolumeMount{{Name: string(v.ID), Target: "/b"}}, "volumes[0].name"},
		"of a path as a name": {[]driver.VolumeMount{{Name: "../" + string(v.ID), Target: "/b"}}, "volumes[0].name"},
		"at the root":         {[]driver.VolumeMount{{Name: "a", Target: "/"}}, "volumes[0].path"},
		"at no absolute path": {[]driver.VolumeMount{{Name: "a", Target: "b"}}, "volumes[0].path"},
		"over ..":             {[]driver.VolumeMount{{Name: "a", Target: "/b/../proc"}}, "volumes[0].path"},
		"over /proc":          {[]driver.VolumeMount{{Name: "a", Target: "/proc/sys"}}, "volumes.path"},
		"twice at one place":  {[]driver.VolumeMount{{Name: "a", Target: "/b"}, {Name: "a", Target: "/b"}}, "volumes[1].path"},
	} {
		var invalid *driver.InvalidError
		if _, err := d.Create(t.Context(), driver.Spec{Volumes: tc.mounts}); !errors.As(err, &invalid) || invalid.Field != tc.field {
			t.Errorf("a mount %s: %v; want %s", name, err, tc.field)
		}
	}
	if all, err := d.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

// The programs of a sandbox own all that is in a volume.
func TestNoLinkLeadsOutOfAVolume(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	d := openReal(t, cfg)
	secret := filepath.Join(t.TempDir(), "secret")
	proctest.Must(t, os.WriteFile(secret, []byte("of this machine"), 0o600))
	mine, err := d.CreateVolume(t.Context(), "mine")
	proctest.Must(t, err)
	other, err := d.CreateVolume(t.Context(), "other")
	proctest.Must(t, err)
	theirs, err := d.VolumeFiles(t.Context(), other.ID)
	proctest.Must(t, err)
	defer theirs.Close()
	if _, err := theirs.Write("/f", strings.NewReader("theirs"), driver.VolumeAttr{}, false); err != nil {
		t.Fatal(err)
	}
	s, err := d.Create(t.Context(), driver.Spec{Volumes: mountsOf("mine")})
	proctest.Must(t, err)
	up := "../" + string(other.ID)
	runAs(t, s, "", "cd /data/mine && mkdir d && ln -s "+secret+" file && ln -s / root && ln -s "+up+" up && ln -s ../"+up+" d/up && mkfifo fifo && "+
		"ln -s /proc/self/root proc && ln -s loop loop && ln -s d inside && echo here > d/f && test ! -e "+filepath.Join("/data/mine", up))
	f, err := d.VolumeFiles(t.Context(), mine.ID)
	proctest.Must(t, err)
	defer f.Close()
	for _, p := range []string{"/file", "root" + secret, "up/f", "d/up/f", "proc" + secret, "loop", "fifo", "../" + string(other.ID) + "/f",
		"d/../../" + string(other.ID) + "/f", "up/../" + string(other.ID) + "/f"} {
		if c, _, err := f.Open(p); err == nil {
			text, _ := io.ReadAll(c)
			t.Errorf("%s is read: %q", p, text)
		}
		if _, err := f.Change(p, driver.VolumeAttr{Mode: new(uint32(0o777))}); err == nil && p != "fifo" {
			t.Errorf("%s is changed", p)
		}
	}
	for _, p := range []string{"up/new", "root" + filepath.Dir(secret) + "/new", "d/up/new", "file/new"} {
		if _, err := f.Write(p, strings.NewReader("x"), driver.VolumeAttr{}, true); err == nil {
			t.Errorf("%s is written", p)
		}
		if _, err := f.Mkdir(p, driver.VolumeAttr{}, true); err == nil {
			t.Errorf("%s is made", p)
		}
		if err := f.Remove(filepath.Dir(p) + "/f"); err == nil {
			t.Errorf("%s is removed", p)
		}
	}
	if _, err := f.List(t.Context(), "up", 2); !errors.Is(err, files.ErrPermission) {
		t.Errorf("a directory outside is listed: %v", err)
	}
	all, err := f.List(t.Context(), "/", driver.MaxVolumeDepth)
	for _, e := range all {
		if strings.Contains(e.Path, "up/") || strings.Contains(e.Path, "root/") {
			t.Errorf("the list follows links: %s", e.Path)
		}
	}
	if err != nil || len(all) != 10 {
		t.Errorf("%d entries, %v", len(all), err)
	}
	// A link that is replaced is not what it leads to.
	if _, err := f.Write("file", strings.NewReader("new"), driver.VolumeAttr{}, true); err != nil {
		t.Errorf("a link is not replaced: %v", err)
	}
	for _, p := range []string{"up", "root", "d"} {
		proctest.Must(t, f.Remove(p))
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "of this machine" {
		t.Errorf("the file outside is %q, %v", text, err)
	}
	if fi, err := os.Stat(secret); err != nil || fi.Mode() != 0o600 {
		t.Errorf("its mode is %v, %v", fi.Mode(), err)
	}
	if _, err := theirs.Stat("/f"); err != nil {
		t.Errorf("the other volume: %v", err)
	}
}

// A volume of an operator who limits them holds so much, in all sandboxes and from outside together, and survives the server.
func TestALimitedVolumeIsFullForAll(t *testing.T) {
	cfg := real(t)
	cfg.VolumeDisk = 16 << 20
	d := openReal(t, cfg)
	v, err := d.CreateVolume(t.Context(), "small")
	if testkeeper.IsRootless() {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("who is not root cannot limit it: %v", err)
		}
		return
	}
	proctest.Must(t, err)
	if v.Disk != cfg.VolumeDisk {
		t.Errorf("it says %d", v.Disk)
	}
	one := proctest.Value(d.Create(t.Context(), driver.Spec{Volumes: mountsOf("small")}))(t)
	two := proctest.Value(d.Create(t.Context(), driver.Spec{Volumes: mountsOf("small")}))(t)
	const user = "1001:1001"
	got := runAs(t, one, user, "cd /data/small && ls -A && echo kept > a && ! head -c 32M /dev/zero > big && stat -c '%u %a' .")
	if !strings.Contains(got, "No space left") || !strings.HasSuffix(got, "\n0 777") {
		t.Errorf("the first sees %q", got)
	}
	got = runAs(t, two, user, "cd /data/small && cat a && ! head -c 4M /dev/zero > more")
	if !strings.HasPrefix(got, "kept\n") || !strings.Contains(got, "No space left") {
		t.Errorf("the second sees %q", got)
	}
	f := proctest.Value(d.VolumeFiles(t.Context(), v.ID))(t)
	if _, err := f.Write("/up", strings.NewReader(strings.Repeat("x", 4<<20)), driver.VolumeAttr{}, false); !errors.Is(err, files.ErrNoSpace) {
		t.Errorf("an upload: %v", err)
	}
	proctest.Must(t, f.Close())
	runAs(t, two, user, "rm /data/small/big /data/small/more; echo b > /data/small/b")
	for _, s := range []driver.Sandbox{one, two} {
		proctest.Must(t, s.Destroy(t.Context()))
	}
	again := openOn(t, cfg)
	f = proctest.Value(again.VolumeFiles(t.Context(), v.ID))(t)
	for _, name := range []string{"/a", "/b"} {
		if _, err := f.Stat(name); err != nil {
			t.Errorf("the next server: %v", err)
		}
	}
	proctest.Must(t, f.Close())
	proctest.Must(t, again.DeleteVolume(t.Context(), v.ID))
	if left, err := filepath.Glob(filepath.Join(cfg.Dir, volumesName, "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
