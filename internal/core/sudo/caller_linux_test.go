package sudo

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// listenAs listens as a client of that user does.
func listenAs(t *testing.T, uid int, name string) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); err == nil && no != 0 {
			err = no
		}
		if err == nil {
			err = unix.Bind(l, &unix.SockaddrUnix{Name: "@" + prefix + name})
		}
		if err == nil {
			err = unix.Listen(l, 1)
		}
		done <- err
	}()
	proctest.Must(t, <-done)
}

// Who the caller is the kernel says, whatever the request does.
func TestWhoMayUseSudo(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	for uid, says := range map[int]string{0: "", 65534: "may not use sudo here", 12345: "#12345 may not use sudo here"} {
		name := "test-" + strconv.Itoa(unix.Getpid()) + "-" + strconv.Itoa(uid)
		listenAs(t, uid, name)
		conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		proctest.Must(t, err)
		defer unix.Close(conn)
		proctest.Must(t, unix.Connect(conn, &unix.SockaddrUnix{Name: "@" + prefix + name}))
		a, err := callerOf(conn)
		if a.uid != uid || says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("uid %d: %+v, %v", uid, a, err)
		}
	}
}

func TestTheEnvironmentOfACommand(t *testing.T) {
	t.Parallel()
	root, user := account{name: "root", home: "/root", shell: "/bin/bash"}, account{name: "user", uid: 1001, gid: 1001}
	from := []string{"A=1", "B=2", "HOME=/home/user", "PATH=/evil", "LD_PRELOAD=/evil.so", "TERM=xterm", "LC_ALL=C"}
	for name, tc := range map[string]struct {
		o    options
		want string
	}{
		"as usual":    {options{}, "HOME=/root LC_ALL=C TERM=xterm"},
		"one is kept": {options{keep: []string{"A"}}, "A=1 HOME=/root LC_ALL=C TERM=xterm"},
		"one is set":  {options{set: []string{"A=3"}}, "A=3 HOME=/root LC_ALL=C TERM=xterm"},
		"all":         {options{preserve: true}, "A=1 B=2 HOME=/home/user LC_ALL=C LD_PRELOAD=/evil.so TERM=xterm"},
		"all but one": {options{preserve: true, home: true}, "A=1 B=2 HOME=/root LC_ALL=C LD_PRELOAD=/evil.so TERM=xterm"},
	} {
		var got []string
		for _, v := range environ(&tc.o, &root, &user, from, []string{"id", "-u"}) {
			name, _, _ := strings.Cut(v, "=")
			if name != "PATH" && name != "USER" && name != "LOGNAME" && name != "SHELL" && !strings.HasPrefix(name, "SUDO_") {
				got = append(got, v)
			} else if name == "PATH" && v != "PATH="+securePath || name == "SUDO_UID" && v != "SUDO_UID=1001" || name == "SUDO_COMMAND" && v != "SUDO_COMMAND=id -u" {
				t.Errorf("%s: %s", name, v)
			}
		}
		if text := strings.Join(slices.Sorted(slices.Values(got)), " "); text != tc.want {
			t.Errorf("%s: %s; want %s", name, text, tc.want)
		}
	}
}
