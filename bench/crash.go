package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// tickArg makes this program the workload of benchCrash.
const tickArg = "workload-tick"

// tickSize is the length of one record: a number that counts, and a time in
// nanoseconds.
const tickSize = 16

// tick writes a record each millisecond, until nobody reads.
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
	const rounds = 5
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
		if role == "server" {
			rows = append(rows, figure("server kill -9 → /health answered again", "ms", 0, median(answered)).
				notes("worst of %d: %s", rounds, number(quantile(answered, 1))))
		}
		rows = append(rows, figure(role+" kill -9 → stream flowing again, Go client", "ms", 0, median(took)).
			notes("worst of %d: %s; every record checked", rounds, number(quantile(took, 1))))
	}
	return rows, nil
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
	if err := t.until(ctx, time.Now()); err != nil { // it flows
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
	for {
		now, err := d.roles(ctx)
		if err == nil && now[role] != was[role] {
			return answered, flowing, nil
		}
		if perr := pause(ctx, 5*time.Millisecond); perr != nil {
			return 0, 0, errors.Join(fmt.Errorf("the %s is not back: %w", role, perr), err)
		}
	}
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
