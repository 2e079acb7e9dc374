//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/process"
)

// tickArg makes this program the workload of benchCrash.
const tickArg = "workload-tick"

// tickSize is the length of one record: a number that counts, and a time in
// nanoseconds.
const tickSize = 16

// tick writes a record each millisecond, until its reader is gone.
func tick(w io.Writer) {
	var b [tickSize]byte
	for n := uint64(0); ; n++ {
		binary.BigEndian.PutUint64(b[:], n)
		binary.BigEndian.PutUint64(b[8:], uint64(time.Now().UnixNano()))
		if _, err := w.Write(b[:]); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// benchCrash kills roles under a stream and times until bytes flow again that
// were written after the kill. The Go client comes back by itself.
func benchCrash(ctx context.Context, e *env) ([]row, error) {
	const rounds = 20
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := e.d.sdk.Start(ctx, process.Spec{Argv: []string{self, tickArg}})
	if err != nil {
		return nil, err
	}
	rd, err := p.Read(ctx, process.ReadOptions{Streams: []process.Stream{process.Stdout}})
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	flow := &ticks{rd: rd}
	var rows []row
	for _, role := range []string{"server", "keeper"} {
		var took, answered []float64
		for range rounds {
			a, d, err := flow.killed(ctx, e.d, role)
			if err != nil {
				return rows, fmt.Errorf("%s: %w", role, err)
			}
			took, answered = append(took, millis(d)), append(answered, millis(a))
		}
		again := tail(role+" kill -9 → stream flowing again, Go client, p95", took)
		if role == "server" {
			rows = append(rows, tail("server kill -9 → /health answered again, p95", answered))
			again = again.atMost(100)
		}
		rows = append(rows, again)
	}
	drained, err := drains(ctx, e.d, string(p.ID()), rounds)
	if err != nil {
		return rows, err
	}
	return append(rows, tail("keeper kill -9 → draining again, p95", drained).atMost(10)), nil
}

// tail is the 95th percentile of times in ms as a row.
func tail(name string, took []float64) row {
	return figure(name, "ms", 0, quantile(took, 0.95)).notes("p50 %s, worst of %d: %s", number(median(took)), len(took), number(quantile(took, 1)))
}

// drains kills the keeper under a process that writes all the time, and times
// until its spool grows.
func drains(ctx context.Context, d *daemon, id string, rounds int) (took []float64, err error) {
	spool := filepath.Join(d.own.StateDir(), "spool", id, "stdout")
	for range rounds {
		was, err := d.roles(ctx)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil { // it is no crash loop
			return nil, err
		}
		fd, err := unix.PidfdOpen(was["keeper"], 0)
		if err != nil {
			return nil, err
		}
		start := time.Now()
		err = syscall.Kill(was["keeper"], syscall.SIGKILL)
		if err == nil {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		}
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
		dead, err := os.Stat(spool)
		if err != nil {
			return nil, err
		}
		for now := dead; now.Size() == dead.Size(); {
			if err := pause(ctx, 100*time.Microsecond); err != nil {
				return nil, err
			}
			if now, err = os.Stat(spool); err != nil {
				return nil, err
			}
		}
		took = append(took, millis(time.Since(start)))
		if err := d.replaced(ctx, "keeper", was["keeper"]); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// replaced waits until a role is played by another process than pid.
func (d *daemon) replaced(ctx context.Context, role string, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		now, err := d.roles(ctx)
		if err == nil && now[role] != pid {
			return nil
		}
		if perr := pause(ctx, 5*time.Millisecond); perr != nil {
			return errors.Join(fmt.Errorf("the %s is not back: %w", role, perr), err)
		}
	}
}

// ticks reads the records of tick.
type ticks struct {
	rd   process.Reader
	part []byte // of a record
	next uint64
}

// killed kills a role and returns how long it was until the daemon answered on
// a new connection, and until a record came that was written later. It returns
// when the role is back.
func (t *ticks) killed(ctx context.Context, d *daemon, role string) (answered, flowing time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	was, err := d.roles(ctx)
	if err != nil {
		return 0, 0, err
	}
	// The role has lived long enough that its death is no crash loop.
	if err := t.until(ctx, time.Now().Add(300*time.Millisecond)); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := syscall.Kill(was[role], syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	// A connection that the dying server still took is reset; the next waits in
	// the anchor's listener.
	for d.health(ctx) != nil {
		if err := pause(ctx, 100*time.Microsecond); err != nil {
			return 0, 0, err
		}
	}
	answered = time.Since(start)
	// What was written just after the kill may still come through a server or
	// keeper that is not dead yet.
	if err := t.until(ctx, start.Add(2*time.Millisecond)); err != nil {
		return 0, 0, err
	}
	flowing = time.Since(start)
	return answered, flowing, d.replaced(ctx, role, was[role])
}

// until reads up to a record that was written after at.
func (t *ticks) until(ctx context.Context, at time.Time) error {
	for {
		ev, ok, err := t.rd.Next()
		if err != nil {
			return unexpected(err)
		}
		if !ok {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.rd.Ready():
			}
			continue
		}
		switch ev.Kind {
		case process.EventStarted:
			continue
		case process.EventOutput:
		default:
			return fmt.Errorf("an event that is no output: %v", ev.Kind)
		}
		t.part = append(t.part, ev.Data...)
		late := false
		for len(t.part) >= tickSize {
			n, stamp := binary.BigEndian.Uint64(t.part), int64(binary.BigEndian.Uint64(t.part[8:]))
			if n != t.next {
				return fmt.Errorf("record %d came where %d was due: bytes were lost or doubled", n, t.next)
			}
			t.next++
			t.part = t.part[tickSize:]
			late = stamp > at.UnixNano()
		}
		if late {
			return nil
		}
	}
}
