//go:build linux && (amd64 || arm64)

package spawn

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Go raises its soft limit of descriptors when a program begins, and takes that back
// for those it starts itself; what it was before it tells nobody. But an exec, even
// one that fails, takes it back: so it is seen, and raised again.

// undoRaise returns the limit as it was; nil: Go did not raise it. From here on Go
// takes nothing back any more: see [Starter.RestoreLimit].
func undoRaise() *unix.Rlimit {
	var raised, was unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &raised) != nil {
		return nil
	}
	syscall.Exec("", nil, nil)
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &was) != nil || was == raised {
		return nil
	}
	setNofile(&raised)
	return &was
}

// setNofile is setrlimit(2) without what package syscall does beside it.
func setNofile(l *unix.Rlimit) error { return unix.Prlimit(0, unix.RLIMIT_NOFILE, l, nil) }

// limitOfFiles is the one that a program is to get; nil: it has it, or a limit of its
// own. As with Go's own: what somebody else has set meanwhile counts.
func (s *Starter) limitOfFiles(p *Program) *unix.Rlimit {
	for _, l := range p.Limits {
		if l.Resource == unix.RLIMIT_NOFILE {
			return nil
		}
	}
	return s.raised()
}

// raised is the limit before Go raised it; nil: it is not raised.
func (s *Starter) raised() *unix.Rlimit {
	var now unix.Rlimit
	if s.nofile == nil || unix.Getrlimit(unix.RLIMIT_NOFILE, &now) != nil || now.Max != s.nofile.Max || now.Cur != now.Max-1 {
		return nil
	}
	return s.nofile
}

// RestoreLimit sets the limit of descriptors that this process had before Go raised it, for
// an exec in place, and returns a function that raises it again.
func (s *Starter) RestoreLimit() (again func()) {
	was := s.raised()
	if was == nil {
		return func() {}
	}
	var now unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &now)
	setNofile(was)
	return func() { setNofile(&now) }
}
