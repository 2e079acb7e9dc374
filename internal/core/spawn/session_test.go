//go:build linux && (amd64 || arm64)

package spawn

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

// groupOf prints pid, parent, group and session of the shell.
const groupOf = `cut -d' ' -f1,4-6 /proc/$$/stat`

// memberOf expects a program that is in a session and a group of its own, and does not
// lead them.
func memberOf(t *testing.T, line string, parent int) (group int) {
	t.Helper()
	var pid, ppid, pgrp, session int
	if _, err := fmt.Sscan(line, &pid, &ppid, &pgrp, &session); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if pgrp != session || pgrp == 0 || pgrp == pid || ppid != parent {
		t.Errorf("pid %d, parent %d, group %d, session %d; the group is to be the session's and not the pid's, the parent %d", pid, ppid, pgrp, session, parent)
	}
	if own, _ := unix.Getpgid(0); pgrp == own {
		t.Error("the group is that of the parent")
	}
	return pgrp
}

func TestAProgramDoesNotLeadItsSession(t *testing.T) {
	s, null := newStarter(t)
	var session uint32
	p := shell(groupOf)
	p.SessionAt = &session
	got, _, err := output(s, null, p)
	proctest.Must(t, err)
	if group := memberOf(t, got, os.Getpid()); int(session) != group {
		t.Errorf("session %d was noted, it is %d", session, group)
	}
	again, _, err := output(s, null, p)
	proctest.Must(t, err)
	if memberOf(t, again, os.Getpid()); again == got {
		t.Errorf("two programs have %q", got)
	}
	signalsOfAGroup(t, s, null, shell)
	if left := children(t); len(left) > 0 {
		t.Errorf("children are left: %v", left)
	}
}

func TestAProgramInsideDoesNotLeadItsSession(t *testing.T) {
	ways(t, func(t *testing.T, b *sandbox, s *Starter, null int) {
		before := len(children(t))
		for range 3 {
			got, _, err := output(s, null, b.shell(t, groupOf))
			proctest.Must(t, err)
			memberOf(t, got, 0)
		}
		signalsOfAGroup(t, s, null, func(text string) *Program { return b.shell(t, text) })
		if b.zygotes == nil {
			if left := len(children(t)); left != before {
				t.Errorf("%d children were there, and %d are", before, left)
			}
		}
	})
}

// What a leader could not do, and what its group is for.
func signalsOfAGroup(t *testing.T, s *Starter, null int, shell func(text string) *Program) {
	t.Helper()
	for text, want := range map[string]int{
		"setsid sh -c 'sleep 0.1; exit 3'":                                              3 << 8,
		"exec setsid sh -c 'sleep 0.1; exit 3'":                                         3 << 8,
		"kill 0; sleep 9":                                                               int(unix.SIGTERM),
		"sleep 9 & kill -KILL -$(cut -d' ' -f5 /proc/$$/stat); wait":                    int(unix.SIGKILL),
		"setsid sh -c 'kill 0; sleep 9'; exit $?":                                       (128 + 15) << 8,
		"[ $(cut -d' ' -f5 /proc/$$/stat) != $(cut -d' ' -f5 /proc/1/stat) ] && exit 7": 7 << 8,
	} {
		if _, status, err := output(s, null, shell(text)); err != nil || int(status) != want {
			t.Errorf("%s: status %#x, %v; want %#x", text, int(status), err, want)
		}
	}
	p := shell("")
	path := "/usr/bin/setsid"
	if _, err := os.Stat(path); err != nil {
		path = "/bin/setsid"
	}
	p.Path, p.Argv = path, []string{"setsid", "sh", "-c", "sleep 0.1; exit 3"}
	if _, status, err := output(s, null, p); err != nil || status.ExitStatus() != 3 {
		t.Errorf("setsid as the command ends with %#x, %v", int(status), err)
	}
}

// The program of a terminal leads its session, in which it takes the terminal.
func TestAProgramWithATerminalLeadsItsSession(t *testing.T) {
	s, null := newStarter(t)
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	proctest.Must(t, err)
	defer unix.Close(master)
	proctest.Must(t, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	proctest.Must(t, err)
	slave, err := unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	proctest.Must(t, err)
	session := uint32(7)
	p := shell(groupOf + "; exit 3")
	p.Terminal, p.SessionAt, p.Files = true, &session, []int{slave, slave, slave}
	pid, pidfd, err := s.Start(p)
	proctest.Must(t, err)
	unix.Close(slave)
	unix.Close(pidfd)
	b := make([]byte, 200)
	read, err := unix.Read(master, b)
	proctest.Must(t, err)
	if want := fmt.Sprintf("%d %d %d %d", pid, os.Getpid(), pid, pid); strings.TrimSpace(string(b[:read])) != want {
		t.Errorf("it says %q; want %q", b[:read], want)
	}
	if status, err := collect(pid); err != nil || status.ExitStatus() != 3 || session != 0 {
		t.Errorf("status %#x, %v; session %d was noted", int(status), err, session)
	}
	_ = null
}
