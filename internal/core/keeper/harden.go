//go:build linux

package keeper

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/seccomp"
	"github.com/tend-run/tend/process"
)

// What programs in containers are denied is made once, for all starts.

// filter of system calls. Error: process.ErrUnsupported.
func (cs *containers) filter() (seccomp.Filter, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.denied == nil {
		f, err := seccomp.Default()
		if err != nil {
			return nil, fmt.Errorf("seccomp: %w: %w", err, process.ErrUnsupported)
		}
		cs.denied = f
	}
	return cs.denied, nil
}

// needsLandlock: a container with its own network namespace shares abstract sockets with no
// other program, and with its own pid namespace no signals.
func needsLandlock(s *container.Spec) bool { return s.Harden.Landlock && s.Net == container.NetHost }

// scopeAbstract is LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, Linux 6.12.
const scopeAbstract = 1

// landlock is a ruleset that keeps programs from abstract sockets outside. Error:
// process.ErrUnsupported.
func (cs *containers) landlock() (int, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.ruleset <= 0 {
		attr := struct{ fs, net, scoped uint64 }{scoped: scopeAbstract}
		fd, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
		if err != 0 {
			return 0, fmt.Errorf("landlock for the machine's network (Linux 6.12): %w: %w", err, process.ErrUnsupported)
		}
		cs.ruleset = int(fd)
	}
	return cs.ruleset, nil
}

// harden reports what of a spec's Harden cannot be had.
func (cs *containers) harden(s *container.Spec) error {
	if s.Harden.Seccomp {
		if _, err := cs.filter(); err != nil {
			return err
		}
	}
	if needsLandlock(s) {
		if _, err := cs.landlock(); err != nil {
			return err
		}
	}
	return nil
}
