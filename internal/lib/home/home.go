// Package home knows where a user's own daemon keeps its state and listens. The
// command line and the Go SDK find it here, by the same rules:
//
//	state directory   the one that was named (--state-dir, TEND_STATE_DIR), else
//	                  /var/lib/tend for root, $XDG_STATE_HOME/tend, or
//	                  ~/.local/state/tend
//	socket            tend.sock in a state directory that was named; else in
//	                  /run/tend for root or $XDG_RUNTIME_DIR/tend, or in the
//	                  state directory. A runtime directory of another user, which su
//	                  leaves in the environment, is not used
//	URLs              what the daemon has written into the file url of its
//	                  state directory, then the socket
package home

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// URLFile is the name of the file in a state directory into which its daemon
// writes its URL.
const URLFile = "url"

// RunDir is where root's daemon has its socket.
const RunDir = "/run/tend"

const (
	socketFile   = "tend.sock"
	socketMaxLen = 107 // sun_path of unix(7), without the final NUL
)

// Home finds the paths of one daemon.
type Home struct {
	StateDir string              // that was named; "": the user's own
	Getenv   func(string) string // of the environment
}

// Dir returns the absolute state directory.
func (h Home) Dir() (string, error) {
	if h.StateDir != "" {
		return filepath.Abs(h.StateDir)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/tend", nil
	}
	if dir := h.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tend"), nil
	}
	if home := h.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "tend"), nil
	}
	return "", errors.New("no state directory: HOME is not set; give --state-dir DIR")
}

// Socket returns the path of the socket. A directory that was named keeps its
// socket inside, so that two daemons never meet at one path.
func (h Home) Socket() (string, error) {
	dir, err := h.Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, socketFile)
	if h.StateDir == "" {
		switch runtime := h.Getenv("XDG_RUNTIME_DIR"); {
		case os.Geteuid() == 0:
			path = filepath.Join(RunDir, socketFile)
		case filepath.IsAbs(runtime) && isOwnDir(runtime):
			path = filepath.Join(runtime, "tend", socketFile)
		}
	}
	return path, CheckSocket(path)
}

// SystemSocket is that of root's daemon.
func SystemSocket() string { return filepath.Join(RunDir, socketFile) }

// CheckSocket reports that the kernel takes no socket at a path of this length.
func CheckSocket(path string) error {
	if len(path) > socketMaxLen {
		return fmt.Errorf("socket path %s has %d bytes; the kernel allows %d: give a shorter --state-dir DIR, or --socket PATH to tend serve",
			path, len(path), socketMaxLen)
	}
	return nil
}

func isOwnDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir() && atomicfile.Theirs(fi, os.Geteuid())
}

// URLs returns where the daemon may be reached, the likeliest first: where it
// said that it listens, and where it listens by default. It is an error if the state directory
// is another user's, or that user's link: whoever serves there gets commands, their
// environment and the token.
func (h Home) URLs() ([]string, error) {
	dir, err := h.Dir()
	if err != nil {
		return nil, err
	}
	for _, look := range []func(string) (os.FileInfo, error){os.Lstat, os.Stat} {
		if fi, err := look(dir); err == nil && !atomicfile.Theirs(fi, os.Geteuid()) {
			return nil,
				fmt.Errorf("the state directory %s is another user's, and so is the daemon there; "+
					"if it is meant, name its socket: --url unix://%[1]s/%s", dir, socketFile)
		}
	}
	socket, err := h.Socket()
	if err != nil {
		return nil, err
	}
	urls := []string{"unix://" + socket}
	if said, err := atomicfile.Read(filepath.Join(dir, URLFile), 64<<10); err == nil {
		if url := strings.TrimSpace(string(said)); url != "" && url != urls[0] {
			urls = append([]string{url}, urls...)
		}
	} else if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) && !errors.Is(err, atomicfile.ErrNoFile) {
		return nil, err
	}
	return urls, nil
}
