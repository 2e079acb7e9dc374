//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/core/suspendaware"
	"github.com/tend-run/tend/internal/lib/nap"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/process"
)

// A keeper of an ordinary user may prepare no mounts outside of a user namespace of its own.
// So its stage has, beside what that of other containers has,
//
//	/s/h       the machine's root with all that is mounted there
//
// and a container takes from there what others are handed by descriptors. Of its /dev each device is
// the machine's. The stage has a user namespace in which the one id is 0, and the network in
// which nothing is.
const stageHost = "h"

// makeRootless makes a stage in which the parts are attached by paths. p.mu is held.
func (p *parts) makeRootless(st *stage) (err error) {
	if st.mounts, err = unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	st.changed() // from here on
	dir, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		return err
	}
	l, err := spawn.NewCopyList(80+stageLayers, 8<<10+2*len(dir))
	if err != nil {
		return err
	}
	defer l.Close()
	ns := -1
	if p.byPath {
		if ns, err = p.user(st.uid); err != nil {
			return err
		}
	}
	w, pid := writeRootless(l, p.first, dir, ns)
	begun := false
	err = w.holding(pid, func(pid int) error {
		begun = true
		return st.open(p, pid)
	})
	if err != nil && !begun {
		return fmt.Errorf("%w%s: %w", err, whyNotRootless(err, sysctl), process.ErrUnsupported)
	}
	return err
}

// open opens the namespaces of the stage that a process holds, and fills its skeleton.
func (st *stage) open(p *parts, pid int) (err error) {
	failpoint.Hit(failpoint.ContainerStaged)
	if err := shown(pid); err != nil {
		return err
	}
	for _, d := range []struct {
		to   *int
		name string
	}{{&st.ns, "user"}, {&st.mnt, "mnt"}, {&st.void, "net"}} {
		if *d.to, err = unix.Open(procfs.Path(pid, "ns/"+d.name), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("the stage of sandboxes: %w", err)
		}
	}
	k := newSkeleton(procfs.Path(pid, "root"+stageParts+"/"+stageBase), 0, true)
	if p.byPath {
		k.as = int(st.uid)
	}
	st.noBase = k.fill(p.state, st, func(q *piece, _ int) error {
		q.at = stageHost + q.from
		return nil
	})
	if st.noBase != nil && !errors.Is(st.noBase, process.ErrUnsupported) {
		return st.noBase // which may be otherwise the next time
	}
	return nil
}

// writeRootless appends what makes the stage, in the user namespace ns, or with -1 in one of its own. Its maker
// has memory of its own: /proc shows to an ordinary user only the files of what is dumpable, and the keeper is not.
func writeRootless(l *spawn.List, program int, dir string, ns int) (w stageWriter, pid *uint32) {
	if ns < 0 {
		w = writeStage(l, "mode=755,size=64k")
		w.Call("open the copy's files in /proc", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		w.Call(stepUsers, unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
		for _, f := range [][2]string{
			{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("0 %d 1", os.Geteuid())}, {"gid_map", fmt.Sprintf("0 %d 1", os.Getegid())},
		} {
			w.Call(stepMap+f[0], unix.SYS_OPENAT, spawn.Here, w.Text("/proc/self/"+f[0]), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			w.Result(0)
			w.Call(stepMap+f[0], unix.SYS_WRITE, 0, w.Text(f[1]), uintptr(len(f[1])))
		}
	} else {
		w = writeStage(l, "mode=755,uid=0,gid=0,size=64k")
		w.Call("go to the keeper's directory", unix.SYS_CHDIR, w.Text(filepath.Dir(dir)))
		w.Call("enter the user namespace", unix.SYS_SETNS, uintptr(ns), unix.CLONE_NEWUSER)
		dir = filepath.Base(dir)
	}
	pid = w.Fork("make namespaces", unix.CLONE_NEWNS|unix.CLONE_NEWNET, -1, nil)
	w.begin(dir)
	if ns >= 0 {
		w.beRoot()
		w.dieWithKeeper() // another user has forgotten it
	}
	w.places(stageBase, stageOwn, stageHost, stageDev)
	w.readOnly()
	w.Call("bind the machine's root", unix.SYS_MOUNT, w.root, w.Text(stageHost), 0, unix.MS_BIND|unix.MS_REC, 0)
	if ns < 0 { // else no container looks there
		w.Call("uncover the directory of the stage", unix.SYS_UMOUNT2, w.Text(stageHost+dir), unix.MNT_DETACH)
	}
	w.Call("mount the skeleton", unix.SYS_MOUNT, w.none, w.Text(stageBase), w.memory, 0, w.Text("mode=755,size=256m"))
	w.Call("mount /dev", unix.SYS_MOUNT, w.none, w.Text(stageDev), w.memory, unix.MS_NOSUID|unix.MS_NOEXEC, w.options)
	w.Call("go to /dev", unix.SYS_CHDIR, w.Text(stageDev))
	for _, d := range nodes {
		w.Call("make "+d.name, unix.SYS_MKNODAT, spawn.Here, w.Text(d.name), unix.S_IFREG|0o666, 0)
	}
	w.bindDevices("")
	for _, name := range []string{"pts", "shm"} {
		w.mkdir(name)
	}
	for _, link := range deviceLinks {
		w.Call("link "+link[0], unix.SYS_SYMLINKAT, w.Text(link[1]), spawn.Here, w.Text(link[0]))
	}
	w.readOnly()
	w.end("../..", program)
	return w, pid
}

// shown waits until /proc shows a keeper that may not look into processes of others the files of a
// child that executes a program, as a server needs them of a pid 1 at once. The keeper continues when
// the child, in its exec, lets the keeper's memory go, whose files are hidden; a moment later it has
// memory of its own. On a busy machine that is a while.
func shown(pid int) error {
	for g := suspendaware.New(undoWait); ; nap.For(50 * time.Microsecond) {
		_, err := os.Readlink(procfs.Path(pid, "root"))
		switch {
		case !errors.Is(err, os.ErrPermission):
			return nil // if it has ended, who uses it finds out
		case g.Over():
			return err
		}
	}
}

// Names of the steps that a machine's settings forbid.
const (
	stepUsers = "make a user namespace"
	stepMap   = "write /proc/self/"
)

// sysctl reads a setting; "": there is none.
func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// whyNotRootless says what of the machine's settings keeps an ordinary user from containers.
func whyNotRootless(err error, setting func(name string) string) string {
	const alone = "; or run tend as root"
	var e *spawn.ListError
	if !errors.As(err, &e) {
		return ""
	}
	switch {
	case setting("kernel.unprivileged_userns_clone") == "0":
		return " (the sysctl kernel.unprivileged_userns_clone is 0: users other than root may make no user namespaces; set it to 1" + alone + ")"
	case setting("user.max_user_namespaces") == "0":
		return " (the sysctl user.max_user_namespaces is 0; set it to 10000, say)"
	case setting("kernel.apparmor_restrict_unprivileged_userns") == "1":
		return " (AppArmor takes from user namespaces of programs without a profile what makes them useful; " +
			"the deb of tend brings one, or allow all programs: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" + alone + ")"
	case e.What == stepUsers && (e.Errno == unix.ENOSPC || e.Errno == unix.EUSERS):
		return " (there are as many user namespaces as the sysctl user.max_user_namespaces allows)"
	case e.What == stepUsers && e.Errno == unix.EPERM:
		return " (tend runs in a chroot, or in a container whose filter forbids user namespaces; " + Options() + alone + " of the machine)"
	case e.Errno == unix.EPERM, e.Errno == unix.EACCES:
		return " (this machine does not let users other than root do it" + alone + ")"
	}
	return ""
}
