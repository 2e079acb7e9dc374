package procfs

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTheTestsOwnProcessIsRead(t *testing.T) {
	s, ok := ReadStat(os.Getpid())
	if !ok || s.PPID != os.Getppid() || s.Dead() || s.Stopped() {
		t.Errorf("%+v, %v; its parent is %d", s, ok, os.Getppid())
	}
	if at := Started(os.Getpid()); at <= 0 || at > BootTime() {
		t.Errorf("it started at %d ns; now it is %d", at, BootTime())
	}
	if pids, err := PIDs(); err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("pids: %v, %v", pids, err)
	}
	if _, ok := ReadStat(1 << 30); ok || Started(1<<30) != 0 {
		t.Error("a process that cannot be is there")
	}
	if BootID() == "" || !KernelAtLeast(2, 6) || KernelAtLeast(1000, 0) {
		t.Error("the boot or the kernel is not known")
	}
}

// TestAProcessWithoutItsFirstThreadIsNotDead: any program may end its first thread and go on.
func TestAProcessWithoutItsFirstThreadIsNotDead(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import ctypes, os, threading, time
def go_on():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z": time.sleep(0.001)
    print("on", flush=True)
    os.read(0, 1)
    os._exit(0)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall(`+strconv.Itoa(unix.SYS_EXIT)+`, 0)`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "on\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	if s, ok := ReadStat(cmd.Process.Pid); !ok || s.State != 'Z' || s.Dead() {
		t.Errorf("%+v, %v, dead %v; its second thread runs", s, ok, s.Dead())
	}
	in.Close()
	var ended unix.Siginfo
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &ended, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if s, ok := ReadStat(cmd.Process.Pid); !ok || !s.Dead() {
		t.Errorf("%+v, %v; it has ended and is not collected", s, ok)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// BenchmarkReadStat: a walk through the process table reads one for each process.
func BenchmarkReadStat(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ReadStat(os.Getpid())
	}
}

func TestTheInnermostPIDIsRead(t *testing.T) {
	if pid := InnerPID(os.Getpid()); pid != 0 {
		t.Errorf("this process has the pid %d inside", pid)
	}
	for text, want := range map[string]int{
		"Name:\tsh\nNgid:\t0\nNSpid:\t4321\t17\t3\nNSpgid:\t1\n": 3,
		"Name:\tsh\nNSpid:\t4321\nNSpgid:\t1\n":                  0,
		"Name:\tsh\nNSpid:\t4321\tx\n":                           0,
		"Name:\tsh\n":                                            0, "": 0,
	} {
		if got := parseInner([]byte(text)); got != want {
			t.Errorf("of %q it is %d, want %d", text, got, want)
		}
	}
}

func TestASessionHasTheUseOfItsProcesses(t *testing.T) {
	s, ok := ReadStat(os.Getpid())
	if !ok {
		t.Fatal("the test's own process cannot be read")
	}
	use := Sessions()[os.Getpid()] // the session may have no leader any more
	if use.Memory < 1<<20 || use.CPU < time.Duration(s.User+s.System)*Tick {
		t.Errorf("the test's own session uses %+v; its own process %+v", use, s)
	}
	if n := residentPages([]byte("1 (a) b) R 1")); n != 0 {
		t.Errorf("half a line has %d pages", n)
	}
}
