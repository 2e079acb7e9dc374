//go:build linux

package anchor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// The control protocol: one request and one answer, each a packet of words
// separated by NUL; descriptors travel along. Requests:
//
//	roles                      → "ok" anchor keeper server (pids)
//	listeners                  → "ok", with the listening sockets
//	serve                      → "ok"; sockets along replace the held ones, the
//	                             server is started or restarted
//	restart server|keeper      → "ok" when the old one has ended
//	shutdown                   → "ok", then everything ends
//	release                    → "ok" when the server has ended; keeper and
//	                             processes stay
//
// An error is answered "error" text.
func (a *anchor) control(l int) {
	rundir.Accept(l, nil, func(fd int) { go a.answer(fd) })
}

func (a *anchor) answer(fd int) {
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, fds, err := unixsock.Receive(fd, buf, nil, 0)
	if err != nil || n == 0 {
		return
	}
	words := strings.Split(string(buf[:n]), "\x00")
	out, send, err := a.command(words, fds)
	if err != nil {
		out = []string{"error", err.Error()}
	}
	unixsock.Send(fd, []byte(strings.Join(out, "\x00")), send, 0)
}

func (a *anchor) command(words []string, fds []int) (out []string, send []int, err error) {
	if words[0] != "serve" {
		unixsock.Close(fds)
	}
	switch words[0] {
	case "roles":
		a.mu.Lock()
		defer a.mu.Unlock()
		return []string{"ok", strconv.Itoa(os.Getpid()), strconv.Itoa(a.keeper.pid), strconv.Itoa(a.server.pid)}, nil, nil
	case "listeners":
		a.mu.Lock()
		defer a.mu.Unlock()
		return []string{"ok"}, a.listeners, nil
	case "serve":
		a.mu.Lock()
		if len(fds) > 0 {
			unixsock.Close(a.listeners)
			a.listeners = fds
		}
		a.server.stopped = false
		running := a.server.pid != 0
		if !running {
			a.begin(&a.server)
		}
		a.mu.Unlock()
		if running {
			a.stop(&a.server, false, serverGrace)
		}
		return []string{"ok"}, nil, nil
	case "restart":
		switch {
		case len(words) == 2 && words[1] == "server":
			a.stop(&a.server, false, serverGrace)
		case len(words) == 2 && words[1] == "keeper":
			a.mu.Lock()
			pid, ended := a.keeper.pid, a.keeper.ended
			a.keeper.end(unix.SIGKILL)
			a.mu.Unlock()
			if pid != 0 {
				<-ended
			}
		default:
			return nil, nil, fmt.Errorf("restart what? server or keeper")
		}
		return []string{"ok"}, nil, nil
	case "shutdown":
		unix.Kill(os.Getpid(), unix.SIGTERM)
		return []string{"ok"}, nil, nil
	case "release":
		a.shutdown(true)
		return []string{"ok"}, nil, nil
	}
	return nil, nil, fmt.Errorf("unknown command %q", words[0])
}

// Client talks to the anchor of a state directory.
type Client struct {
	run *rundir.Dir
	// patient clients wait for an anchor that is stopped.
	patient bool
}

// How long an anchor may take for an answer, and for one that waits for the end of
// a role.
const (
	answerTime = 3 * time.Second
	endTime    = serverGrace + keeperGrace + answerTime
)

// ErrNotRunning: no anchor lives on the state directory.
var ErrNotRunning = errors.New("no tend runs on this state directory")

// Dial connects to the anchor. If there is none, the error is ErrNotRunning.
func Dial(stateDir string) (*Client, error) {
	run, err := rundir.Open(stateDir)
	if err != nil {
		return nil, err
	}
	c := &Client{run: run}
	if _, err := c.Roles(); err != nil {
		run.Close()
		return nil, err
	}
	return c, nil
}

// Await is Dial for one who knows that a tend runs: between two anchors it waits for the
// next one.
func Await(stateDir string) (*Client, error) {
	for end := time.Now().Add(answerTime); ; time.Sleep(5 * time.Millisecond) {
		c, err := Dial(stateDir)
		if !errors.Is(err, ErrNotRunning) {
			return c, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the anchor has ended, and no other took its place in %v; "+
				"tend serve starts one if the launcher has ended too", answerTime)
		}
	}
}

// Close releases the client.
func (c *Client) Close() { c.run.Close() }

func (c *Client) call(fds []int, words ...string) ([]string, []int, error) {
	sock, err := c.run.Dial(rundir.AnchorSocket, unix.SOCK_SEQPACKET)
	if errors.Is(err, rundir.ErrNobody) {
		return nil, nil, ErrNotRunning
	}
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(sock)
	if !c.patient {
		limit := unix.NsecToTimeval(answerTime.Nanoseconds())
		if words[0] == "serve" || words[0] == "restart" || words[0] == "release" {
			limit = unix.NsecToTimeval(endTime.Nanoseconds())
		}
		if err := errors.Join(unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
			unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)); err != nil {
			return nil, nil, fmt.Errorf("anchor: %w", err)
		}
	}
	buf, n := make([]byte, 4096), 0
	var got []int
	if err = unixsock.Send(sock, []byte(strings.Join(words, "\x00")), fds, 0); err == nil {
		n, got, err = unixsock.Receive(sock, buf, nil, 0)
	}
	if err == unix.EAGAIN {
		return nil, nil, errors.New(c.run.Describe("anchor"))
	}
	if err == unix.EPIPE || err == unix.ECONNRESET || err == nil && n == 0 {
		return nil, nil, fmt.Errorf("%w: the anchor ended before it answered", ErrNotRunning)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("anchor: %w", err)
	}
	out := strings.Split(string(buf[:n]), "\x00")
	if out[0] != "ok" {
		unixsock.Close(got)
		return nil, nil, fmt.Errorf("anchor: %s", strings.Join(out, ": "))
	}
	return out[1:], got, nil
}

// tell is call for what has no other answer than that it is done.
func (c *Client) tell(fds []int, words ...string) error {
	_, _, err := c.call(fds, words...)
	return err
}

// Pids of the roles; 0 for one that is not running at this moment.
type Pids struct{ Anchor, Keeper, Server int }

// Roles asks for the pids.
func (c *Client) Roles() (Pids, error) {
	w, _, err := c.call(nil, "roles")
	if err != nil || len(w) != 3 {
		return Pids{}, err
	}
	var p Pids
	p.Anchor, _ = strconv.Atoi(w[0])
	p.Keeper, _ = strconv.Atoi(w[1])
	p.Server, _ = strconv.Atoi(w[2])
	return p, nil
}

// Listeners returns duplicates of the listening sockets.
func (c *Client) Listeners() ([]int, error) {
	_, fds, err := c.call(nil, "listeners")
	return fds, err
}

// Serve gives the anchor these listening sockets and (re)starts the server
// with the command line in the run directory.
func (c *Client) Serve(listeners []int) error { return c.tell(listeners, "serve") }

// SetServer changes the command line of the server for its next start.
func (c *Client) SetServer(argv []string) error {
	return c.run.WriteFile(rundir.ServerArgv, []byte(strings.Join(argv, "\x00")))
}

// Server returns the command line of the server.
func (c *Client) Server() ([]string, error) {
	b, err := c.run.ReadFile(rundir.ServerArgv)
	return splitArgv(b), err
}

// RestartServer ends the server in good order; another takes its place.
func (c *Client) RestartServer() error { return c.tell(nil, "restart", "server") }

// RestartKeeper replaces the keeper; nothing is lost.
func (c *Client) RestartKeeper() error { return c.tell(nil, "restart", "keeper") }

// Shutdown ends everything, processes too; keep leaves anchor, keeper and
// processes running and returns when the server has ended.
func (c *Client) Shutdown(keep bool) error {
	if keep {
		return c.tell(nil, "release")
	}
	return c.tell(nil, "shutdown")
}
