package local

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/disk"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/image"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

const smallDisk = image.Least

// loops are the loop devices of files below a directory.
func loops(t *testing.T, dir string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	proctest.Must(t, err)
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), dir+"/") {
			n++
		}
	}
	return n
}

// TestADiskOutlivesKeeperAndServer: as the same one, and nothing of it is left when the
// sandbox has ended.
func TestADiskOutlivesKeeperAndServer(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	m := cfg.Manager.(*client.Manager)
	d := openReal(t, cfg)
	s, _ := create(t, d, driver.Spec{Name: "kept", Size: driver.Size{Disk: smallDisk}})
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: "cd /root; while read line; do echo $line >>lines; echo got $line; done", Stdin: process.StdinPipe})
	for _, round := range []string{"one", "two"} {
		proctest.Must(t, syscall.Kill(keeper(t, m), syscall.SIGKILL))
		d = openOn(t, cfg)
		proctest.Write(t, p, round+"\n")
		proctest.Wait(t, p, process.Until{Match: "got " + round})
		found := proctest.Value(d.Get(t.Context(), "kept"))(t)
		if in := info(t, found); in.State != driver.Ready || in.Size.Disk != smallDisk {
			t.Errorf("after a death it is %+v", in)
		}
		if n := loops(t, cfg.Dir); n != 1 {
			t.Errorf("it has %d loop devices", n)
		}
	}
	found := proctest.Value(d.Get(t.Context(), "kept"))(t)
	proctest.Must(t, found.Stop(t.Context()))
	proctest.Eventually(t, "a stopped one has no loop device", func() bool { return loops(t, cfg.Dir) == 0 })
	proctest.Must(t, found.Start(t.Context()))
	if out, _ := inShell(t, found, "", `cat /root/lines; dd if=/dev/zero of=/root/more bs=1M count=32 2>/dev/null || echo full`); out != "one\ntwo\nfull" {
		t.Errorf("it has %q", out)
	}
	proctest.Must(t, found.Destroy(t.Context()))
	proctest.Eventually(t, "nothing of it is left", func() bool { return loops(t, cfg.Dir) == 0 })
}

// TestAContainerWhoseFirstProcessIsKilledLeavesNoDevice: by whoever; its disk is as it was.
func TestAContainerWhoseFirstProcessIsKilledLeavesNoDevice(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	d := openReal(t, cfg)
	s, _ := create(t, d, driver.Spec{Size: driver.Size{Disk: smallDisk}})
	inShell(t, s, "", "echo kept >/root/file")
	s.mu.Lock()
	pid := s.container.PID
	s.mu.Unlock()
	proctest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	proctest.Eventually(t, "nothing is left", func() bool {
		d.notice(t.Context()) // it has the root open
		return loops(t, cfg.Dir) == 0
	})
	proctest.Must(t, s.Start(t.Context()))
	if out, _ := inShell(t, s, "", "cat /root/file"); out != "kept" {
		t.Errorf("it has %q", out)
	}
}

// TestDisksTogetherNeverNeedMoreThanTheMachineHas: what a sandbox was given it can write,
// whatever others do.
func TestDisksTogetherNeverNeedMoreThanTheMachineHas(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	free := proctest.Value(freeOf(d.cfg.Dir))(t)
	most := free * 6 / 10
	first, _ := create(t, d, driver.Spec{Size: driver.Size{Disk: most}})
	if used := image.Used(first.diskFile()); used > 64<<20 {
		t.Errorf("a disk of %d MiB takes %d", most>>20, used>>20)
	}
	_, err := d.Create(t.Context(), driver.Spec{Name: "second", Size: driver.Size{Disk: most}})
	if !errors.Is(err, driver.ErrLimit) || !strings.Contains(err.Error(), "ask for less") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := d.Get(t.Context(), "second"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	create(t, d, driver.Spec{Size: driver.Size{Disk: smallDisk}})
	proctest.Must(t, first.Destroy(t.Context()))
	proctest.Must(t, d.empty(t.Context()))
	create(t, d, driver.Spec{Name: "second", Size: driver.Size{Disk: most}})
	for _, size := range []int64{1, image.Least - 1, image.Most + 1} {
		var invalid *driver.InvalidError
		if _, err := d.Create(t.Context(), driver.Spec{Size: driver.Size{Disk: size}}); !errors.As(err, &invalid) || invalid.Field != "size.disk" {
			t.Errorf("a disk of %d bytes: %v", size, err)
		}
	}
}

// TestADisposableSandboxHasANewDisk: each time.
func TestADisposableSandboxHasANewDisk(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	s, in := create(t, d, driver.Spec{Disposable: true, Size: driver.Size{Disk: smallDisk}})
	for range 2 {
		if out, _ := inShell(t, s, "", "cat /root/file; echo x >/root/file; rm /bin/tac && echo removed"); out != "cat: /root/file: No such file or directory\nremoved" {
			t.Errorf("it has %q", out)
		}
		proctest.Must(t, s.Stop(t.Context()))
		if _, err := os.Lstat(s.diskFile()); err == nil {
			t.Error("its disk is kept")
		}
		snap, err := d.Snapshot(t.Context(), in.ID, driver.SnapshotSpec{})
		if err != nil || snap.Bytes != 0 {
			t.Errorf("a snapshot of nothing: %+v, %v", snap, err)
		}
		proctest.Must(t, s.Start(t.Context()))
	}
}

// TestADiskThatIsGoneIsAnErrorAndNotAnEmptyOne: nobody takes the loss for the sandbox's own.
func TestADiskThatIsGoneIsAnErrorAndNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	s, _ := create(t, d, driver.Spec{Size: driver.Size{Disk: smallDisk}})
	inShell(t, s, "", "echo x >/root/file")
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, os.Rename(s.diskFile(), s.diskFile()+".away"))
	if err := s.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it starts: %v", err)
	}
	proctest.Must(t, os.Rename(s.diskFile()+".away", s.diskFile()))
	proctest.Must(t, s.Start(t.Context()))
	if out, _ := inShell(t, s, "", "cat /root/file"); out != "x" {
		t.Errorf("it has %q", out)
	}
}

// TestWhoAsksForNoDiskHasThatOfAll: those that were made before have what they had.
func TestWhoAsksForNoDiskHasThatOfAll(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	before, in := create(t, openReal(t, cfg), driver.Spec{Name: "before"})
	if in.Size.Disk != 0 {
		t.Errorf("it has %+v", in.Size)
	}
	inShell(t, before, "", "echo x >/root/file")
	cfg.Disk = 2 * smallDisk
	d := openOn(t, cfg)
	for name, want := range map[string]driver.Size{"asks": {Disk: smallDisk}, "asks-not": {Disk: 2 * smallDisk}} {
		spec := driver.Spec{Name: name}
		if name == "asks" {
			spec.Size.Disk = smallDisk
		}
		if _, in := create(t, d, spec); in.Size.Disk != want.Disk {
			t.Errorf("%s has %d bytes, want %d", name, in.Size.Disk, want.Disk)
		}
	}
	old := proctest.Value(d.Get(t.Context(), "before"))(t)
	proctest.Must(t, old.Stop(t.Context()))
	proctest.Must(t, old.Start(t.Context()))
	if out, _ := inShell(t, old, "", "cat /root/file"); out != "x" || info(t, old).Size.Disk != 0 {
		t.Errorf("it has %q and %+v", out, info(t, old).Size)
	}
}

// TestABuildStaysOnItsDisk: its steps see what those before left, and sandboxes of the
// template have a disk of that size.
func TestABuildStaysOnItsDisk(t *testing.T) {
	d, _ := boxed(t)
	spec := driver.BuildSpec{Name: "sized", Size: driver.Size{Disk: smallDisk}, Steps: []driver.Step{
		step("RUN", "dd if=/dev/zero of=/one bs=1M count=10"), step("RUN", "dd if=/dev/zero of=/two bs=1M count=10; ls /one"), step("RUN", "rm /one; ln /two /three"), step("RUN", "true"),
	}}
	if b, log := built(t, d, spec); b.Status != driver.BuildReady {
		t.Fatalf("%+v\n%s", b, log)
	}
	s, in := create(t, d, driver.Spec{Template: "sized"})
	if got := inSandbox(t, s, "ls /one /two /three 2>/dev/null; true"); in.Size.Disk != smallDisk || strings.Join(strings.Fields(got), " ") != "/three /two" {
		t.Errorf("it has %+v and %q", in.Size, got)
	}
	spec.Name, spec.Steps = "bomb", []driver.Step{step("RUN", "dd if=/dev/zero of=/one bs=1M count=64")}
	if b, log := built(t, d, spec); b.Status == driver.BuildReady || !strings.Contains(log, "No space left") {
		t.Errorf("a bomb: %+v\n%s", b, log)
	}
}

// TestADiskThatTheMachineLeftHalfWrittenIsRepaired: before anything runs on it.
func TestADiskThatTheMachineLeftHalfWrittenIsRepaired(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	var log strings.Builder
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := openReal(t, cfg)
	s, _ := create(t, d, driver.Spec{Size: driver.Size{Disk: smallDisk}})
	inShell(t, s, "", "echo x >/root/file; sync")
	// As the machine's disk had it at a moment.
	m := proctest.Value(disk.Open(s.diskFile()))(t)
	b := proctest.Value(os.ReadFile(s.diskFile()))(t)
	proctest.Must(t, m.Close())
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Eventually(t, "the kernel is done with it", func() bool { return loops(t, cfg.Dir) == 0 })
	proctest.Must(t, os.WriteFile(s.diskFile(), b, 0o600))
	proctest.Must(t, s.Start(t.Context()))
	if !strings.Contains(log.String(), "was repaired") {
		t.Errorf("the log says nothing of it: %s", log.String())
	}
	if out, _ := inShell(t, s, "", "echo y >/root/other && cat /root/other"); out != "y" {
		t.Errorf("it has %q", out)
	}
}

// TestWithoutDisksNobodyClaimsThem: what a server of before cannot do, and a machine without
// loop devices.
func TestWithoutDisksNobodyClaimsThem(t *testing.T) {
	t.Parallel()
	cfg, _ := onPaper(t)
	var log strings.Builder
	cfg.Log, cfg.Disk = slog.New(slog.NewTextHandler(&log, nil)), smallDisk
	d := openOn(t, cfg)
	for _, spec := range []driver.Spec{{}, {Size: driver.Size{Disk: smallDisk}}} {
		s, in := create(t, d, spec)
		if _, err := os.Lstat(s.diskFile()); err == nil || in.Size.Disk != 0 {
			t.Errorf("with %+v it claims %+v", spec.Size, in.Size)
		}
	}
	if !strings.Contains(log.String(), "no limit of "+container.LayerDisk) {
		t.Errorf("the log says nothing of it: %s", log.String())
	}
}

// TestADiskThatMetTheEndOfTheMachinesIsRepaired: something that is no sandbox has filled the
// machine's disk, and the kernel could not write what was promised. Once there is room the
// sandbox works again.
func TestADiskThatMetTheEndOfTheMachinesIsRepaired(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	machine := t.TempDir()
	proctest.Must(t, unix.Mount("none", machine, "tmpfs", 0, "mode=755,size=64m"))
	t.Cleanup(func() { proctest.Must(t, unix.Unmount(machine, unix.MNT_DETACH)) })
	cfg.Dir = filepath.Join(machine, "sandboxes")
	d := openReal(t, cfg)
	s, _ := create(t, d, driver.Spec{Size: driver.Size{Disk: 2 * smallDisk}})
	inShell(t, s, "", "echo before >/root/before; sync")
	filler := filepath.Join(machine, "filler")
	if err := os.WriteFile(filler, make([]byte, 64<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the machine's disk is not full: %v", err)
	}
	out, _ := inShell(t, s, "", "dd if=/dev/urandom of=/root/lost bs=1M count=24 2>&1; sync; mkdir /root/d; sync; mkdir /root/e")
	t.Logf("inside: %s", out)
	proctest.Must(t, os.Remove(filler))
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, s.Start(t.Context()))
	if out, _ := inShell(t, s, "", `cat /root/before; dd if=/dev/zero of=/root/new bs=1M count=4 2>/dev/null && sync && wc -c </root/new`); out != "before\n4194304" {
		t.Errorf("it has %q", out)
	}
}
