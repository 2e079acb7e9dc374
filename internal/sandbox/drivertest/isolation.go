package drivertest

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// isolated looks at each layer that Capabilities names. A driver without any has
// nothing to show here; that it says so is looked at by refused.
func isolated(t *testing.T, d driver.Driver) {
	if len(d.Capabilities().Layers) == 0 {
		return
	}
	s, info := create(t, d, driver.Spec{Name: "own-name", Isolation: driver.IsolationFull})
	if info.Isolation != driver.IsolationFull {
		t.Errorf("it is %+v", info)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	proctest.Must(t, os.WriteFile(secret, []byte("of the host"), 0o644))
	own := strconv.Itoa(os.Getpid())
	machine, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	for _, c := range []struct{ layer, what, line, want string }{
		{"pid", "pid 1 is not the machine's", `readlink /proc/1/exe 2>/dev/null | grep -c -e systemd -e /init`, "0\n"},
		{"pid", "few processes are seen", `ls /proc | grep -c '^[0-9]*$' | { read n; test $n -lt 10 && echo few; }`, "few\n"},
		{"pid", "processes of the machine are not there", `test -e /proc/` + own + `/cmdline && tr '\0' ' ' </proc/` + own +
			`/cmdline | grep -c -e '\.test' -e '-test\.'; true`, ""},
		{"pid", "no signal reaches the machine", `kill -0 -1 2>/dev/null; kill -CONT 4194303 2>&1 | grep -c 'No such process'`, "1\n"},
		{"mount", "files of the machine's /tmp are not there", `cat ` + secret + ` 2>/dev/null || echo none`, "none\n"},
		{"mount", "/tmp is its own", `ls -A /tmp; echo x > /tmp/own && cat /tmp/own`, "x\n"},
		{"mount", "secrets of the machine are hidden",
			`cat /etc/shadow /etc/gshadow /etc/ssh/ssh_host_*_key 2>/dev/null | grep -c '[$]\|PRIVATE'; cat /root/.ssh/* /home/*/.ssh/* 2>/dev/null | wc -c`, "0\n0\n"},
		{"user", "root is each user that it wants",
			`sed -i 's/systemd//g' /etc/nsswitch.conf; for u in $(cut -d: -f1 /etc/passwd); do test "$(su -s /bin/sh $u -c 'id -un')" = $u || echo $u; done; su -s /bin/sh - nobody -c 'id -un' 2>/dev/null`, "nobody\n"},
		{"mount", "the system's programs are there", `sh -c 'ls /usr/bin/env'`, "/usr/bin/env\n"},
		{"mount", "the machine's settings cannot be written", `(echo 1 > /proc/sys/kernel/sysrq) 2>/dev/null || echo no`, "no\n"},
		{"mount", "its host name is its own", `cat /proc/sys/kernel/hostname`, "own-name\n"},
		{"mount", "its boot is its own", `grep -cxE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' /proc/sys/kernel/random/boot_id; grep -c ` +
			strings.TrimSpace(string(machine)) + ` /proc/sys/kernel/random/boot_id`, "1\n0\n"},
	} {
		if Lacks(t, d, c.layer) {
			continue
		}
		if out, _ := sh(t, s, c.line); out != c.want {
			t.Errorf("%s (%s): %q, want %q", c.what, c.layer, out, c.want)
		}
	}
	if !Lacks(t, d, "user") {
		pid := proctest.Start(t, s.Processes(), process.Spec{Shell: `id -u; head -1 /proc/self/uid_map; exec sleep 600`})
		if _, err := pid.Wait(t.Context(), process.Until{Match: `65536`}); err != nil {
			t.Fatal(err)
		}
	}
	// What it writes is not the machine's.
	if out, status := sh(t, s, `echo "#" >> /etc/motd-of-the-sandbox && ls /etc/motd-of-the-sandbox`); status != 0 {
		t.Errorf("it cannot write below /etc: %q", out)
	}
	if _, err := os.Stat("/etc/motd-of-the-sandbox"); err == nil {
		t.Error("what it writes is the machine's")
	}
	other, _ := create(t, d, driver.Spec{Isolation: driver.IsolationFull})
	if out, _ := sh(t, other, `ls /tmp/own /etc/motd-of-the-sandbox 2>/dev/null`); out != "" {
		t.Errorf("another sandbox sees %q", out)
	}
}

// rootFiles: those who act as root inside make what root inside may make, and it is the
// user's, if there are users.
func rootFiles(t *testing.T, d driver.Driver) {
	if len(d.Capabilities().Layers) == 0 {
		return
	}
	s, _ := create(t, d, driver.Spec{Isolation: driver.IsolationFull})
	r, ok := s.(driver.RootFiler)
	if !ok {
		t.Fatal("an isolated sandbox has no files as its root")
	}
	if _, err := r.RootFiles("no-such-user", ""); !errors.Is(err, files.ErrUnknownUser) {
		t.Errorf("an unknown user: %v", err)
	}
	sh(t, s, "umask 077; mkdir /closed; echo of root > /closed/f")
	for path, owner := range map[string]string{"/made/below/f": "1", "/closed/f": "1", "/closed/new": "1"} {
		mine := !Lacks(t, d, "user")
		if !mine {
			owner = "0"
		}
		f := proctest.Value(driver.RootFiles(s, "1:1", ""))(t)
		e, err := f.Write(path, strings.NewReader("x"), nil)
		if out, _ := sh(t, s, "stat -c %u "+path); err != nil || out != owner+"\n" || e.Mine != mine {
			t.Errorf("%s belongs to %s, %+v, %v; want %s", path, out, e, err, owner)
		}
	}
}

// pids: what a program says of itself is what the sandbox's manager shows.
func pids(t *testing.T, d driver.Driver) {
	s, _ := create(t, d, driver.Spec{})
	p := proctest.Start(t, s.Processes(), process.Spec{Shell: `echo "pid $$"; exec sleep 600`})
	if _, err := p.Wait(t.Context(), process.Until{Match: `^pid`}); err != nil {
		t.Fatal(err)
	}
	said, started := "", 0
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{NoFollow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		said += string(ev.Data)
		if ev.Kind == process.EventStarted {
			started = ev.PID
		}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(said, "pid ")))
	if err != nil {
		t.Fatalf("it says %q", said)
	}
	if info := proctest.Info(t, p); info.PID != pid || started != pid {
		t.Errorf("it says %d of itself, Info %d, its start %d", pid, info.PID, started)
	}
	for _, sel := range []process.Selector{{PID: pid}, {Any: strconv.Itoa(pid)}} {
		if q, err := s.Processes().Get(t.Context(), sel); err != nil || q.ID() != p.ID() || proctest.Info(t, q).PID != pid {
			t.Errorf("by %+v: %v", sel, err)
		}
	}
	if all, err := s.Processes().List(t.Context(), process.Filter{Live: true}); err != nil || len(all) != 1 || all[0].PID != pid {
		t.Errorf("the list is %+v, %v", all, err)
	}
}

// networks: from inside, neither this machine nor anything beyond is reached, but in
// the machine's own network.
func networks(t *testing.T, d driver.Driver) {
	if Lacks(t, d, "network") {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for mode, want := range map[driver.NetworkMode]string{
		driver.NetworkNone: "no\n", driver.NetworkOwn: "no\n", driver.NetworkDefault: "no\n", driver.NetworkHost: "yes\n",
	} {
		s, err := d.Create(t.Context(), driver.Spec{Isolation: driver.IsolationFull, Network: driver.Network{Mode: mode}})
		if mode == driver.NetworkHost && errors.Is(err, driver.ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		line := `perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && connect(S, sockaddr_in(` + port +
			`, inet_aton("127.0.0.1"))) or die' 2>/dev/null && echo yes || echo no`
		if out, _ := sh(t, s, line); out != want {
			t.Errorf("with the network %v the machine is reached: %q, want %q", mode, out, want)
		}
	}
}

// networkRules: a driver whose networks lead out keeps rules, checks those that an update
// brings, and lets nothing reach an address of this machine, whatever they allow.
func networkRules(t *testing.T, d driver.Driver) {
	if !slices.Contains(d.Capabilities().Layers, "outgoing") {
		return
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "machine") // who left does not hear it
			c.Close()
		}
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	first := driver.Network{Mode: driver.NetworkOwn, Allow: []string{"*"}, Deny: []string{"203.0.113.0/24:80"}}
	s, info := create(t, d, driver.Spec{Isolation: driver.IsolationFull, Network: first})
	has := func(info driver.Info, want driver.Network) {
		t.Helper()
		if !slices.Equal(info.Network.Allow, want.Allow) || !slices.Equal(info.Network.Deny, want.Deny) {
			t.Errorf("the rules are %+v, want %+v", info.Network, want)
		}
	}
	has(info, first)
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.To4() == nil {
			continue
		}
		line := `perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && connect(S, sockaddr_in(` + port + `, inet_aton("` +
			n.IP.String() + `"))) && print scalar <S>' 2>/dev/null; true`
		if out, status := sh(t, s, line); out != "" || status != 0 {
			t.Errorf("at %v it hears %q, %d", n.IP, out, status)
		}
	}
	wrong := driver.Network{Mode: driver.NetworkOwn, Deny: []string{"a b"}}
	var invalid *driver.InvalidError
	if _, err := s.Update(t.Context(), driver.Change{Network: &wrong}); !errors.As(err, &invalid) || invalid.Field != "network.deny" {
		t.Errorf("an update with a rule that is none: %v", err)
	}
	if info, err = s.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(info, first)
	second := driver.Network{Mode: driver.NetworkOwn, Allow: []string{"*.example.com:443", "2001:db8::/32"}}
	if info, err = s.Update(t.Context(), driver.Change{Network: &second}); err != nil {
		t.Fatal(err)
	}
	has(info, second)
}
