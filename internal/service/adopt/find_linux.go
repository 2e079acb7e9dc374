package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/files/credentials"
	"github.com/tend-run/tend/internal/lib/owner"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

const (
	// maxPIDFile bounds what is read of a pid file, in bytes.
	maxPIDFile = 64
	// written is how much later than its file's time a process may have started: both
	// times are rounded, and a filesystem may be seconds coarse.
	written = 2 * time.Second
)

// Find looks for the process that a declaration means; nil: there is none. Its errors are
// those of Check, and what is wrong with the file or the port.
func Find(ctx context.Context, rule *config.Adopt, g *Guard) (*supervisor.Adopted, error) {
	pid, err := 0, error(nil)
	if rule.PIDFile != "" {
		pid, err = byFile(rule.PIDFile, g.User)
	} else {
		pid, err = byPort(uint16(rule.Port))
	}
	if pid == 0 || err != nil {
		return nil, err
	}
	a, err := Check(ctx, pid, g)
	if errors.Is(err, process.ErrNotFound) {
		return nil, nil
	}
	return a, err
}

// byFile reads a pid file, with the rights of a user; 0: it names no process. Whoever may write
// the file says which process of that user is ended with the service, so it must be theirs, as
// [owner] has it. A process that began after the file was written is not the one that it names:
// the pid was given to another program.
func byFile(path, user string) (int, error) {
	u, err := credentials.Lookup(user)
	if err != nil {
		return 0, err
	}
	// One that is gone by now was none: nobody else can put it there.
	if err := owner.Check(path, u.UID); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("the pid file is not obeyed: %w", err)
	}
	file, info, err := files.FS{User: u.User}.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the pid file cannot be read: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPIDFile+1))
	if err != nil {
		return 0, fmt.Errorf("the pid file cannot be read: %w", err)
	}
	pid, err := parsePID(string(text))
	if err != nil {
		return 0, fmt.Errorf("the pid file %s %w", path, err)
	}
	started := procfs.Started(pid)
	if started == 0 {
		return 0, nil
	}
	began := time.Now().Add(time.Duration(started - procfs.BootTime()))
	if began.After(info.ModTime().Add(written)) {
		return 0, nil
	}
	return pid, nil
}

// parsePID reads the text of a pid file: a number, and white space around it. What follows
// in further lines is the program's own, as PostgreSQL writes it. An empty file is 0: its
// program has ended, or has not written it yet.
func parsePID(text string) (int, error) {
	line, _, more := strings.Cut(strings.TrimLeft(text, " \t\r\n"), "\n")
	line = strings.TrimSpace(line)
	if line == "" {
		return 0, nil
	}
	pid, err := strconv.ParseInt(line, 10, 32)
	if err != nil || pid <= 0 || !more && len(text) > maxPIDFile {
		return 0, fmt.Errorf("has %.40q where a pid is wanted; remove it if it is stale, or name another file", line)
	}
	return int(pid), nil
}

// byPort finds the process that listens on a TCP port; 0: nobody does. Of several that
// share the socket it is the one that the others are below.
func byPort(port uint16) (int, error) {
	pids, listening, err := observe.Holders(port)
	if err != nil || !listening {
		return 0, err
	}
	roots := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		return slices.ContainsFunc(ancestors(pid), func(above int) bool { return slices.Contains(pids, above) })
	})
	switch len(roots) {
	case 0:
		return 0, fmt.Errorf("somebody listens on port %d whom this user may not look at: %w; end that, or choose another port",
			port, process.ErrPermission)
	case 1:
		return roots[0], nil
	}
	return 0, fmt.Errorf("%d processes that are not of one tree listen on port %d (pid %d, %d): which one is meant? tend adopt takes a pid",
		len(roots), port, roots[0], roots[1])
}
