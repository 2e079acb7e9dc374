package langsmith

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// commandNotFound: no command of the box has the id.
func commandNotFound(id string) error {
	return &problem{http.StatusNotFound, kindNotFound, "Command not found: " + id}
}

var (
	errTimeout = &problem{http.StatusRequestTimeout, kindTimeout, "Command timed out and was killed with all its children"}
	errLost    = &problem{http.StatusInternalServerError, kindLost,
		"the machine or the whole runtime went down while the command ran: its exit code is not known"}
)

// idAlphabet is base32 in lower case, for process IDs.
var idAlphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// processID is the process of a command. It is the same for every client and every
// server, so a command is started once.
func processID(box driver.ID, command string) process.ID {
	sum := sha256.Sum256([]byte(string(box) + "\x00" + command))
	return process.ID("ls-" + idAlphabet.EncodeToString(sum[:20]))
}

func checkCommandID(id string) error {
	if len(id) > maxCommandID || strings.IndexByte(id, 0) >= 0 {
		return requestErrorf("command_id has %d bytes or a NUL byte; 1 to %d bytes are allowed", len(id), maxCommandID)
	}
	return nil
}

// execute finds the command, or starts it.
func (f *Face) execute(ctx context.Context, box driver.Sandbox, info *driver.Info, m *message) (process.Process, string, error) {
	if err := checkCommandID(m.CommandID); err != nil {
		return nil, "", err
	}
	if m.CommandID == "" {
		m.CommandID = string(process.NewID())
	}
	id := processID(info.ID, m.CommandID)
	manager := box.Processes()
	p, err := manager.Get(ctx, process.Selector{ID: id})
	if err == nil || !errors.Is(err, process.ErrNotFound) {
		return p, m.CommandID, err
	}
	spec, err := m.spec(id, info)
	if err != nil {
		return nil, "", err
	}
	p, err = f.start(ctx, box, spec)
	if errors.Is(err, process.ErrExists) {
		// Another client was first, and asked for something else.
		p, err = manager.Get(ctx, process.Selector{ID: id})
	}
	return p, m.CommandID, err
}

// start starts a process, and wakes the box for it.
func (f *Face) start(ctx context.Context, box driver.Sandbox, spec process.Spec) (process.Process, error) {
	p, err := box.Processes().Start(ctx, spec)
	if !errors.Is(err, driver.ErrStopped) && !errors.Is(err, driver.ErrPaused) {
		return p, err
	}
	if err := box.Start(ctx); err != nil {
		return nil, err
	}
	return box.Processes().Start(ctx, spec)
}

// find finds a command that was started.
func (f *Face) find(ctx context.Context, box driver.Sandbox, info *driver.Info, command string) (process.Process, error) {
	if command == "" || checkCommandID(command) != nil {
		return nil, commandNotFound(strings.ToValidUTF8(fmt.Sprintf("%.300s", command), "\uFFFD"))
	}
	p, err := box.Processes().Get(ctx, process.Selector{ID: processID(info.ID, command)})
	if errors.Is(err, process.ErrNotFound) {
		return nil, commandNotFound(command)
	}
	return p, err
}

// endError returns the error that the client gets for the end of a command: a
// timeout is an error, each time it is sent.
func endError(e *process.Exit) error {
	switch {
	case e.Cause == process.CauseTimeout:
		return errTimeout
	case e.Lost():
		return errLost
	}
	return nil
}

// kill ends the whole tree of a command.
func (f *Face) kill(p process.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), killWithin)
	defer cancel()
	res, err := p.Kill(ctx)
	switch {
	case err == nil && len(res.Survivors) > 0:
		f.log.Warn("command survives its kill", "id", p.ID(), "pids", res.Survivors)
	case err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrNotFound):
		f.log.Warn("command not killed", "id", p.ID(), "err", err)
	}
}

// attach counts a connection of a command. The returned function gives it up,
// and kills a command that was to live only for its clients.
func (f *Face) attach(p process.Process) (detach func()) {
	id := p.ID()
	f.mu.Lock()
	f.clients[id]++
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		f.clients[id]--
		last := f.clients[id] == 0
		if last {
			delete(f.clients, id)
		}
		f.mu.Unlock()
		// A server that goes away takes its connections with it: its clients
		// come back within the process's own grace.
		if !last || f.ctx.Err() != nil {
			return
		}
		info, err := p.Info(f.ctx)
		if err == nil && info.Exit == nil && info.Spec.Labels[labelKillOnDisconnect] != "" {
			f.kill(p)
		}
	}
}
