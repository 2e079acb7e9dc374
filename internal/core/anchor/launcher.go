//go:build linux

package anchor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/reaplog"
	"github.com/tend-run/tend/internal/core/rundir"
)

// LauncherConfig of the foreground process.
type LauncherConfig struct {
	StateDir  string
	Self      string
	Listeners []int
	// Keep: SIGTERM ends the server and the launcher only; anchor, keeper and
	// processes stay for the next `tend serve`.
	Keep    bool
	Environ []string // of the roles
	Log     io.Writer
}

// Leave is the signal that ends the launcher and no other role.
const Leave = unix.SIGUSR1

// RunLauncher keeps an anchor alive until SIGTERM, SIGINT or SIGHUP (unless it
// was ignored, as by nohup), then ends everything in good order. It returns
// nil after such an end.
func RunLauncher(cfg LauncherConfig) error {
	run, err := rundir.Open(cfg.StateDir)
	if err != nil {
		return err
	}
	// Second subreaper: takes what an anchor that died leaves behind.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper: %w", err)
	}
	l := &launcher{cfg: cfg, run: run, mirror: newVault()}
	// Before the anchor: a keeper that starts fetches from the mirror.
	mirror, err := run.Listen(rundir.MirrorSocket, unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	go l.serveMirror(mirror)
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM, unix.SIGINT, Leave)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(end, unix.SIGHUP)
	}
	chld := notify(unix.SIGCHLD)
	ended, err := l.anchor()
	if err != nil {
		return err
	}
	run.SetTrouble("anchor", nil)
	for pause := time.Duration(0); ; {
		since := time.Now()
		well := time.AfterFunc(livedWell, func() { run.SetTrouble("anchor", nil) })
		stopped := l.attend(chld, end, ended)
		well.Stop()
		if stopped {
			return nil
		}
		pause = nextPause(pause, time.Since(since))
		time.Sleep(max(pause, l.judge(time.Since(since))))
		if ended, err = l.anchor(); err != nil {
			fmt.Fprintf(cfg.Log, "tend: %v\n", err)
			ended = make(chan struct{})
			time.AfterFunc(maxPause, func() { close(ended) })
		}
	}
}

// judge counts anchors that cannot live, says so, and how long to wait then.
func (l *launcher) judge(lived time.Duration) time.Duration {
	if !ownFault(l.status) || lived >= livedWell {
		l.fails = 0
		return 0
	}
	l.fails++
	tellFails(l.run, "anchor", l.fails, l.status, func(err error) { fmt.Fprintf(l.cfg.Log, "tend: %v\n", err) })
	return failPause(l.fails)
}

type launcher struct {
	cfg    LauncherConfig
	run    *rundir.Dir
	mirror *vault
	pid    int       // of the anchor
	begun  time.Time // when it was started or found
	killed bool      // it ended by a signal, and so in no good order
	status unix.WaitStatus
	fails  int // times in a row that it ended by itself soon after its start
}

// serveMirror takes keepers' deposits, of one keeper at a time: what the one
// before said is all read before the next is answered.
func (l *launcher) serveMirror(listen int) {
	rundir.Accept(listen, nil, l.mirror.serve)
}

// anchor finds the living anchor, or starts one; the channel closes at its end.
func (l *launcher) anchor() (chan struct{}, error) {
	l.killed, l.begun = false, time.Now()
	c := &Client{run: l.run, patient: true}
	// A child of a killed anchor has its socket until it comes to its program, and would
	// not answer.
	pids, err := Pids{}, ErrNotRunning
	if l.pid == 0 || l.run.Holder("anchor") > 0 {
		pids, err = c.Roles()
	}
	if err == nil {
		// It was left by a former launcher; its server gets our command line.
		err = c.Serve(l.cfg.Listeners)
		if err != nil && !errors.Is(err, ErrNotRunning) {
			return nil, err
		}
	}
	if err == nil {
		l.pid = pids.Anchor
	} else {
		if l.pid == 0 {
			os.Remove(l.run.Path(rundir.Program)) // we are newer
		}
		argv := []string{"tend-keeper", "anchor", "--state-dir", l.cfg.StateDir, "--listeners", fmt.Sprint(len(l.cfg.Listeners))}
		if l.pid, err = spawn(l.cfg.Self, argv, l.cfg.Environ, l.cfg.Listeners); err != nil {
			return nil, err
		}
	}
	fd, err := unix.PidfdOpen(l.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch the anchor: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		waitEnd(fd)
		unix.Close(fd)
		close(ended)
	}()
	return ended, nil
}

// attend reaps and waits for the end: of tend (true) or of the anchor (false).
func (l *launcher) attend(chld, end <-chan os.Signal, ended <-chan struct{}) (stopped bool) {
	for {
		select {
		case <-chld:
			l.reap()
		case s := <-end:
			if s != Leave {
				l.stop(chld, ended)
			} else if !l.ready(chld, ended, time.After(serverGrace)) {
				fmt.Fprintf(l.cfg.Log, "tend: anchor[%d] does not answer; leaving it\n", l.pid)
			}
			return true
		case <-ended:
			l.reap()
			if _, err := os.Stat(l.run.Path(rundir.Roles)); err != nil && !l.killed && !ownFault(l.status) {
				return true // an orderly end: the anchor was told to shut down
			}
			if l.fails < failsToTell {
				fmt.Fprintf(l.cfg.Log, "tend: anchor[%d] ended, starting another\n", l.pid)
			}
			return false
		}
	}
}

func (l *launcher) reap() {
	reaplog.Reap(l.run.Path(rundir.Orphans), func(pid int, status unix.WaitStatus) bool {
		if pid == l.pid {
			l.killed, l.status = status.Signaled(), status
		}
		return pid == l.pid
	},
		func(err error) { fmt.Fprintf(l.cfg.Log, "tend: an exit status could not be written down: %v\n", err) })
}

func (l *launcher) stop(chld <-chan os.Signal, ended <-chan struct{}) {
	late := time.After(serverGrace + keeperGrace + time.Second)
	for keep := l.cfg.Keep; ; {
		if !l.ready(chld, ended, late) {
			fmt.Fprintf(l.cfg.Log, "tend: anchor[%d] does not answer; leaving it\n", l.pid)
			if !keep {
				unix.Kill(l.pid, unix.SIGTERM)
			}
			return
		}
		if keep {
			err := (&Client{run: l.run, patient: true}).Shutdown(true)
			if err == nil {
				return
			}
			keep = !l.run.Lost()
			if keep && !errors.Is(err, ErrNotRunning) {
				fmt.Fprintf(l.cfg.Log, "tend: the server could not be stopped: %v\n", err)
				return
			}
		}
		if l.run.Lost() {
			fmt.Fprintf(l.cfg.Log, "tend: the state directory %s was removed or moved while tend used it, "+
				"and no tend serve could take over what runs: it is ended\n", l.cfg.StateDir)
		}
		if !keep {
			unix.Kill(l.pid, unix.SIGTERM)
		}
		if !l.await(chld, ended, nil, late) {
			fmt.Fprintf(l.cfg.Log, "tend: anchor[%d] does not end; leaving it\n", l.pid)
			return
		}
		l.reap()
		if _, err := os.Stat(l.run.Path(rundir.Roles)); err != nil && !l.killed {
			return
		}
		// It died, and left keeper, server and processes to themselves: another
		// one ends them, or the server.
		time.Sleep(firstPause)
		var err error
		if ended, err = l.anchor(); err != nil {
			fmt.Fprintf(l.cfg.Log, "tend: %v\n", err)
			return
		}
	}
}

// ready waits until the anchor answers or has ended. A signal before that would end
// only the anchor, and not the roles that it must end; and another launcher that starts
// meanwhile would find the sockets in use, and no anchor to get them from. One whose
// directory is lost cannot be asked; it has begun if it has lived for a second. It reports
// false if late fires first.
func (l *launcher) ready(chld <-chan os.Signal, ended <-chan struct{}, late <-chan time.Time) bool {
	answers, begun := make(chan struct{}), l.begun
	go func() { // the answer of one that stands still may not come at all
		c := &Client{run: l.run, patient: true}
		for {
			if _, err := c.Roles(); err == nil {
				close(answers)
				return
			}
			if l.run.Lost() && time.Since(begun) > time.Second {
				close(answers)
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return l.await(chld, ended, answers, late)
}

// await waits for one of two events, and reports false if late fires first. It reaps
// meanwhile: a keeper that ends processes may wait for their exit statuses.
func (l *launcher) await(chld <-chan os.Signal, one, other <-chan struct{}, late <-chan time.Time) bool {
	for {
		select {
		case <-chld:
			l.reap()
		case <-one:
			return true
		case <-other:
			return true
		case <-late:
			return false
		}
	}
}
