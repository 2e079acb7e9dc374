//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/process"
)

// explain says what a step that failed means.
func explain(err error) error {
	var e *spawn.ListError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case strings.HasPrefix(e.What, "binds["): // all but the target was looked at before
		return &process.InvalidError{Field: e.What + ".target",
			Reason: fmt.Sprintf("cannot be a mount point: a directory is seen at a directory, and a file at a file (%v)", e.Errno)}
	case strings.HasPrefix(e.What, stepProc) && e.Errno == unix.EPERM:
		return fmt.Errorf("%w: %s: %w", err, container.NoProc, process.ErrUnsupported)
	case strings.HasPrefix(e.What, "mount overlay") && e.Errno == unix.ELOOP:
		return fmt.Errorf("%w: the state directory is in a directory that sandboxes see; use tend serve --state-dir DIR, elsewhere: %w", err, process.ErrUnsupported)
	case strings.HasPrefix(e.What, "mount overlay") && e.Errno == unix.EPERM:
		return fmt.Errorf("%w: this machine does not allow it; in user namespaces there are overlays from Linux 5.11 on: %w",
			err, process.ErrUnsupported)
	case strings.HasPrefix(e.What, "mount overlay") && e.Errno == unix.EINVAL:
		return fmt.Errorf("%w: over mounts that show other ids there are overlays from Linux 5.19 on, "+
			"and none writes to a state directory that is on an overlay itself, as in a container: %w", err, process.ErrUnsupported)
	case e.Errno == unix.EPERM:
		return fmt.Errorf("%w: this machine does not allow it (%s): %w", err, Options(), process.ErrUnsupported)
	case e.Errno == unix.ENOSYS:
		return fmt.Errorf("%w: this machine does not allow it: %w", err, process.ErrUnsupported)
	case (e.What == stepNamespaces || e.What == stepCgroups) && (e.Errno == unix.ENOSPC || e.Errno == unix.EUSERS):
		return fmt.Errorf("%w: the machine has no more namespaces (sysctl user.max_*_namespaces): %w", err, process.ErrLimit)
	case e.Errno == unix.EAGAIN, e.Errno == unix.ENOMEM:
		return fmt.Errorf("%w: %w", err, process.ErrLimit)
	}
	return err
}
