package local

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/drivertest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Programs that take all they get, up to a bound, and hold it.
const (
	forkBomb   = `perl -e '$| = 1; while ($n < 6000) { my $p = fork; last if !defined $p; if (!$p) { sleep 600; exit } $n++ } print "holds $n\n"; sleep 600'`
	memoryBomb = `perl -e '$x = "x" x (256 << 20); print length $x'`
	fileBomb   = `perl -e '$| = 1; for (1 .. 12) { last if !fork; } while (open my $f, "<", "/dev/null") { push @f, $f; last if @f == 4000 } print "holds\n"; sleep 600'`
)

// TestBombsStayInTheirSandbox: what is used up is the sandbox's own, whether it asked for
// limits or has those of all. Meanwhile its neighbour and the machine go on.
func TestBombsStayInTheirSandbox(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	d.defaults = driver.Size{Tasks: 200, Memory: 128 << 20}
	neighbour, _ := create(t, d, driver.Spec{})
	goesOn := func(what string) {
		t.Helper()
		if out, status := inShell(t, neighbour, "", `perl -e 'for (1 .. 20) { open my $f, "<", "/dev/null" or die; push @f, $f } print "on"'`); out != "on" {
			t.Errorf("during %s the neighbour says %q, status %d", what, out, status)
		}
		if f, err := os.Open("/dev/null"); err != nil {
			t.Errorf("during %s the machine: %v", what, err)
		} else {
			f.Close()
		}
	}
	for _, c := range []struct {
		what, layer, line string
		size              driver.Size
		most              int64 // tasks
	}{
		{"a fork bomb with a limit", container.LayerTasks, forkBomb, driver.Size{Tasks: 32}, 32},
		{"a fork bomb", container.LayerTasks, forkBomb, driver.Size{}, 200},
		{"a bomb of descriptors", container.LayerMemory, fileBomb, driver.Size{}, 200},
	} {
		if drivertest.Lacks(t, d, c.layer) {
			continue
		}
		s, in := create(t, d, driver.Spec{Size: c.size})
		if in.Size.Tasks != c.most || in.Size.Memory != d.defaults.Memory {
			t.Errorf("%s: the sandbox says that it has %+v", c.what, in.Size)
		}
		p := proctest.Start(t, s.Processes(), process.Spec{Shell: c.line})
		if _, err := p.Wait(t.Context(), process.Until{Match: "^holds"}); err != nil {
			t.Fatal(err)
		}
		use, err := d.cfg.Engine.Usage(t.Context(), container.ID(in.ID))
		if err != nil || use.Tasks > c.most+1 { // and pid 1
			t.Errorf("%s holds %+v, %v", c.what, use, err)
		}
		goesOn(c.what)
		proctest.Must(t, s.Destroy(t.Context()))
	}
	for _, size := range []driver.Size{{Memory: 64 << 20}, {}} {
		if drivertest.Lacks(t, d, container.LayerMemory) {
			break
		}
		s, _ := create(t, d, driver.Spec{Size: size})
		if out, status := inShell(t, s, "", memoryBomb); status != 128+int(unix.SIGKILL) {
			t.Errorf("a memory bomb with %+v: %q, status %d", size, out, status)
		}
		if out, _ := inShell(t, s, "", `dd if=/dev/zero of=/dev/shm/bomb bs=1M count=256 2>/dev/null; echo $?`); out == "0" {
			t.Error("files in memory do not count")
		}
		goesOn("a bomb of memory")
		proctest.Must(t, s.Destroy(t.Context()))
	}
}

// TestSessionsOfASandboxShareItsTime: one has hundreds of sessions that are busy, and its neighbour
// a single program. What both get is compared, whatever else the machine does.
func TestSessionsOfASandboxShareItsTime(t *testing.T) {
	d := openReal(t, real(t))
	if drivertest.Lacks(t, d, container.LayerCPU) {
		return
	}
	one, _ := create(t, d, driver.Spec{})
	other, _ := create(t, d, driver.Spec{})
	for s, line := range map[driver.Sandbox]string{
		one:   `perl -MPOSIX -e '$| = 1; for (1 .. 200) { if (!fork) { setsid; 1 while 1 } } print "busy\n"; sleep 1000'`,
		other: `perl -e '$| = 1; print "busy\n"; 1 while 1'`,
	} {
		p := proctest.Start(t, s.Processes(), process.Spec{Shell: line})
		if _, err := p.Wait(t.Context(), process.Until{Match: "busy"}); err != nil {
			t.Fatal(err)
		}
	}
	spent := func(s driver.Sandbox) time.Duration {
		return proctest.Value(d.cfg.Engine.Usage(t.Context(), container.ID(proctest.Value(s.Info(t.Context()))(t).ID)))(t).CPU
	}
	many, single := spent(one), spent(other)
	for spent(one)-many < time.Second*time.Duration(runtime.NumCPU()) {
		time.Sleep(50 * time.Millisecond)
	}
	// The single program has one processor at most.
	if many, single = spent(one)-many, spent(other)-single; single < many/time.Duration(4*runtime.NumCPU()) {
		t.Errorf("a program has %v while the 200 sessions of another sandbox have %v", single, many)
	}
}

// TestBuffersOfConnectionsCountAsMemory: a program fills those of hundreds of connections to itself.
func TestBuffersOfConnectionsCountAsMemory(t *testing.T) {
	d := openReal(t, real(t))
	if drivertest.Lacks(t, d, container.LayerMemory) {
		return
	}
	mem := func() (pages int) {
		b := proctest.Value(os.ReadFile("/proc/net/sockstat"))(t)
		_, text, _ := strings.Cut(string(b), "TCP: ")
		_, text, _ = strings.Cut(text, "mem ")
		if _, err := fmt.Sscan(text, &pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	s, _ := create(t, d, driver.Spec{Size: driver.Size{Memory: 64 << 20}})
	before := mem()
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: `perl -MSocket -MFcntl -e '
		socket my $l, PF_INET, SOCK_STREAM, 0; bind $l, sockaddr_in(0, INADDR_LOOPBACK); listen $l, 400; my $at = getsockname $l;
		for (1 .. 150) {
			socket my $c, PF_INET, SOCK_STREAM, 0; connect $c, $at or last; accept my $a, $l or last; push @all, $c, $a;
			fcntl $c, F_SETFL, O_NONBLOCK;
			1 while syswrite $c, "x" x 65536;
		}
		$| = 1; print "holds\n"; sleep 1000'`})
	if res, err := p.Wait(t.Context(), process.Until{Match: "holds"}); err != nil || !res.Met && res.Exit == nil {
		t.Fatal(res, err)
	}
	if grown := (mem() - before) * os.Getpagesize(); grown > 64<<20 {
		t.Errorf("its connections hold %d MiB", grown>>20)
	}
}

// TestTerminalsOfASandboxAreBounded: the machine has 4,096.
func TestTerminalsOfASandboxAreBounded(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	s, _ := create(t, d, driver.Spec{})
	line := `perl -e 'while (open my $f, "+<", "/dev/ptmx") { push @f, $f } print @f + 0, " $!\n"; $| = 1; sleep 1000'`
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: line})
	if res, err := p.Wait(t.Context(), process.Until{Match: `\d+ .*`}); err != nil || res.Match != "256 No space left on device" {
		t.Errorf("a program gets terminals: %q, %v", res.Match, err)
	}
	neighbour, _ := create(t, d, driver.Spec{})
	if out, status := inShell(t, neighbour, "", `perl -e 'open my $f, "+<", "/dev/ptmx" or die; print "on"'`); out != "on" {
		t.Errorf("its neighbour says %q, status %d", out, status)
	}
}

// TestWhoAsksForNoSizeHasLimits: also after the sandbox has started again, and its copy.
func TestWhoAsksForNoSizeHasLimits(t *testing.T) {
	t.Parallel()
	cfg := real(t)
	d := openReal(t, cfg)
	want := driver.Size{}
	if !drivertest.Lacks(t, d, container.LayerTasks) {
		want.Tasks = d.defaults.Tasks
	}
	if !drivertest.Lacks(t, d, container.LayerMemory) {
		want.Memory = d.defaults.Memory
	}
	s, in := create(t, d, driver.Spec{})
	if in.Size != want {
		t.Errorf("it has %+v, want %+v", in.Size, want)
	}
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, s.Start(t.Context()))
	if in := info(t, s); in.Size != want {
		t.Errorf("after a start it has %+v, want %+v", in.Size, want)
	}
	copies, err := d.Fork(t.Context(), in.ID, driver.ForkSpec{})
	if err != nil || copies[0].Err != nil {
		t.Fatal(err, copies)
	}
	if in := info(t, copies[0].Sandbox); in.Size != want {
		t.Errorf("a copy has %+v, want %+v", in.Size, want)
	}
	d = openOn(t, cfg)
	again, err := d.Get(t.Context(), string(in.ID))
	if err != nil || info(t, again).Size != want {
		t.Errorf("after a restart of the server it has %+v, %v; want %+v", info(t, again).Size, err, want)
	}
}

func TestDefaultsAreAShareOfTheMachine(t *testing.T) {
	for _, c := range []struct {
		pids, memory int64
		want         driver.Size
	}{
		{32768, 16 << 30, driver.Size{Tasks: 4096, Memory: 8 << 30}},
		{4194304, 1<<30 + 3, driver.Size{Tasks: 4096, Memory: 512 << 20}},
		{1000, 1 << 20, driver.Size{Tasks: 125, Memory: 1 << 20}},
		{0, 0, driver.Size{}},
	} {
		if got := defaultSize(c.pids, c.memory); got != c.want {
			t.Errorf("of %d pids and %d bytes: %+v, want %+v", c.pids, c.memory, got, c.want)
		}
	}
	if s := defaultSize(pidsOfMachine(), memoryOfMachine()); s.Tasks == 0 || s.Memory == 0 {
		t.Errorf("of this machine: %+v", s)
	}
}

// TestLimitsThatNobodyCanEnforceAreToldAndNotClaimed: a machine without controllers.
func TestLimitsThatNobodyCanEnforceAreToldAndNotClaimed(t *testing.T) {
	t.Parallel()
	cfg, _ := onPaper(t) // its engine has no limits
	var log strings.Builder
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := openOn(t, cfg)
	s, in := create(t, d, driver.Spec{})
	if in.Size != (driver.Size{}) {
		t.Errorf("it says that it has %+v", in.Size)
	}
	proctest.Must(t, s.Destroy(t.Context()))
	if missing := d.Capabilities().Missing; !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "tasks: ") }) {
		t.Errorf("missing is %q", missing)
	}
	for _, layer := range []string{container.LayerTasks, container.LayerMemory} {
		if !strings.Contains(log.String(), "no limit of "+layer) {
			t.Errorf("the log says nothing of %s: %s", layer, log.String())
		}
	}
}

// TestFilesInMemoryHaveAnEnd: in number, too; the kernel's own limit is a part of the whole
// machine's memory.
func TestFilesInMemoryHaveAnEnd(t *testing.T) {
	t.Parallel()
	d := openReal(t, real(t))
	s, _ := create(t, d, driver.Spec{})
	if out, _ := inShell(t, s, "", `stat -f -c %c /run /dev/shm`); out != "16384\n65536" {
		t.Errorf("they take %q files", out)
	}
	if out, _ := inShell(t, s, "", `perl -MErrno -e 'my $n = 0; while (open my $f, ">", "/run/$n") { last if ++$n > 20000 } print $!{ENOSPC} ? "full" : "$n $!"'; touch /tmp/still && rm -r /run/1*`); out != "full" {
		t.Errorf("a bomb of files in /run: %q", out)
	}
}
