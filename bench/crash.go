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
func benchCrash(ctx context.Context, e *env) {
	const rounds = 20
	self := must(os.Executable())
	p := must(e.d.sdk.Start(ctx, process.Spec{Argv: []string{self, tickArg}}))
	rd := must(p.Read(ctx, process.ReadOptions{Streams: []process.Stream{process.Stdout}}))
	defer rd.Close()
	flow := &ticks{rd: rd}
	for _, role := range []string{"server", "keeper"} {
		var took, answered []float64
		for range rounds {
			as(role, func() {
				a, d := flow.killed(ctx, e.d, role)
				took, answered = append(took, millis(d)), append(answered, millis(a))
			})
		}
		again := tail(role+" kill -9 → stream flowing again, Go client, p95", took)
		if role == "server" {
			e.add(tail("server kill -9 → /health answered again, p95", answered))
			again = again.atMost(100)
		}
		e.add(again)
	}
	e.add(tail("keeper kill -9 → draining again, p95", drains(ctx, e.d, string(p.ID()), rounds)).atMost(10))
}

// tail is the 95th percentile of times in ms as a row.
func tail(name string, took []float64) row {
	return figure(name, "ms", 0, quantile(took, 0.95)).notes("p50 %s, worst of %d: %s", number(median(took)), len(took), number(quantile(took, 1)))
}

// drains kills the keeper under a process that writes all the time, and times
// until its spool grows.
func drains(ctx context.Context, d *daemon, id string, rounds int) (took []float64) {
	spool := filepath.Join(d.own.StateDir(), "spool", id, "stdout")
	for range rounds {
		was := d.roles(ctx)
		pause(ctx, 300*time.Millisecond) // it is no crash loop
		fd := must(unix.PidfdOpen(was["keeper"], 0))
		start := time.Now()
		check(syscall.Kill(was["keeper"], syscall.SIGKILL))
		must(unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000))
		unix.Close(fd)
		dead := must(os.Stat(spool))
		for now := dead; now.Size() == dead.Size(); {
			pause(ctx, 100*time.Microsecond)
			now = must(os.Stat(spool))
		}
		took = append(took, millis(time.Since(start)))
		d.replaced(ctx, "keeper", was["keeper"])
	}
	return took
}

// replaced waits until a role is played by another process than pid.
func (d *daemon) replaced(ctx context.Context, role string, pid int) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		now := roles{role: pid}
		err := caught(func() { now = d.roles(ctx) })
		if now[role] != pid {
			return
		}
		if perr := caught(func() { pause(ctx, 5*time.Millisecond) }); perr != nil {
			check(errors.Join(fmt.Errorf("the %s is not back: %w", role, perr), err))
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
func (t *ticks) killed(ctx context.Context, d *daemon, role string) (answered, flowing time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	was := d.roles(ctx)
	// The role has lived long enough that its death is no crash loop.
	t.until(ctx, time.Now().Add(300*time.Millisecond))
	start := time.Now()
	check(syscall.Kill(was[role], syscall.SIGKILL))
	// A connection that the dying server still took is reset; the next waits in
	// the anchor's listener.
	for d.health(ctx) != nil {
		pause(ctx, 100*time.Microsecond)
	}
	answered = time.Since(start)
	// What was written just after the kill may still come through a server or
	// keeper that is not dead yet.
	t.until(ctx, start.Add(2*time.Millisecond))
	flowing = time.Since(start)
	d.replaced(ctx, role, was[role])
	return answered, flowing
}

// until reads up to a record that was written after at.
func (t *ticks) until(ctx context.Context, at time.Time) {
	for {
		ev, ok, err := t.rd.Next()
		check(unexpected(err))
		if !ok {
			select {
			case <-ctx.Done():
				check(ctx.Err())
			case <-t.rd.Ready():
			}
			continue
		}
		switch ev.Kind {
		case process.EventStarted:
			continue
		case process.EventOutput:
		default:
			fail("an event that is no output: %v", ev.Kind)
		}
		t.part = append(t.part, ev.Data...)
		late := false
		for len(t.part) >= tickSize {
			n, stamp := binary.BigEndian.Uint64(t.part), int64(binary.BigEndian.Uint64(t.part[8:]))
			if n != t.next {
				fail("record %d came where %d was due: bytes were lost or doubled", n, t.next)
			}
			t.next++
			t.part = t.part[tickSize:]
			late = stamp > at.UnixNano()
		}
		if late {
			return
		}
	}
}
