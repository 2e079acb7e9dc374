package confine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/lib/seccomp"
)

// MainInside is the program of [ArgvInside]; its arguments are those after the verb. It
// makes a shadow of the sandbox, runs this program there, which becomes the command as in
// [Main], and collects the changes. The status is that of Main.
func MainInside(args, env []string, open func(Sandbox) (Shadow, error)) int {
	status, err := runInside(args, env, open)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tend: the command was not run:", err)
		return Refused
	}
	return status
}

func runInside(args, env []string, open func(Sandbox) (Shadow, error)) (status int, err error) {
	at, rules, argv, err := parseInside(args)
	if err != nil {
		return 0, err
	}
	to, err := os.OpenFile(rules.Changes, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	defer to.Close()
	s, err := open(at)
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := s.Close(); cerr != nil {
			fmt.Fprintln(os.Stderr, "tend: after the command:", cerr)
		}
	}()
	rules.inner = &inner{bare: s.Covers(rules.Root), room: s.Room()}
	if rules.inner.as, err = s.User(at.User); err != nil {
		return 0, err
	}
	rules.inner.caps, rules.inner.filter = s.Harden()
	status, err = s.Run(Program{Argv: Argv("tend", rules, argv), Env: env, Dir: rules.Root, File: to})
	if err != nil {
		return 0, err
	}
	if err := collectInside(s, rules, to); err != nil {
		fmt.Fprintln(os.Stderr, "tend: what the command has changed is not known:", err)
		_ = to.Truncate(0)
	}
	return status, nil
}

// collectInside writes what was changed, unless it was written in the shadow. Of a command
// that did not come to its end nothing is.
func collectInside(s Shadow, rules Rules, to *os.File) error {
	info, err := to.Stat()
	if err != nil || info.Size() == 0 || !rules.inner.bare {
		return errors.Join(err, s.End())
	}
	if err := s.End(); err != nil {
		return err
	}
	upper, first, err := s.Changed(rules.Root)
	if err != nil {
		return err
	}
	if err := to.Truncate(0); err != nil {
		return err
	}
	if _, err := to.Seek(0, 0); err != nil {
		return err
	}
	if upper < 0 {
		_, err := to.WriteString("{}\n")
		return err
	}
	defer unix.Close(upper)
	return collect(upper, first, &rules, to)
}

// ended is what the inside writes of a command that came to its end, where the outside collects.
const ended = "\n"

// user is whom the command runs as; nil: whom this process does.
func (r *Rules) user() *User {
	if r.inner == nil {
		return nil
	}
	return &r.inner.as
}

// size is that of a filesystem in memory that wants so many bytes.
func (r *Rules) size(bytes int64) string {
	if r.inner != nil {
		bytes = min(bytes, r.inner.room)
	}
	return strconv.FormatInt(bytes, 10)
}

// attributes are whom a process of the command is.
func (r *Rules) attributes() *syscall.SysProcAttr {
	if r.inner == nil {
		return nil
	}
	u := r.inner.as
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}}
}

// deny takes from this thread, and from what it starts, what programs of the sandbox have not;
// on the machine, what leads to the keys and the log of its kernel.
func (r *Rules) deny() error {
	filter := seccomp.Shared
	if i := r.inner; i != nil {
		if err := without(i.caps); err != nil {
			return err
		}
		if !i.filter {
			return nil
		}
		filter = seccomp.Default
	}
	f, err := filter()
	if errors.Is(err, seccomp.ErrUnsupported) && r.inner == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("a filter of system calls: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: (*unix.SockFilter)(unsafe.Pointer(&f[0]))}
	if err := errno(unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))); err != nil {
		return fmt.Errorf("a filter of system calls: %w", err)
	}
	return nil
}
