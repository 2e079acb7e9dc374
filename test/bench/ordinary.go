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

// benchOrdinary measures what an SDK's user sees: a client over net/http, beside
// the same work by os/exec. It and its transport cost as much as the server, so
// its ratios say less about tend than those of the raw clients, and more about
// what anybody gets. How much the client and HTTP cost by themselves, the floor
// shows.
func benchOrdinary(ctx context.Context, e *env) (rows []row, err error) {
	t := newOrdinary(e.d.url)
	defer t.hc.CloseIdleConnections()
	f, stop, err := startFloor(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, measure := range []func(ctx context.Context, t, floor *ordinary) ([]row, error){
		ordinaryPTY, ordinaryTrue, ordinaryAtOnce, ordinaryIdle, ordinaryOutput, ordinaryInput,
	} {
		more, err := measure(ctx, t, f)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// inTurns runs all of them in each round, and another one first each time.
func inTurns(rounds int, all ...func() error) error {
	for i := range rounds {
		for j := range all {
			if err := all[(i+j)%len(all)](); err != nil {
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

func ordinaryTrue(ctx context.Context, t, floor *ordinary) ([]row, error) {
	var bare, tend, alone []float64
	timed := func(into *[]float64, once func() error) func() error {
		return func() error {
			for range 60 {
				start := time.Now()
				if err := once(); err != nil {
					return err
				}
				*into = append(*into, millis(time.Since(start)))
			}
			return nil
		}
	}
	run := func(t *ordinary) func() error {
		return func() error { return exited(t.Run(ctx, cmdline{Cmd: truePath}, false, nil)) }
	}
	err := inTurns(ordinaryRounds, timed(&bare, func() error { return directRun(ctx, nil, truePath) }), timed(&tend, run(t)), timed(&alone, run(floor)))
	return []row{
		figure("Ordinary client: start→end of /bin/true, p50", "ms", median(bare), median(tend)).http(median(alone)).ratioAtMost(1.6),
		figure("  p99", "ms", quantile(bare, 0.99), quantile(tend, 0.99)).http(quantile(alone, 0.99)).ratioAtMost(2.5),
	}, err
}

func ordinaryAtOnce(ctx context.Context, t, floor *ordinary) ([]row, error) {
	const each = 320
	var bare, tend, alone []float64
	timed := func(into *[]float64, once func() error) func() error {
		return func() error {
			start := time.Now()
			err := parallel(each, func(int) error { return once() })
			*into = append(*into, each/time.Since(start).Seconds())
			return err
		}
	}
	run := func(t *ordinary) func() error {
		return func() error { return exited(t.Run(ctx, cmdline{Cmd: truePath}, false, nil)) }
	}
	err := inTurns(ordinaryRounds, timed(&bare, func() error { return directRun(ctx, nil, truePath) }), timed(&tend, run(t)), timed(&alone, run(floor)))
	return []row{figure("  16 at once", "processes/s", median(bare), median(tend)).http(median(alone)).ratioAtLeast(0.6)}, err
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
func ordinaryPTY(ctx context.Context, t, floor *ordinary) ([]row, error) {
	const lines = 200
	sh := []string{"-c", "stty -echo; echo ready; exec cat"}
	var bare, tend, alone []float64
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
	err := inTurns(ordinaryRounds, direct, func() error { return served(t, &tend) }, func() error { return served(floor, &alone) })
	return []row{figure("Ordinary client: pty round trip through cat, p50", "ms", median(bare), median(tend)).http(median(alone)).ratioAtMost(2.8).
		notes("p99 %.2f against %.2f", quantile(tend, 0.99), quantile(bare, 0.99))}, err
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
func ordinaryIdle(ctx context.Context, t, floor *ordinary) ([]row, error) {
	var tend, alone idleTimes
	err := inTurns(2, func() error { return tend.measure(ctx, t) }, func() error { return alone.measure(ctx, floor) })
	return []row{
		figure("Ordinary client: 1,000 idle processes, start all", "s", 0, median(tend.starts)).http(median(alone.starts)).atMost(1.2),
		figure("  connect to all", "s", 0, median(tend.connects)).http(median(alone.connects)).atMost(0.15),
		figure("  kill all", "s", 0, median(tend.kills)).http(median(alone.kills)).atMost(0.3),
	}, err
}

// idleTimes are seconds, one of each round.
type idleTimes struct{ starts, connects, kills []float64 }

func (d *idleTimes) measure(ctx context.Context, t *ordinary) error {
	const n = 1000
	phase := func(into *[]float64, f func(i int) error) error {
		start := time.Now()
		err := parallel(n, f)
		*into = append(*into, time.Since(start).Seconds())
		return err
	}
	pids, subs := make([]uint32, n), make([]*stream, n)
	err := errors.Join(
		phase(&d.starts, func(i int) error {
			s, err := t.Start(ctx, cmdline{Cmd: "/bin/sleep", Args: []string{"600"}}, false)
			if err != nil {
				return err
			}
			pids[i], err = s.First()
			s.Close()
			return err
		}),
		phase(&d.connects, func(i int) (err error) {
			if subs[i], err = t.Connect(ctx, pids[i]); err == nil {
				_, err = subs[i].First()
			}
			return err
		}),
		phase(&d.kills, func(i int) error {
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

func ordinaryOutput(ctx context.Context, t, floor *ordinary) ([]row, error) {
	var bare, binary, text, alone, aloneText []float64
	timed := func(into *[]float64, n int64, run func(args []string, see func(int)) error) error {
		var got int64
		start := time.Now()
		err := run([]string{"-c", strconv.FormatInt(n, 10), "/dev/zero"}, func(m int) { got += int64(m) })
		*into = append(*into, rate(got, time.Since(start)))
		if err == nil && got != n {
			err = fmt.Errorf("%d of %d bytes came", got, n)
		}
		return err
	}
	const head = "/usr/bin/head"
	direct := func(args []string, see func(int)) error {
		return directRun(ctx, func(b []byte) { see(len(b)) }, head, args...)
	}
	served := func(t *ordinary, asJSON bool) func([]string, func(int)) error {
		return func(args []string, see func(int)) error {
			return exited(t.Run(ctx, cmdline{Cmd: head, Args: args}, asJSON, func(e *event) {
				if e.Kind == 'o' {
					see(len(e.Data))
				}
			}))
		}
	}
	err := inTurns(ordinaryRounds, func() error { return timed(&bare, 1<<30, direct) }, func() error {
		return errors.Join(timed(&binary, 1<<30, served(t, false)), timed(&text, 256<<20, served(t, true)))
	}, func() error {
		return errors.Join(timed(&alone, 1<<30, served(floor, false)), timed(&aloneText, 256<<20, served(floor, true)))
	})
	return []row{
		figure("Ordinary client: 1 GiB out, binary", "MiB/s", median(bare), median(binary)).http(median(alone)).ratioAtLeast(0.4),
		figure("  256 MiB out, JSON", "MiB/s", 0, median(text)).http(median(aloneText)).atLeast(500),
	}, err
}

func ordinaryInput(ctx context.Context, t, floor *ordinary) ([]row, error) {
	const piece, unary, streamed = 64 << 10, 32 << 20, 256 << 20
	data := bytes.Repeat([]byte{'z'}, piece)
	var bare, single, whole, aloneSingle, aloneWhole []float64
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
	both := func(t *ordinary, single, whole *[]float64) func() error {
		return func() error {
			return errors.Join(
				fed(t, single, unary, func(pid uint32) (err error) {
					for i := 0; i < unary && err == nil; i += piece {
						err = t.SendInput(ctx, pid, 1, data)
					}
					return err
				}),
				fed(t, whole, streamed, func(pid uint32) error { return t.StreamInput(ctx, pid, streamed, piece) }))
		}
	}
	err := inTurns(ordinaryRounds, direct, both(t, &single, &whole), both(floor, &aloneSingle, &aloneWhole))
	return []row{
		figure("Ordinary client: SendInput of 64 KiB", "MiB/s", median(bare), median(single)).http(median(aloneSingle)).atLeast(400),
		figure("  StreamInput of 64 KiB", "MiB/s", 0, median(whole)).http(median(aloneWhole)).atLeast(700),
	}, err
}
