package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Names inside a state directory that the command line owns.
const (
	socketName   = "tend.sock"
	urlName      = "url"        // the URL of the daemon that serves this directory
	lockName     = "start.lock" // held while "tend run" starts a daemon
	logName      = "daemon.log" // output of a daemon that "tend run" started
	socketMaxLen = 107          // sun_path of unix(7), without the final NUL
)

// stateDir returns the absolute state directory: the one given, else
// /var/lib/tend for root and $XDG_STATE_HOME/tend (~/.local/state/tend) for
// everybody else.
func (inv *invocation) stateDir() (string, error) {
	if dir := inv.flags.StateDir; dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/tend", nil
	}
	if dir := inv.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tend"), nil
	}
	if home := inv.getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "tend"), nil
	}
	return "", errors.New("no state directory: HOME is not set; give --state-dir DIR")
}

// socketPath returns where the daemon of a state directory listens. A
// directory that was named keeps its socket inside, so that two daemons never
// meet at one path; the default one has it where sockets belong.
func (inv *invocation) socketPath(stateDir string) (string, error) {
	path := filepath.Join(stateDir, socketName)
	if inv.flags.StateDir == "" {
		switch runtime := inv.getenv("XDG_RUNTIME_DIR"); {
		case os.Geteuid() == 0:
			path = filepath.Join("/run/tend", socketName)
		case filepath.IsAbs(runtime) && isDir(runtime):
			path = filepath.Join(runtime, "tend", socketName)
		}
	}
	return path, checkSocketPath(path)
}

func checkSocketPath(path string) error {
	if len(path) > socketMaxLen {
		return fmt.Errorf("socket path %s has %d bytes; the kernel allows %d: give a shorter --state-dir DIR, or --socket PATH to tend serve", path, len(path), socketMaxLen)
	}
	return nil
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
