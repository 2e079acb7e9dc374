package kernelfault

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Older is a kernel that refuses what later ones allow with mounts, each by its number.
type Older string

const (
	// Linux61 has no copies of detached mounts and none of what is below them (6.15), no layers
	// of overlays by descriptor (6.13), no attributes of users on filesystems in memory (6.6) and
	// no other ids there (6.3).
	Linux61 Older = "6.1"
	// Linux515 has no overlays over mounts that show other ids (5.19), beside what 6.1 lacks.
	Linux515 Older = "5.15"
	// Linux510 has no mounts that show other ids at all (5.12) and no overlays in user namespaces
	// (5.11), beside what 5.15 lacks.
	Linux510 Older = "5.10"
)

// Tests runs this test program again on an older kernel, and returns what it prints. The
// arguments are those that follow its name.
func (o Older) Tests(environ []string, args ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return o.Output(environ, append([]string{self}, args...)...)
}

// Output runs a command on an older kernel, and returns what it prints.
func (o Older) Output(environ []string, argv ...string) (string, error) {
	cmd, err := Command(o.world(), argv...)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, &out, &out
	err = o.run(cmd)
	return out.String(), err
}

func (o Older) run(cmd *exec.Cmd) error {
	l, err := Listen(cmd, cmd.Start)
	if err != nil {
		return err
	}
	go l.Each(func(c *Call) (held bool) { // until Close
		errno := o.refuses(c)
		if errno != 0 {
			l.Fail(c, errno)
		}
		return errno != 0
	})
	defer l.Close()
	return cmd.Wait()
}

func (o Older) world() World {
	w := World{Rules: []Rule{{Call: unix.SYS_FSCONFIG, Arg: 1, Value: unix.FSCONFIG_SET_FD, Errno: unix.EBADF}}}
	for _, call := range []uintptr{unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR} {
		w.Rules = append(w.Rules, Rule{Call: call, Arg: -1})
	}
	if o != Linux61 {
		w.Rules = append(w.Rules, Rule{Call: unix.SYS_MOUNT, Arg: -1})
	}
	return w
}

// refuses says with which error a call fails; 0: it does not.
func (o Older) refuses(c *Call) unix.Errno {
	switch c.Call {
	case unix.SYS_OPEN_TREE:
		if c.Args[2]&unix.OPEN_TREE_CLONE != 0 && c.detached(c.named(0, 1)) {
			return unix.EINVAL
		}
	case unix.SYS_MOUNT_SETATTR:
		if o == Linux510 {
			return unix.ENOSYS
		}
		if c.word(3)&unix.MOUNT_ATTR_IDMAP != 0 && c.inMemory(c.named(0, 1)) {
			return unix.EINVAL
		}
	case unix.SYS_SETXATTR, unix.SYS_LSETXATTR:
		if strings.HasPrefix(c.Path(1), "user.") && c.inMemory(c.inside(c.Path(0))) {
			return unix.EOPNOTSUPP
		}
	case unix.SYS_FSETXATTR:
		if strings.HasPrefix(c.Path(1), "user.") && c.inMemory(c.named(0, -1)) {
			return unix.EOPNOTSUPP
		}
	case unix.SYS_MOUNT:
		switch {
		case c.Args[2] == 0 || c.Path(2) != "overlay":
		case o == Linux510 && !c.initialUsers():
			return unix.EPERM
		case c.overOtherIDs():
			return unix.EINVAL
		}
	}
	return 0
}

func (c *Call) proc(name string) string { return "/proc/" + strconv.Itoa(c.PID) + "/" + name }

// inside is a path of the caller's from here.
func (c *Call) inside(path string) string {
	if rest, ok := strings.CutPrefix(path, "/proc/self/"); ok {
		return c.proc(rest)
	}
	if strings.HasPrefix(path, "/") {
		return c.proc("root") + path
	}
	return c.proc("cwd/") + path
}

// named is what a call names by a directory and a path, from here. path -1: it has none.
func (c *Call) named(dir, path int) string {
	name := ""
	if path >= 0 {
		name = c.Path(path)
	}
	at := int32(c.Args[dir])
	switch {
	case strings.HasPrefix(name, "/"), at == unix.AT_FDCWD:
		return c.inside(name)
	case name == "":
		return c.proc("fd/" + strconv.Itoa(int(at)))
	}
	return c.proc("fd/"+strconv.Itoa(int(at))) + "/" + name
}

// detached reports whether a path is on a mount that is not among the caller's.
func (c *Call) detached(path string) bool {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info, _ := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	_, id, _ := strings.Cut(string(info), "mnt_id:\t")
	id, _, _ = strings.Cut(id, "\n")
	mounts, err := os.ReadFile(c.proc("mountinfo"))
	return err == nil && id != "" && !strings.HasPrefix(string(mounts), id+" ") && !strings.Contains(string(mounts), "\n"+id+" ")
}

func (c *Call) inMemory(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// word is the first one of a structure.
func (c *Call) word(arg int) uint64 {
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	if _, err := unix.ProcessVMReadv(c.PID, local, []unix.RemoteIovec{{Base: uintptr(c.Args[arg]), Len: len(b)}}, 0); err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

func (c *Call) initialUsers() bool {
	mine, err := os.Readlink("/proc/self/ns/user")
	theirs, terr := os.Readlink(c.proc("ns/user"))
	return err == nil && terr == nil && mine == theirs
}

// overOtherIDs reports whether a layer of the overlay that is mounted shows other ids.
func (c *Call) overOtherIDs() bool {
	mounts, err := os.ReadFile(c.proc("mountinfo"))
	return err == nil && strings.Contains(string(mounts), "idmapped")
}
