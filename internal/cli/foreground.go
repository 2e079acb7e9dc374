package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
	"golang.org/x/term"
)

// detachKey is ctrl-], as telnet(1) has it: rarely meant for a program.
const detachKey = 0x1d

// errDetached: the person left; the process keeps running.
var errDetached = errors.New("detached")

// errHungUp: the terminal is gone, and with it the person; the process keeps running.
var errHungUp = fmt.Errorf("the terminal was closed: %w", errDetached)

// foreground connects one process with the streams of this program until the
// process ends, the person detaches, or the connection is lost for good.
type foreground struct {
	inv  *invocation
	proc process.Process

	from  [4]int64 // where output starts
	tty   bool     // the process has a terminal
	input bool     // forward stdin
	eof   bool     // end of stdin closes stdin of the process
	// forward passes SIGINT, SIGTERM and SIGQUIT on to the process; without it
	// they end this program and leave the process alone, as SIGHUP always does.
	forward bool
	// signals received since before the start, so that no signal is missed.
	signals <-chan os.Signal

	// detachable: on a terminal the detach key leaves, whatever the process
	// takes of what is typed.
	detachable bool
	// show prints an event; nil: output to the streams, as it is.
	show func(process.Event) error

	raw  bool // the local terminal is in raw mode
	key  bool // the detach key is read as soon as it is typed
	left *leftModes

	size   process.Size // that we gave the terminal of the process last
	before process.Size // that it had before we came; zero: not known, or not ours to give back
}

// catchSignals collects the signals of a foreground command, to the end of this program: a
// closed terminal is often seen before its SIGHUP comes, which then changes no exit status.
func catchSignals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, append(endSignals(), resizeSignals()...)...)
	return c
}

// endSignals are those by which the person or the system ends a foreground command.
func endSignals() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup(1)
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// run returns the exit of the process, or errDetached.
func (f *foreground) run(ctx context.Context) (*process.Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	restore, err := f.makeRaw()
	if err != nil {
		return nil, err
	}
	defer restore()
	if _, ok := terminalOf(f.inv.out); !ok || !f.tty {
		f.left = nil
	} else if f.left == nil {
		f.left = new(leftModes)
	}
	// What a full-screen program left switched on is its terminal's state, not
	// ours.
	defer f.left.end(f.inv.out)

	reader, err := f.proc.Read(ctx, process.ReadOptions{From: f.from})
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if f.input || f.key {
		in, err := newCancelReader(f.inv.in)
		if err != nil {
			return nil, err
		}
		defer in.release()
		wg.Go(func() {
			if err := f.pumpInput(ctx, in); err != nil {
				cancel(err)
			}
		})
		defer wg.Wait()
		defer in.cancel()
	}
	wg.Go(func() {
		if err := f.handleSignals(ctx); err != nil {
			cancel(err)
		}
	})
	exit, err := f.copyOutput(ctx, reader)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil && f.hungUp() {
		err = errHungUp
	}
	cancel(nil)
	return exit, err
}

// hungUp: there was a terminal, and it is gone.
func (f *foreground) hungUp() bool {
	_, is := terminalOf(f.inv.in)
	return f.inv.terminal && !is
}

// makeRaw switches the local terminal to raw mode if the process has a
// terminal of its own: keys then reach its line discipline, not ours. Otherwise
// it has the detach key read at once if that is asked for. A program in the
// background leaves the terminal alone.
func (f *foreground) makeRaw() (restore func(), err error) {
	fd, ok := terminalOf(f.inv.in)
	switch {
	case !ok && f.hungUp(): // before we came here; under nohup(1) no signal says so
		return nil, errHungUp
	case !ok:
	case f.tty && f.input:
		old, err := term.MakeRaw(fd)
		if err != nil {
			return nil, fmt.Errorf("switch the terminal to raw mode: %w", err)
		}
		f.raw, f.key = true, true
		return func() { term.Restore(fd, old) }, nil
	case f.detachable && inForeground(fd):
		// The line stays the person's to edit, and only the key ends it.
		if restore, err := endLinesAt(fd, detachKey); err == nil { // else ctrl-c leaves, too
			f.key = true
			return restore, nil
		}
	}
	return func() {}, nil
}

// copyOutput writes the output to the streams of this program to its end.
func (f *foreground) copyOutput(ctx context.Context, reader process.Reader) (*process.Exit, error) {
	var exit *process.Exit
	show := f.show
	if show == nil {
		show = f.print
	}
	for ev, err := range process.Follow(ctx, reader) {
		if err != nil {
			return exit, err
		}
		if err := show(ev); err != nil {
			return exit, err
		}
		switch ev.Kind {
		case process.EventExited:
			exit = ev.Exit
		case process.EventRemoved:
			return exit, process.ErrNotFound
		}
	}
	return exit, nil
}

// print writes output as it is.
func (f *foreground) print(ev process.Event) (err error) {
	switch ev.Kind {
	case process.EventOutput:
		f.left.follow(ev.Data)
		_, err = f.inv.sink(ev.Stream).Write(ev.Data)
	case process.EventGap:
		f.say(gapText(ev.Gap))
	}
	return err
}

// sink returns where one stream of output goes.
func (inv *invocation) sink(s process.Stream) io.Writer {
	switch {
	case s != process.Stderr:
		return inv.out
	case inv.stderr != nil:
		return inv.stderr
	}
	return inv.errs
}

func gapText(g process.Gap) string {
	return fmt.Sprintf("%d bytes of %s (%d to %d) were freed by retention before they were read", g.To-g.From, g.Stream, g.From, g.To)
}

// say prints a line of our own between the output of the process.
func (f *foreground) say(text string) {
	if f.raw {
		fmt.Fprintf(f.inv.errs, "tend: %s\r\n", printable(text))
		return
	}
	f.inv.note("%s", text)
}

// pumpInput forwards stdin until its end, the detach key, or the process
// stops taking it.
func (f *foreground) pumpInput(ctx context.Context, in io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		data, leave := buf[:n], false
		if f.key {
			data, _, leave = bytes.Cut(data, []byte{detachKey})
		}
		if len(data) > 0 && f.input {
			if done, werr := f.write(ctx, process.Input{Data: data}); done || werr != nil {
				return werr
			}
		}
		switch {
		case leave:
			return errDetached
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil && f.hungUp(): // no end of input: no person typed ctrl-d
			return errHungUp
		case err == io.EOF && f.raw: // a terminal in raw mode has no end
			return errHungUp
		case err == io.EOF && !f.input:
			return nil
		case err == io.EOF && f.tty && f.eof:
			return f.endTerminal(ctx)
		case err == io.EOF && f.eof:
			_, werr := f.write(ctx, process.Input{EOF: true})
			return werr
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("read stdin: %w", err)
		}
	}
}

// endTerminal ends what is typed. A terminal has no end but the character that its
// reader takes for one, and only who waits for input takes it so: a shell that is about
// to set up its line editor would find a NUL. So each reader gets one, up to a bound: a
// program that means something else by the character is left in peace.
func (f *foreground) endTerminal(ctx context.Context) error {
	for wait := 50 * time.Millisecond; wait < time.Minute; wait *= 2 {
		res, err := f.proc.Wait(ctx, process.Until{Input: true})
		if err != nil || !res.Met {
			return nil // it has ended, or this program does
		}
		if done, err := f.write(ctx, process.Input{Data: []byte{4}}); done || err != nil {
			return err
		}
		if !backoff.Wait(ctx, wait) {
			return nil
		}
	}
	return nil
}

// write sends one piece of input. done: no process reads input any more, which is no
// failure: the process may still have output to give.
func (f *foreground) write(ctx context.Context, in process.Input) (done bool, err error) {
	_, err = f.proc.Write(ctx, in)
	switch {
	case errors.Is(err, process.ErrExited), errors.Is(err, process.ErrStdinClosed), errors.Is(err, process.ErrNotFound):
		return true, nil
	case err != nil:
		return true, fmt.Errorf("send input: %w", err)
	}
	return false, nil
}

// handleSignals forwards signals and sizes until ctx ends.
func (f *foreground) handleSignals(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-f.signals:
			if slices.Contains(resizeSignals(), s) {
				if err := f.resize(ctx); err != nil {
					return err
				}
				continue
			}
			if s == syscall.SIGHUP {
				return errHungUp
			}
			if !f.forward {
				return errDetached
			}
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			// The group is what a terminal would signal: a shell and what it
			// runs in the foreground.
			err := f.proc.Signal(ctx, int(sig), process.ScopeGroup)
			if err != nil && !errors.Is(err, process.ErrExited) && ctx.Err() == nil {
				f.say(fmt.Sprintf("%s could not be passed on: %v", signalName(int(sig)), err))
			}
		}
	}
}

// resize gives the process's terminal the size of ours.
func (f *foreground) resize(ctx context.Context) error {
	size, ok := terminalSize(f.inv.out)
	if !ok || !f.tty {
		return nil
	}
	_, err := f.proc.Resize(ctx, process.Resize{To: size})
	if errors.Is(err, process.ErrExited) || ctx.Err() != nil {
		return nil
	}
	if err == nil {
		f.size = size
	}
	return err
}

// giveBack gives the terminal the size that it had before this client came,
// unless another client has changed it since: a client that stays may have a larger window.
func (f *foreground) giveBack(ctx context.Context) {
	if f.before == (process.Size{}) || f.before == f.size {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_, _ = f.proc.Resize(ctx, process.Resize{To: f.before, Only: &f.size}) // the process may have ended
}

// giveBackTimeout is how long a client that leaves waits for a daemon that is
// just away.
const giveBackTimeout = 2 * time.Second
