//go:build !linux

package launch

import (
	"errors"
	"net"
)

// Config of a launch; see the Linux version.
type Config struct {
	StateDir   string
	Listen     []string
	ServerArgv []string
	Keep       bool
	Environ    []string
}

// BusyError: another `tend serve` holds the state directory.
type BusyError struct {
	StateDir string
	PID      int
}

func (e *BusyError) Error() string { return "another tend serves " + e.StateDir }

var errLinux = errors.New("tend serves on Linux only: it needs splice, pidfd and epoll; use the client commands with --url")

// Exec reports that this system cannot serve.
func Exec(Config) error { return errLinux }

// Inherited reports that this system cannot serve.
func Inherited(int) ([]net.Listener, error) { return nil, errLinux }
