// Package launch turns `tend serve` into the launcher role: it opens the listening
// sockets, takes the lock on the state directory, and executes in its place the small
// binary that keeps the roles alive.
package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/anchor"
	"github.com/tend-run/tend/internal/core/embedded"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/eintr"
)

// Config of a launch.
type Config struct {
	// StateDir, absolute, made with mode 0700 if missing.
	StateDir string
	// Listen are addresses: "host:port", or "unix:/path". With port 0 the
	// kernel picks, unless a daemon that still runs on the state directory
	// has a socket on that host: then its socket is used again.
	Listen []string
	// Passed are sockets of Listen that are already open. They are used first, because
	// their opener keeps them open even without tend.
	Passed []Socket
	// ServerArgv is the command line of the server role. argv[0] is a path.
	// It finds the sockets by Inherited(len(Listen)), in the order of Listen.
	ServerArgv []string
	// Keep: at the end, leave anchor, keeper and processes running.
	Keep bool
	// Background: a command started the daemon because there was none. A
	// `tend serve` may take its place.
	Background bool
	// Environ of the roles, "K=V".
	Environ []string
}

// BusyError: another `tend serve` holds the state directory.
type BusyError struct {
	StateDir string
	PID      int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("another tend (pid %d) serves %s: stop it, or give this one its own --state-dir", e.PID, e.StateDir)
}

// LeastFiles is how many descriptors each role must be allowed. With fewer it
// could not accept the connections on which it is asked to end a process.
const LeastFiles = 64

// Exec replaces the current process by the launcher. It returns only with an
// error: *BusyError, a socket that cannot be opened, or too few descriptors.
func Exec(cfg Config) error {
	if err := Usable(cfg.StateDir); err != nil {
		return err
	}
	run, err := rundir.Open(cfg.StateDir)
	if err != nil {
		return err
	}
	if err := lock(run, cfg.StateDir); err != nil {
		return err
	}
	sockets, err := open(cfg)
	if err != nil {
		return err
	}
	if err := run.WriteFile(rundir.ServerArgv, []byte(strings.Join(cfg.ServerArgv, "\x00"))); err != nil {
		return err
	}
	f, err := embedded.Open()
	if err != nil {
		return err
	}
	argv := []string{embedded.Name, "launcher", "--state-dir", cfg.StateDir, "--sockets", join(sockets)}
	if cfg.Keep {
		argv = append(argv, "--keep")
	}
	if cfg.Background {
		argv = append(argv, background)
	}
	err = unix.Exec(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), argv, cfg.Environ)
	return fmt.Errorf("start %s: %w", embedded.Name, err)
}

// Usable returns an error if this machine lacks something that the roles need; it
// creates the state directory.
func Usable(stateDir string) error {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return fmt.Errorf("tend needs /proc, which is not there (%w); mount it: mount -t proc proc /proc", err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Max < LeastFiles {
		return fmt.Errorf("a program may open %d files here, and tend needs %d to serve at all, three for each process on top: raise the limit (ulimit -n)", files.Max, LeastFiles)
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("tend needs pidfd_open, which this kernel or a sandbox around it refuses (%w): use Linux 5.4 or later, and a seccomp profile that allows it", err)
	}
	unix.Close(fd)
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w (choose another with --state-dir)", err)
	}
	if err := Owned(stateDir); err != nil {
		return err
	}
	if err := unix.Access(stateDir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("state directory %s cannot be written to: %w (choose another with --state-dir)", stateDir, err)
	}
	return nil
}

// leaveWait bounds how long the lock may be held by a process that is no launcher: one that
// ends, of which /proc shows no command line a moment before its files are closed, or one that
// is to become a launcher.
const leaveWait = 5 * time.Second

// lock takes the lock of the state directory for as long as this process, and
// the launcher that it becomes, lives.
func lock(run *rundir.Dir, stateDir string) error {
	fd, err := unix.Open(run.Path(rundir.Lock), unix.O_RDWR|unix.O_CREAT, 0o600) // stays open over the exec
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	for end := time.Now().Add(leaveWait); unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(2 * time.Millisecond) {
		if pid := locked(run); launcherArgv(pid, stateDir) != nil || time.Now().After(end) {
			unix.Close(fd)
			return &BusyError{stateDir, pid}
		}
	}
	unix.Ftruncate(fd, 0)
	_, _ = eintr.Get(func() (int, error) { return unix.Pwrite(fd, []byte(strconv.Itoa(os.Getpid())+"\n"), 0) })
	return nil
}

// Kept reports whether a tend serve ended with --keep and no other has taken its
// processes over: an anchor lives, without launcher and server. Its sockets accept
// connections, and the next tend serve answers them.
func Kept(stateDir string) bool {
	return look(stateDir, func(run *rundir.Dir) bool {
		if run.Holder("anchor") == 0 || run.Holder("server") != 0 {
			return false
		}
		// The lock itself is not tried: a launcher that starts now would be refused.
		pid := locked(run)
		return pid > 0 && unix.Kill(pid, 0) == unix.ESRCH
	})
}

// locked is the pid that the lock's last owner wrote down; 0: none.
func locked(run *rundir.Dir) int {
	b, err := run.ReadFile(rundir.Lock)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// Launcher returns the pid of the launcher of a state directory; 0: there is none.
func Launcher(stateDir string) int {
	return look(stateDir, func(run *rundir.Dir) int {
		pid := locked(run)
		if launcherArgv(pid, stateDir) == nil {
			return 0
		}
		return pid
	})
}

// background is how the launcher of Config.Background is called.
const background = "--background"

// Replaceable reports whether the launcher of a state directory may be replaced
// by a `tend serve`: it was started with Config.Background.
func Replaceable(stateDir string) bool {
	return look(stateDir, func(run *rundir.Dir) bool { return slices.Contains(launcherArgv(locked(run), stateDir), background) })
}

// launcherArgv is the command line of a process if that is the launcher of this
// state directory, else nil: the number may be another program's by now.
func launcherArgv(pid int, stateDir string) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if argv := strings.Split(string(b), "\x00"); err == nil && len(argv) > 3 &&
		slices.Equal(argv[1:4], []string{"launcher", "--state-dir", stateDir}) {
		return argv
	}
	return nil
}

// EndLauncher ends the launcher alone, as Kept has it: all it stands for continues
// and is the next tend serve's.
func EndLauncher(stateDir string) error {
	run, err := rundir.Open(stateDir)
	if err != nil {
		return err
	}
	defer run.Close()
	pid := locked(run)
	if pid == 1 {
		return errors.New("tend serve is process 1 here, with which all others end; nothing can be kept")
	}
	fd, err := unix.PidfdOpen(max(pid, 0), 0)
	if err != nil {
		return nil // it is gone
	}
	defer unix.Close(fd)
	if launcherArgv(pid, stateDir) == nil {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, anchor.Leave, nil, 0); err != nil {
		return fmt.Errorf("end the launcher: %w", err)
	}
	return nil
}

// open returns a listening socket for each address, and behind them what keepBeside makes of
// them, not close-on-exec.
func open(cfg Config) ([]int, error) {
	var held []int
	if c, err := anchor.Dial(cfg.StateDir); err == nil {
		held, err = c.Listeners()
		c.Close()
		if err != nil && !errors.Is(err, anchor.ErrNotRunning) {
			return nil, err
		}
	} else if !errors.Is(err, anchor.ErrNotRunning) {
		return nil, err
	}
	var out []int
	for _, addr := range cfg.Listen {
		fd := -1
		if i := slices.IndexFunc(cfg.Passed, func(s Socket) bool { return s.Addr == addr }); i >= 0 {
			fd = cfg.Passed[i].FD
		} else {
			fd = pick(&held, addr)
		}
		if fd < 0 {
			var err error
			if fd, err = listenAt(addr); err != nil {
				return nil, err
			}
		}
		out = append(out, fd)
	}
	kept, err := keepBeside(cfg.Listen, out, &held)
	if err != nil {
		return nil, err
	}
	out = append(out, kept...)
	for _, fd := range out {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pick takes the held socket that serves the address, or returns -1.
func pick(held *[]int, addr string) int {
	for i, fd := range *held {
		sa, err := unix.Getsockname(fd)
		if err == nil && matches(addr, sa) {
			*held = append((*held)[:i], (*held)[i+1:]...)
			return fd
		}
	}
	return -1
}

func matches(addr string, sa unix.Sockaddr) bool {
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if u, ok := sa.(*unix.SockaddrUnix); ok {
		_, err := os.Stat(path)
		return isUnix && u.Name == path && err == nil
	}
	has, ok := tcpAddr(sa)
	if isUnix || !ok {
		return false
	}
	want, err := net.ResolveTCPAddr("tcp", addr)
	return err == nil && want.IP.Equal(has.Addr().AsSlice()) && (want.Port == 0 || want.Port == int(has.Port()))
}

// listenAt opens a new socket. A unix socket is 0600, in a directory that is
// made 0700 if missing; a stale file is replaced, a live one is not.
func listenAt(addr string) (int, error) {
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return -1, fmt.Errorf("listen on %s: %w (choose another with --listen)", addr, err)
		}
		defer l.Close()
		return dup(l.(*net.TCPListener))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return -1, fmt.Errorf("socket directory: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return -1, fmt.Errorf("socket %s is in use by another daemon (choose another with --socket)", path)
	}
	os.Remove(path)
	// The file has the mode of the socket from its first moment on: something else may lie at
	// the path afterwards.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(cerr, err)
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return -1, fmt.Errorf("listen on %s: %w (choose another with --socket)", path, err)
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	defer u.Close()
	return dup(u)
}

func dup(l interface{ File() (*os.File, error) }) (int, error) {
	f, err := l.File()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return unix.Dup(int(f.Fd()))
}

func join(fds []int) string {
	var s []string
	for _, fd := range fds {
		s = append(s, strconv.Itoa(fd))
	}
	return strings.Join(s, ",")
}

// KeeperProgram is where the program of an upgraded keeper is put: the anchor
// starts it from there on.
func KeeperProgram(stateDir string) string { return filepath.Join(stateDir, "run", rundir.Program) }

// HoldServer makes this process the only server on the state directory, for as
// long as it lives. It fails if the anchor that started this process has ended: the
// next anchor may have found no server yet, and starts its own, or all has ended
// meanwhile.
func HoldServer(stateDir string) error {
	run, err := rundir.Open(stateDir)
	if err != nil {
		return err
	}
	defer run.Close()
	fd, err := run.Hold("server")
	if err != nil {
		return err
	}
	if !anchored(stateDir) {
		unix.Close(fd)
		return errors.New("the anchor that started this server has ended; the next one starts another, and tend serve starts both")
	}
	return nil
}

// anchored reports whether our parent is the anchor of the state directory. Where that
// cannot be seen, it is taken to be.
func anchored(stateDir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", os.Getppid()))
	if err != nil {
		return true
	}
	argv := strings.Split(string(b), "\x00")
	if len(argv) < 4 || !slices.Equal(argv[1:3], []string{"anchor", "--state-dir"}) {
		return false
	}
	// A former tend serve may have called the directory by another path.
	theirs, terr := os.Stat(argv[3])
	ours, oerr := os.Stat(stateDir)
	return terr != nil || oerr != nil || os.SameFile(theirs, ours)
}

// Inherited returns the n listening sockets that the anchor passed to the
// server role, as descriptors 3 to 3+n-1. Those behind them only keep ports: the anchor
// has them, and here they are closed.
func Inherited(n int) ([]net.Listener, error) {
	var out []net.Listener
	for fd := 3 + n; ; fd++ {
		// What this process has opened itself is close-on-exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != 0 {
			break
		}
		unix.Close(fd)
	}
	for fd := 3; fd < 3+n; fd++ {
		unix.CloseOnExec(fd)
		f := os.NewFile(uintptr(fd), "listener")
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("listening socket %d of %d: %w", fd-2, n, err)
		}
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // the anchor listens on
		}
		out = append(out, l)
	}
	return out, nil
}
