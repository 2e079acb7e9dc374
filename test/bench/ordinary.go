//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// rounds of each measure; bare, tend and the floor take turns in each.
const ordinaryRounds = 5

// subjects are the servers at which the ordinary client is measured, in turns.
type subjects []*ordinary

// The places of the subjects; that of -beside is the last, so that it may be absent.
const (
	atTend = iota
	atFloor
	atBeside
)

// results are samples of each subject.
type results [atBeside + 1][]float64

// ordinaryBench measures what an SDK's user sees: a client over net/http, beside
// the same work by os/exec. It and its transport cost as much as the server, so
// its ratios say less about tend than those of the raw clients, and more about
// what anybody gets. How much the client and HTTP cost by themselves, the floor
// shows.
func ordinaryBench(measure func(context.Context, *env, subjects) ([]row, error)) func(context.Context, *env) ([]row, error) {
	return func(ctx context.Context, e *env) (rows []row, err error) {
		f, stop, err := startFloor(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		all := subjects{newOrdinary(e.d.url), f}
		if e.beside != "" {
			d, err := serve(ctx, e.beside)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, d.stop()) }()
			all = append(all, newOrdinary(d.url))
		}
		for _, t := range all {
			defer t.hc.CloseIdleConnections()
		}
		return measure(ctx, e, all)
	}
}

// inTurns measures the direct way, which may be nil, and at each subject. What
// comes first is another one in each round.
func (all subjects) inTurns(rounds int, direct func() error, at func(i int, t *ordinary) error) error {
	var steps []func() error
	if direct != nil {
		steps = append(steps, direct)
	}
	for i, t := range all {
		steps = append(steps, func() error { return at(i, t) })
	}
	return inTurns(rounds, steps...)
}

// compared is a row of what f finds in the samples.
func compared(name, unit string, direct []float64, at *results, f func([]float64) float64) row {
	r := figure(name, unit, f(direct), f(at[atTend]))
	r.HTTP, r.Beside = f(at[atFloor]), f(at[atBeside])
	return r
}

func p99(v []float64) float64 { return quantile(v, 0.99) }

// inTurns runs all of them in each round, each time in another order: what ran
// just before has an effect, so each is to follow each other one as often (a
// Williams design).
func inTurns(rounds int, all ...func() error) error {
	n := len(all)
	for i := range rounds {
		for j := range n {
			next := n - j/2
			if j%2 == 1 {
				next = (j + 1) / 2
			}
			if err := all[(i+next)%n](); err != nil {
				return err
			}
		}
	}
	return nil
}

func exited(e event, err error) error {
	if err == nil && (e.ExitCode != 0 || !e.Exited) {
		err = fmt.Errorf("exit code %d, status %q", e.ExitCode, e.Status)
	}
	return err
}

func ordinaryTrue(ctx context.Context, e *env, all subjects) ([]row, error) {
	var direct []float64
	var at results
	timed := func(into *[]float64, once func() error) error {
		for range e.n / ordinaryRounds {
			start := time.Now()
			if err := once(); err != nil {
				return err
			}
			*into = append(*into, millis(time.Since(start)))
		}
		return nil
	}
	err := all.inTurns(ordinaryRounds, func() error {
		return timed(&direct, func() error { return directRun(ctx, nil, truePath) })
	}, func(i int, t *ordinary) error {
		return timed(&at[i], func() error { return exited(t.Run(ctx, cmdline{Cmd: truePath}, false, nil)) })
	})
	return []row{
		compared("Ordinary client: start→end of /bin/true, p50", "ms", direct, &at, median).ratioAtMost(1.6),
		compared("  p99", "ms", direct, &at, p99).ratioAtMost(2.5),
	}, err
}

func ordinaryAtOnce(ctx context.Context, _ *env, all subjects) ([]row, error) {
	const each = 320
	var direct []float64
	var at results
	timed := func(into *[]float64, once func() error) error {
		start := time.Now()
		err := parallel(each, func(int) error { return once() })
		*into = append(*into, each/time.Since(start).Seconds())
		return err
	}
	err := all.inTurns(ordinaryRounds, func() error {
		return timed(&direct, func() error { return directRun(ctx, nil, truePath) })
	}, func(i int, t *ordinary) error {
		return timed(&at[i], func() error { return exited(t.Run(ctx, cmdline{Cmd: truePath}, false, nil)) })
	})
	return []row{compared("Ordinary client: 16 at once", "processes/s", direct, &at, median).ratioAtLeast(0.6)}, err
}

// parallel calls f(i) for all i < n, 16 at a time.
func parallel(n int, f func(i int) error) error {
	const workers = 16
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[w] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ordinaryPTY types lines and waits for each to come back.
func ordinaryPTY(ctx context.Context, _ *env, all subjects) ([]row, error) {
	const lines = 200
	sh := []string{"-c", "stty -echo; echo ready; exec cat"}
	var bare []float64
	var at results
	direct := func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m, cmd, err := directPTY(ctx, "/bin/sh", sh...)
		if err != nil {
			return err
		}
		chunks := make(chan []byte, 256)
		var reading sync.WaitGroup
		reading.Go(func() {
			defer close(chunks)
			buf := make([]byte, 4096)
			for {
				n, err := m.Read(buf)
				if err != nil {
					return // EIO: the shell was killed
				}
				chunks <- bytes.Clone(buf[:n])
			}
		})
		err = echoes(chunks, lines, &bare, func(b []byte) error { _, err := m.Write(b); return err })
		cmd.Process.Kill()
		cmd.Wait()
		reading.Wait()
		return errors.Join(err, m.Close())
	}
	served := func(t *ordinary, into *[]float64) error {
		s, err := t.Start(ctx, cmdline{Cmd: "/bin/sh", Args: sh, Cols: 80, Rows: 24}, false)
		if err != nil {
			return err
		}
		defer s.Close()
		pid, err := s.First()
		if err != nil {
			return err
		}
		chunks := make(chan []byte, 256)
		var reading sync.WaitGroup
		reading.Go(func() {
			defer close(chunks)
			var e event
			for s.Next(&e) == nil {
				if e.Kind == 'p' {
					chunks <- bytes.Clone(e.Data)
				}
			}
		})
		err = echoes(chunks, lines, into, func(b []byte) error { return t.SendInput(ctx, pid, 2, b) })
		err = errors.Join(err, t.Signal(ctx, pid, 9))
		reading.Wait()
		return err
	}
	err := all.inTurns(ordinaryRounds, direct, func(i int, t *ordinary) error { return served(t, &at[i]) })
	return []row{compared("Ordinary client: pty round trip through cat, p50", "ms", bare, &at, median).ratioAtMost(2.8).
		notes("p99 %.2f against %.2f", p99(at[atTend]), p99(bare))}, err
}

func echoes(chunks <-chan []byte, lines int, into *[]float64, send func([]byte) error) error {
	var have []byte
	await := func(want string) error {
		for !bytes.Contains(have, []byte(want)) {
			select {
			case c, ok := <-chunks:
				if !ok {
					return fmt.Errorf("the terminal ended; %q never came", want)
				}
				have = append(have, c...)
			case <-time.After(30 * time.Second):
				return fmt.Errorf("%q never came back; have %.80q", want, have)
			}
		}
		have = have[:0]
		return nil
	}
	if err := await("ready\r\n"); err != nil {
		return err
	}
	for i := range lines {
		line := fmt.Sprintf("k%06d", i)
		start := time.Now()
		if err := send([]byte(line + "\n")); err != nil {
			return err
		}
		if err := await(line + "\r\n"); err != nil {
			return err
		}
		*into = append(*into, millis(time.Since(start)))
	}
	return nil
}

// ordinaryIdle starts, connects to and kills 1,000 processes, 16 at a time.
func ordinaryIdle(ctx context.Context, _ *env, all subjects) ([]row, error) {
	var starts, connects, kills results
	err := all.inTurns(2, nil, func(i int, t *ordinary) error {
		return thousandIdle(ctx, t, &starts[i], &connects[i], &kills[i])
	})
	return []row{
		compared("Ordinary client: 1,000 idle processes, start all", "s", nil, &starts, median).atMost(1.2),
		compared("  connect to all", "s", nil, &connects, median).atMost(0.15),
		compared("  kill all", "s", nil, &kills, median).atMost(0.3),
	}, err
}

// thousandIdle appends the seconds that each phase takes.
func thousandIdle(ctx context.Context, t *ordinary, starts, connects, kills *[]float64) error {
	const n = 1000
	phase := func(into *[]float64, f func(i int) error) error {
		start := time.Now()
		err := parallel(n, f)
		*into = append(*into, time.Since(start).Seconds())
		return err
	}
	pids, subs := make([]uint32, n), make([]*stream, n)
	err := errors.Join(
		phase(starts, func(i int) error {
			s, err := t.Start(ctx, cmdline{Cmd: "/bin/sleep", Args: []string{"600"}}, false)
			if err != nil {
				return err
			}
			pids[i], err = s.First()
			s.Close()
			return err
		}),
		phase(connects, func(i int) (err error) {
			if subs[i], err = t.Connect(ctx, pids[i]); err == nil {
				_, err = subs[i].First()
			}
			return err
		}),
		phase(kills, func(i int) error {
			if err := t.Signal(ctx, pids[i], 9); err != nil || subs[i] == nil {
				return err
			}
			e, err := subs[i].Drain(nil)
			if err == nil && e.Exited {
				err = fmt.Errorf("process %d was killed, and its end says %q", pids[i], e.Status)
			}
			return err
		}))
	for _, s := range subs {
		if s != nil {
			s.Close()
		}
	}
	t.hc.CloseIdleConnections()
	return err
}

func ordinaryOutput(ctx context.Context, _ *env, all subjects) ([]row, error) {
	var direct []float64
	var binary, text results
	timed := func(into *[]float64, n int64, t *ordinary, asJSON bool) error {
		start := time.Now()
		err := zeros(ctx, t, n, asJSON, nil)
		*into = append(*into, rate(n, time.Since(start)))
		return err
	}
	err := all.inTurns(ordinaryRounds, func() error { return timed(&direct, 1<<30, nil, false) }, func(i int, t *ordinary) error {
		return errors.Join(timed(&binary[i], 1<<30, t, false), timed(&text[i], 256<<20, t, true))
	})
	return []row{
		compared("Ordinary client: 1 GiB out, binary", "MiB/s", direct, &binary, median).ratioAtLeast(0.4),
		compared("  256 MiB out, JSON", "MiB/s", nil, &text, median).atLeast(500),
	}, err
}

// zeros has n bytes printed, and counts them; by os/exec if t is nil. It calls
// seen, which may be nil, with how many came so far.
func zeros(ctx context.Context, t *ordinary, n int64, asJSON bool, seen func(int64)) error {
	const head = "/usr/bin/head"
	args := []string{"-c", strconv.FormatInt(n, 10), "/dev/zero"}
	var got int64
	see := func(b []byte) {
		got += int64(len(b))
		if seen != nil {
			seen(got)
		}
	}
	var err error
	if t == nil {
		err = directRun(ctx, see, head, args...)
	} else {
		err = exited(t.Run(ctx, cmdline{Cmd: head, Args: args}, asJSON, func(e *event) {
			if e.Kind == 'o' {
				see(e.Data)
			}
		}))
	}
	if err == nil && got != n {
		err = fmt.Errorf("%d of %d bytes came", got, n)
	}
	return err
}

func ordinaryInput(ctx context.Context, _ *env, all subjects) ([]row, error) {
	const piece, unary, streamed = 64 << 10, 32 << 20, 256 << 20
	data := bytes.Repeat([]byte{'z'}, piece)
	var bare []float64
	var single, whole results
	// fed feeds wc, and has it say how much came.
	fed := func(t *ordinary, into *[]float64, n int64, feed func(pid uint32) error) error {
		s, err := t.Start(ctx, cmdline{Cmd: "/usr/bin/wc", Args: []string{"-c"}, Stdin: true}, false)
		if err != nil {
			return err
		}
		defer s.Close()
		pid, err := s.First()
		if err != nil {
			return err
		}
		start := time.Now()
		if err := errors.Join(feed(pid), t.CloseStdin(ctx, pid)); err != nil {
			return errors.Join(err, t.Signal(ctx, pid, 9))
		}
		count := ""
		err = exited(s.Drain(func(e *event) {
			if e.Kind == 'o' {
				count += string(e.Data)
			}
		}))
		*into = append(*into, rate(n, time.Since(start)))
		if err == nil && strings.TrimSpace(count) != strconv.FormatInt(n, 10) {
			err = fmt.Errorf("wc counts %.40q of %d bytes", count, n)
		}
		return err
	}
	direct := func() error {
		cmd := exec.CommandContext(ctx, "/usr/bin/wc", "-c")
		w, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		start := time.Now()
		for i := 0; i < unary && err == nil; i += piece {
			_, err = w.Write(data)
		}
		err = errors.Join(err, w.Close(), cmd.Wait())
		bare = append(bare, rate(unary, time.Since(start)))
		return err
	}
	err := all.inTurns(ordinaryRounds, direct, func(i int, t *ordinary) error {
		return errors.Join(
			fed(t, &single[i], unary, func(pid uint32) (err error) {
				for i := 0; i < unary && err == nil; i += piece {
					err = t.SendInput(ctx, pid, 1, data)
				}
				return err
			}),
			fed(t, &whole[i], streamed, func(pid uint32) error { return t.StreamInput(ctx, pid, streamed, piece) }))
	})
	return []row{
		compared("Ordinary client: SendInput of 64 KiB", "MiB/s", bare, &single, median).atLeast(400),
		compared("  StreamInput of 64 KiB", "MiB/s", nil, &whole, median).atLeast(700),
	}, err
}
