package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside is the environment variable by which the second of two steps is told that
// it is in its namespaces.
const inside = "TEND_HEAL_EXEC_INSIDE"

// changesFD is the file of changes in the second step.
const changesFD = 3

// programFD is this program, in the first step inside a shadow.
const programFD = 4

// Main is the program of [Argv]; its arguments are those after the verb. It returns the
// command's exit status, 128 and its number for a signal.
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

func run(rules Rules, argv, env []string) error {
	// Capabilities, and the parent that a child outlives, are those of a thread.
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
	if !within {
		if rules.inner != nil {
			to := os.NewFile(changesFD, "changes")
			unix.CloseOnExec(changesFD)
			unix.CloseOnExec(programFD)
			defer to.Close()
			return again(env, to, false)
		}
		// What is open for writing below a mount keeps it from becoming read-only; of the
		// mounts out here the command's are copies.
		to, err := os.OpenFile(rules.Changes, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		defer to.Close()
		err = again(env, to, false)
		if errors.Is(err, unix.EPERM) {
			err = again(env, to, true)
		}
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("it has no process namespace of its own")
	}
	if err := loopback(); err != nil {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	unix.CloseOnExec(changesFD)
	to := os.NewFile(changesFD, rules.Changes)
	defer to.Close()
	upper, err := arrange(rules)
	if err != nil {
		return err
	}
	if err := os.Chdir(wd); err != nil { // the same place, in what is mounted there now
		return err
	}
	// What programs keep between runs is nowhere.
	rest = append(rest, "HOME=/tmp/home", "npm_config_cache=/tmp/npm", "XDG_CACHE_HOME=/tmp/cache", "GOCACHE=/tmp/go-build",
		"PYTHONPYCACHEPREFIX=/tmp/pycache")
	if err := os.Mkdir("/tmp/home", 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if i := rules.inner; i != nil {
		if err := os.Chown("/tmp/home", int(i.as.UID), int(i.as.GID)); err != nil {
			return err
		}
	}
	path, err := lookPath(argv[0], rest)
	if err != nil {
		return err
	}
	if err := giveUp(); err != nil {
		return err
	}
	if err := rules.deny(); err != nil {
		return err
	}
	// The command cannot trace this process, which keeps its rights: it is the first of
	// the namespace, whose end is the end of all others.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make this process private: %w", err)
	}
	cmd := exec.Cmd{Path: path, Args: argv, Env: rest, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: rules.attributes()}
	status := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](status); !ok && status != nil {
		return status
	}
	endAll()
	if rules.inner != nil && rules.inner.bare {
		if _, err := to.WriteString(ended); err != nil {
			return err
		}
		return status
	}
	if err := collect(upper, 0, &rules, to); err != nil {
		// The file has no whole content then, and nothing is believed of it.
		fmt.Fprintln(os.Stderr, "tend: what the command has changed is not known:", err)
		_ = to.Truncate(0)
	}
	return status
}

// endAll ends what the command has left running.
func endAll() {
	_ = unix.Kill(-1, unix.SIGKILL) // nobody is left: an error
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// loopback brings the only interface of the network namespace up: tests of a project may
// serve to themselves.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// again runs this program in namespaces of its own: mounts, processes, network and System V
// IPC. A user who may not make them otherwise gets a user namespace, in which the ids are
// those that they have.
func again(env []string, to *os.File, user bool) error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(env[:len(env):len(env)], inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{to} // it becomes changesFD
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid, gid := os.Geteuid(), os.Getegid(); user {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		// The second and third are for overlayfs. No exec of the command leaves any.
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_NET_ADMIN}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("namespaces: %w", err)
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

// kept are the capabilities that a command of root's has, a bit each: those for its own files and
// processes. By others it could undo what was done, read a file past it, or change what the whole
// machine has once: its clock, its log, its mounts, how its processors are shared.
const kept uint64 = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL |
	1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SETFCAP

// without keeps this thread, and what it starts, from ever having other capabilities than these.
func without(others uint64) error {
	for c := range 64 {
		if others&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); errors.Is(err, unix.EINVAL) {
			return nil // the kernel knows no more
		} else if err != nil {
			return fmt.Errorf("capability %d: %w", c, err)
		}
	}
	return nil
}

func giveUp() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	// In a user namespace of a user who is not root there is nothing to drop from, and exec
	// leaves no capability.
	if err := without(kept); err != nil && os.Geteuid() == 0 {
		return err
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
