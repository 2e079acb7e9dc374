//go:build linux

// Package anchor implements the role that holds the descriptors that must stay open,
// and the launcher in front of it.
//
// # Anchor
//
// The anchor holds a duplicate of each descriptor that a process needs to stay open,
// and of the listening sockets. The keeper deposits them; see wire's vault protocol.
// The anchor is the subreaper: when a keeper dies, its processes become children of the
// anchor, which collects their exit statuses for the next keeper (package reaplog). The
// anchor restarts keeper and server when they die. It does nothing else, so it rarely
// needs a new version.
//
// # Launcher
//
// The launcher is the foreground process of `tend serve`: it holds the lock on the
// state directory and the listening sockets, restarts the anchor when it dies, reaps
// orphans that are reparented to it, and turns SIGTERM into an orderly shutdown. It
// holds a mirror of the vault: the keeper deposits each descriptor with both, so anchor
// and keeper (and the server) may be killed at the same instant. The launcher may be
// killed too: the others continue, and the next `tend serve` finds them.
//
// # When the anchor dies
//
// Nothing stops. The launcher starts another anchor, which finds keeper and server by
// the roles file, and asks the keeper (vault.sock) to deposit everything again.
//
// The package imports only the standard library and x/sys, and neither net nor os/exec,
// because this role must stay small.
package anchor

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/core/reaplog"
	"github.com/tend-run/tend/internal/core/rundir"
	"github.com/tend-run/tend/internal/lib/unixsock"
)

// How long roles get to end in good order, before SIGKILL.
const (
	serverGrace = 5 * time.Second
	keeperGrace = 20 * time.Second
)

// Config of an anchor.
type Config struct {
	StateDir string
	// Self is the program that holds the roles anchor and keeper.
	Self string
	// Listeners are the listening sockets, passed to the server as 3, 4, ….
	Listeners []int
	// Environ of the roles, "K=V".
	Environ []string
	Log     io.Writer
}

type anchor struct {
	cfg   Config
	run   *rundir.Dir
	vault *vault

	mu        sync.Mutex
	listeners []int         // guarded by mu
	keeper    role          // guarded by mu
	server    role          // guarded by mu
	program   int           // the server's program, open; -1: none; guarded by mu
	vaultConn chan struct{} // closed when the last keeper's deposits are all read; guarded by mu
}

// Run serves until it is asked to shut down.
func Run(cfg Config) (err error) {
	run, err := rundir.Open(cfg.StateDir)
	if err != nil {
		return err
	}
	run.SetLastWords("anchor", nil)
	defer func() {
		if err != nil {
			run.SetLastWords("anchor", err)
		}
	}()
	if _, err := run.Hold("anchor"); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper: %w", err)
	}
	a := &anchor{cfg: cfg, run: run, listeners: cfg.Listeners, vault: newVault(), program: -1}
	a.keeper = role{name: "keeper", start: a.startKeeper}
	a.server = role{name: "server", start: a.startServer}
	failpoint.Hit(failpoint.AnchorHeld)
	term := notify(unix.SIGTERM)
	go a.reap(notify(unix.SIGCHLD))
	control, err := run.Listen(rundir.AnchorSocket, unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	known, _ := run.ReadFile(rundir.Roles)
	if err := run.EndShutdown(time.Now()); err != nil {
		a.logf("the shutdown before: %v", err)
	}
	a.mu.Lock()
	a.resume(&a.keeper, known)
	failpoint.Hit(failpoint.AnchorResumed)
	a.resume(&a.server, known)
	a.mu.Unlock()
	go a.control(control)
	<-term
	a.shutdown(false)
	return nil
}

func notify(s os.Signal) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, s)
	return c
}

func (a *anchor) logf(format string, v ...any) {
	fmt.Fprintf(a.cfg.Log, "tend anchor[%d]: "+format+"\n", append([]any{os.Getpid()}, v...)...)
}

// resume adopts a role that a former anchor started, or starts it.
func (a *anchor) resume(r *role, known []byte) {
	if r.adopt(rundir.ParseRole(known, r.name)) {
		a.adopted(r)
		return
	}
	a.begin(r)
}

// adopted watches a role that another anchor started. a.mu is held.
func (a *anchor) adopted(r *role) {
	if r == &a.keeper {
		go a.connectKeeper(r.pid, r.ended)
	} else if fd, err := unix.Open(fmt.Sprintf("/proc/%d/exe", r.pid), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		a.keepProgram(fd)
	}
	a.watch(r)
}

// watch has a role that runs now kept alive. a.mu is held.
func (a *anchor) watch(r *role) {
	a.note()
	a.works(r, r.pid)
	go a.keep(r, r.pidfd, r.ended)
}

// note writes down which processes play the roles. a.mu is held.
func (a *anchor) note() {
	if err := a.run.WriteFile(rundir.Roles, rundir.FormatRoles(a.keeper.line(), a.server.line())); err != nil {
		a.logf("%v", err)
	}
}

// begin starts a role and watches it. A former anchor may have started the role and
// died before it wrote that down: begin adopts that process. a.mu is held.
func (a *anchor) begin(r *role) {
	if pid := a.run.Holder(r.name); pid > 0 && r.adopt(pid, rundir.StartTicks(pid)) {
		a.adopted(r)
		return
	}
	pid, err := r.start()
	fd := -1
	if err == nil {
		// The child is not reaped before reap sees its pid here, so the pidfd is
		// its own.
		if fd, err = unix.PidfdOpen(pid, 0); err != nil {
			unix.Kill(pid, unix.SIGKILL) // nobody would see it end, or end it
			err = fmt.Errorf("watch the %s: %w", r.name, err)
		}
	}
	if err != nil {
		r.fails++
		if r.fails <= failsToTell {
			a.logf("%v", err)
		}
		if r.fails >= failsToTell {
			a.run.SetTrouble(r.name, fmt.Errorf("the %s cannot start: %w. It is tried again, at last every %v", r.name, err, maxFailPause))
		}
		time.AfterFunc(failPause(r.fails), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			if !r.stopped && r.pid == 0 {
				a.begin(r)
			}
		})
		return
	}
	r.set(pid, rundir.StartTicks(pid), fd)
	a.watch(r)
}

// keep waits for a role's end and starts it again.
func (a *anchor) keep(r *role, pidfd int, ended chan struct{}) {
	waitEnd(pidfd)
	a.mu.Lock()
	a.collect() // how it ended counts for what comes next
	lived := time.Since(r.since)
	pid := r.pid
	stopped := r.stopped
	pause, fails := r.gone(lived), r.fails
	unix.Close(pidfd)
	close(ended)
	a.mu.Unlock()
	if stopped {
		return
	}
	if fails < failsToTell {
		a.logf("%s[%d] ended after %v, starting another", r.name, pid, lived.Round(time.Millisecond))
	}
	time.Sleep(pause)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !r.stopped && r.pid == 0 {
		a.begin(r)
	}
}

// works forgets that a role could not start, once it has lived well.
func (a *anchor) works(r *role, pid int) {
	time.AfterFunc(livedWell, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.pid == pid {
			r.fails = 0
			a.run.SetTrouble(r.name, nil)
		}
	})
}

// reap collects children: the roles, which keep watches by their pidfds, and
// processes of a keeper that died, whose statuses are written down for the next
// one.
func (a *anchor) reap(chld <-chan os.Signal) {
	for range chld {
		// A role's pid must be known before it is reaped: begin holds mu from
		// before the fork until it is.
		a.mu.Lock()
		a.collect()
		a.mu.Unlock()
	}
}

// collect is one round of reap. a.mu is held.
func (a *anchor) collect() {
	reaplog.Reap(a.run.Path(rundir.Orphans), func(pid int, status unix.WaitStatus) bool {
		for _, r := range []*role{&a.keeper, &a.server} {
			if pid == r.pid {
				a.judge(r, status)
				return true
			}
		}
		return false
	}, func(err error) { a.logf("an exit status could not be written down: %v", err) })
}

// judge counts the ends of a role that cannot live. It reports them once, in the log
// and in the state of the daemon. a.mu is held.
func (a *anchor) judge(r *role, status unix.WaitStatus) {
	r.judge(status)
	tellFails(a.run, r.name, r.fails, status, func(err error) { a.logf("%v", err) })
}

func (a *anchor) startKeeper() (int, error) {
	if a.vaultConn != nil { // all deposits of the former keeper first
		select {
		case <-a.vaultConn:
		case <-time.After(time.Second):
			a.logf("the former keeper's socket does not end; going on")
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("vault socket: %w", err)
	}
	defer unix.Close(pair[1])
	pid, err := a.spawnKeeper([]string{"tend-keeper", "keeper", "--state-dir", a.cfg.StateDir, "--vault", "3"}, pair[1])
	if err != nil {
		unix.Close(pair[0])
		return 0, err
	}
	failpoint.Hit(failpoint.KeeperForked)
	a.serveVault(pair[0])
	return pid, nil
}

// failuresToRollBack is how many keepers of an upgrade's program may end by
// themselves at once, in a row, before the program that came with us is used.
const failuresToRollBack = 3

// spawnKeeper starts the program of the last upgrade, or our own.
func (a *anchor) spawnKeeper(argv []string, vault int) (int, error) {
	program := a.run.Path(rundir.Program)
	if unix.Access(program, unix.X_OK) == nil {
		if a.keeper.fails < failuresToRollBack {
			pid, err := spawn(program, argv, a.cfg.Environ, []int{vault})
			if err == nil {
				return pid, nil
			}
			a.logf("%v", err)
		}
		a.logf("the program of the last upgrade does not run; going back to the one before")
		os.Remove(program)
	}
	return spawn(a.cfg.Self, argv, a.cfg.Environ, []int{vault})
}

// serveVault takes a keeper's deposits from the socket. a.mu is held.
func (a *anchor) serveVault(sock int) {
	done := make(chan struct{})
	a.vaultConn = done
	go func() {
		defer close(done)
		a.vault.serve(sock)
	}()
}

// connectKeeper asks a living keeper to deposit everything here, unless it ends first.
// Meanwhile the launcher's mirror has everything. If that keeper has ended, another one
// may answer: it sends everything to the newest connection, so that connection is kept.
func (a *anchor) connectKeeper(pid int, ended <-chan struct{}) {
	for range 1000 {
		sock, err := a.run.Dial(rundir.VaultSocket, unix.SOCK_SEQPACKET)
		if err == nil && a.takeVault(sock, pid) {
			return
		}
		select {
		case <-ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	a.logf("keeper[%d] cannot be reached: its descriptors are in the launcher alone", pid)
}

// takeVault serves the connection if it leads to the keeper, and reports whether nothing
// is left to do for the keeper with this pid.
func (a *anchor) takeVault(sock, pid int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	// 0: the kernel does not say
	if who, _, _ := unixsock.Peer(sock); who == a.keeper.pid || who == 0 && pid == a.keeper.pid {
		a.serveVault(sock)
		return true
	}
	unix.Close(sock)
	return a.keeper.pid != pid
}

func (a *anchor) startServer() (int, error) {
	b, err := a.run.ReadFile(rundir.ServerArgv)
	if err != nil {
		return 0, fmt.Errorf("the server's command line: %w", err)
	}
	argv := splitArgv(b)
	if argv[0] == "" {
		return 0, fmt.Errorf("the server's command line is empty")
	}
	program := argv[0]
	fd, err := unix.Open(program, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && a.program >= 0 {
		a.logf("%s is gone; the server goes on as the same program as before", program)
		program = fmt.Sprintf("/proc/self/fd/%d", a.program)
	}
	pid, serr := spawn(program, argv, a.cfg.Environ, a.listeners)
	switch {
	case err != nil:
	case serr != nil:
		unix.Close(fd)
	default:
		a.keepProgram(fd)
	}
	return pid, serr
}

// keepProgram holds the server's program open, so that a server can be started even if
// its file was moved or removed: `go run` removes the built program when it ends. a.mu
// is held.
func (a *anchor) keepProgram(fd int) {
	if a.program >= 0 {
		unix.Close(a.program)
	}
	a.program = fd
}

func splitArgv(b []byte) []string {
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// stop ends a role by SIGTERM, and by SIGKILL after grace. a.mu is not held.
func (a *anchor) stop(r *role, forGood bool, grace time.Duration) {
	a.mu.Lock()
	r.stopped = r.stopped || forGood
	pid, ended := r.pid, r.ended
	r.end(unix.SIGTERM)
	a.mu.Unlock()
	if pid == 0 {
		return
	}
	select {
	case <-ended:
	case <-time.After(grace):
		a.mu.Lock()
		if r.pid == pid {
			r.end(unix.SIGKILL)
		}
		a.mu.Unlock()
		<-ended
	}
}

// shutdown stops the keeper with its processes, unless keep, and then the
// server, which reports to its clients how they ended.
func (a *anchor) shutdown(keep bool) {
	if !keep {
		if err := a.run.BeginShutdown(time.Now()); err != nil {
			a.logf("the shutdown is not noted: %v", err)
		}
		a.endProcesses()
	}
	a.stop(&a.server, true, serverGrace)
	if !keep {
		os.Remove(a.run.Path(rundir.Roles))
	}
}

// endProcesses makes a keeper end all processes and containers, and itself. Only a keeper
// can do this. If there is none at this moment, or it dies during this, another one is
// started. The exit status of a keeper that a previous anchor started is unknown here,
// so another keeper then looks for leftovers.
func (a *anchor) endProcesses() {
	late := time.Now().Add(keeperGrace)
	for pause := firstPause; ; pause *= 2 {
		a.mu.Lock()
		a.keeper.stopped = true // whoever waits to start one does not
		if a.keeper.pid == 0 {
			a.begin(&a.keeper)
		}
		pid, ended := a.keeper.pid, a.keeper.ended
		a.mu.Unlock()
		begun := pid != 0 && a.obeys(pid, ended, late)
		a.stop(&a.keeper, true, time.Until(late))
		a.mu.Lock()
		done := begun && a.keeper.well
		a.mu.Unlock()
		if done {
			return
		}
		if time.Now().Add(pause).After(late) {
			a.logf("no keeper could end the processes; what ran may run on")
			return
		}
		time.Sleep(pause)
	}
}

// obeys waits until a keeper has come so far that it obeys SIGTERM, which it does from
// before it holds its lock; false: it has ended, or it is late. A keeper whose directory
// is lost has no lock that could be found, and no other keeper could start.
func (a *anchor) obeys(pid int, ended <-chan struct{}, late time.Time) bool {
	for a.run.Holder("keeper") != pid && !a.run.Lost() {
		select {
		case <-ended:
			return false
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(late) {
			return false
		}
	}
	return true
}
