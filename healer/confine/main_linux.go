package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notice is what a hidden file says.
const notice = "# hidden by tend: nothing of this file is shown to commands of the healer\n"

// inside is the environment variable by which the second of two steps is told that
// it is in a user namespace.
const inside = "TEND_HEAL_EXEC_INSIDE"

// Main is the program of [Argv], given what follows the verb. On Linux it ends only
// with an error: else it has become the command.
func Main(args, env []string) int {
	rules, argv, err := parse(args)
	if err == nil {
		err = run(rules, argv, env)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return 128 + int(s.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tend: the command was not run:", err)
		return Refused
	}
	return 0
}

func run(r Rules, argv, env []string) error {
	// Namespaces and capabilities are those of a thread; exec keeps this one.
	runtime.LockOSThread()
	rest := env[:0:0]
	within := false
	for _, e := range env {
		if e == inside+"=1" {
			within = true
			continue
		}
		rest = append(rest, e)
	}
	path, err := lookPath(argv[0], rest)
	if err != nil {
		return err
	}
	if !within {
		err := unix.Unshare(unix.CLONE_NEWNS)
		if errors.Is(err, unix.EPERM) {
			return again(env)
		}
		if err != nil {
			return fmt.Errorf("a mount namespace: %w", err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := errors.Join(freeze(r.Write, r.Keep), cover(r.Hide)); err != nil {
		return err
	}
	// The working directory is below what was there before.
	if wd, err := os.Getwd(); err == nil {
		if err := os.Chdir(wd); err != nil {
			return err
		}
	}
	if err := giveUp(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, argv, rest))
}

// again runs this program in namespaces of its own, for a user who may not make a
// mount namespace otherwise. Its ids there are those that it has.
func again(env []string) error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(env[:len(env):len(env)], inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	uid, gid := os.Geteuid(), os.Getegid()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		Pdeathsig:   syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("a user namespace: %w", err)
	}
	return err
}

func lookPath(name string, env []string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for i := len(env) - 1; i >= 0; i-- {
		if list, ok := cutPrefix(env[i], "PATH="); ok {
			for _, dir := range filepath.SplitList(list) {
				full := filepath.Join(dir, name)
				if filepath.IsAbs(dir) && unix.Access(full, unix.X_OK) == nil {
					return full, nil
				}
			}
			break
		}
	}
	return "", fmt.Errorf("%s: not found in PATH", name)
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return s, false
	}
	return s[len(prefix):], true
}

// cover puts something else in place of each path. The paths are opened first: what
// stands in for them lies on a small filesystem that is mounted on /tmp for that
// moment, where some of them may be.
func cover(hide []string) error {
	type target struct {
		fd  int
		dir bool
	}
	var all []target
	for _, path := range hide {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s: a path that is hidden is absolute", path)
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // of a link: what it leads to
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, target{fd, st.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	if len(all) == 0 {
		return nil
	}
	const at = "/tmp"
	if err := unix.Mount("tend-hidden", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=755"); err != nil {
		return fmt.Errorf("a small filesystem: %w", err)
	}
	file, dir := at+"/file", at+"/dir"
	if err := errors.Join(os.WriteFile(file, []byte(notice), 0o444), os.Mkdir(dir, 0o555)); err != nil {
		return err
	}
	for _, t := range all {
		from := file
		if t.dir {
			from = dir
		}
		if err := unix.Mount(from, "/proc/self/fd/"+strconv.Itoa(t.fd), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide a file: %w", err)
		}
		unix.Close(t.fd)
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,mode=755"); err != nil {
		return fmt.Errorf("make it read-only: %w", err)
	}
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount a small filesystem: %w", err)
	}
	return nil
}

// freeze makes every mount read-only, and puts writable copies of the mounts of some
// directories in their places; in these, some paths are read-only again.
func freeze(write, keep []string) error {
	if len(write) == 0 {
		return nil
	}
	clone := func(path string) (int, error) {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return 0, fmt.Errorf("%s: copy its mount: %w", path, err)
		}
		return fd, nil
	}
	put := func(fd int, path string) error {
		defer unix.Close(fd)
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: put a mount there: %w", path, err)
		}
		return nil
	}
	readOnly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	places := make([]int, len(write))
	for i, path := range write {
		fd, err := clone(path)
		if err != nil {
			return err
		}
		places[i] = fd
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &readOnly); err != nil {
		return fmt.Errorf("make all read-only: %w", err)
	}
	for i, path := range write {
		if err := put(places[i], path); err != nil {
			return err
		}
	}
	for _, path := range keep {
		fd, err := clone(path)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return err
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &readOnly); err != nil {
			return fmt.Errorf("%s: make it read-only: %w", path, err)
		}
		if err := put(fd, path); err != nil {
			return err
		}
	}
	return nil
}

// withheld are the capabilities with which the command could undo what was done, or
// read a file past it.
var withheld = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_SYS_CHROOT, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME,
	unix.CAP_MKNOD, unix.CAP_DAC_READ_SEARCH, unix.CAP_NET_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SETPCAP, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_CHECKPOINT_RESTORE,
}

func giveUp() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	for _, c := range withheld {
		// In a user namespace of a user who is not root there is nothing to drop from, and
		// exec leaves no capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) && os.Geteuid() == 0 {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := capget(&h, &d); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for i := range d {
		d[i].Inheritable = 0
	}
	if err := capset(&h, &d); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	return nil
}

func capget(h *unix.CapUserHeader, d *[2]unix.CapUserData) error {
	return errno(unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(&d[0])), 0))
}

func capset(h *unix.CapUserHeader, d *[2]unix.CapUserData) error {
	return errno(unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(&d[0])), 0))
}

func errno(_, _ uintptr, e unix.Errno) error {
	if e != 0 {
		return e
	}
	return nil
}
