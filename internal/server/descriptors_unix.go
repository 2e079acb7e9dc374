//go:build unix

package server

import "golang.org/x/sys/unix"

// descriptorLimit returns how many files this process may open (the Go runtime
// has raised the soft limit to the hard one), or 0 if it is not known.
func descriptorLimit() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(l.Cur, 1<<30))
}
