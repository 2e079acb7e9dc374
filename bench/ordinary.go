//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
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
func ordinaryBench(measure func(context.Context, *env, subjects)) func(context.Context, *env) {
	return func(ctx context.Context, e *env) {
		f, stop := startFloor(ctx)
		defer also(stop)
		all := subjects{newOrdinary(e.d.url), f}
		if e.beside != "" {
			d := must(serve(ctx, e.beside, ""))
			defer also(func() { check(d.stop()) })
			all = append(all, newOrdinary(d.url))
		}
		for _, t := range all {
			defer t.hc.CloseIdleConnections()
		}
		measure(ctx, e, all)
	}
}

// inTurns measures the direct way, which may be nil, and at each subject. What
// comes first is another one in each round.
func (all subjects) inTurns(rounds int, direct func(), at func(i int, t *ordinary)) {
	var steps []func()
	if direct != nil {
		steps = append(steps, direct)
	}
	for i, t := range all {
		steps = append(steps, func() { at(i, t) })
	}
	inTurns(rounds, steps...)
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
func inTurns(rounds int, all ...func()) {
	n := len(all)
	for i := range rounds {
		for j := range n {
			next := n - j/2
			if j%2 == 1 {
				next = (j + 1) / 2
			}
			all[(i+next)%n]()
		}
	}
}

func exited(e event) {
	if e.ExitCode != 0 || !e.Exited {
		fail("exit code %d, status %q", e.ExitCode, e.Status)
	}
}

// trueRuns returns what runs /bin/true once: by os/exec if t is nil.
func trueRuns(ctx context.Context, t *ordinary) func() {
	if t == nil {
		return func() { directRun(ctx, nil, truePath) }
	}
	return func() { exited(t.Run(ctx, cmdline{Cmd: truePath}, false, nil)) }
}

func ordinaryTrue(ctx context.Context, e *env, all subjects) {
	var direct []float64
	var at results
	measure := func(into *[]float64, t *ordinary) {
		once := trueRuns(ctx, t)
		for range e.n / ordinaryRounds {
			*into = append(*into, millis(timed(once)))
		}
	}
	all.inTurns(ordinaryRounds, func() { measure(&direct, nil) }, func(i int, t *ordinary) { measure(&at[i], t) })
	e.add(
		compared("Ordinary client: start→end of /bin/true, p50", "ms", direct, &at, median).ratioAtMost(1.6),
		compared("  p99", "ms", direct, &at, p99).ratioAtMost(2.5),
	)
}

func ordinaryAtOnce(ctx context.Context, e *env, all subjects) {
	const each = 320
	var direct []float64
	var at results
	measure := func(into *[]float64, t *ordinary) {
		once := trueRuns(ctx, t)
		took := timed(func() { parallel(each, func(int) { once() }) })
		*into = append(*into, each/took.Seconds())
	}
	all.inTurns(ordinaryRounds, func() { measure(&direct, nil) }, func(i int, t *ordinary) { measure(&at[i], t) })
	e.add(compared("Ordinary client: 16 at once", "processes/s", direct, &at, median).ratioAtLeast(0.6))
}

// parallel calls f(i) for all i < n, 16 at a time.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	together(16, func(int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(i)
		}
	})
}

// ordinaryPTY types lines and waits for each to come back.
func ordinaryPTY(ctx context.Context, e *env, all subjects) {
	const lines = 200
	sh := []string{"-c", "stty -echo; echo ready; exec cat"}
	var bare []float64
	var at results
	direct := func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m, cmd := directPTY(ctx, "/bin/sh", sh...)
		defer also(func() { check(m.Close()) })
		chunks, read := chunksOf(func(each func([]byte)) {
			buf := make([]byte, 4096)
			for {
				each(buf[:must(m.Read(buf))]) // EIO: the shell was killed
			}
		})
		defer read.Wait()
		defer cmd.Wait()
		defer cmd.Process.Kill()
		echoes(chunks, lines, &bare, func(b []byte) { must(m.Write(b)) })
	}
	all.inTurns(ordinaryRounds, direct, func(i int, t *ordinary) {
		s := t.Start(ctx, cmdline{Cmd: "/bin/sh", Args: sh, Cols: 80, Rows: 24}, false)
		defer s.Close()
		pid := s.First()
		chunks, read := chunksOf(func(each func([]byte)) {
			var e event
			for s.Next(&e) {
				if e.Kind == 'p' {
					each(e.Data)
				}
			}
		})
		defer read.Wait()
		defer also(func() { t.Signal(ctx, pid, 9) })
		echoes(chunks, lines, &at[i], func(b []byte) { t.SendInput(ctx, pid, 2, b) })
	})
	e.add(compared("Ordinary client: pty round trip through cat, p50", "ms", bare, &at, median).ratioAtMost(2.8).
		notes("p99 %.2f against %.2f", p99(at[atTend]), p99(bare)))
}

// chunksOf sends what read reads, until it throws or returns.
func chunksOf(read func(each func([]byte))) (<-chan []byte, *sync.WaitGroup) {
	chunks := make(chan []byte, 256)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		_ = caught(func() { read(func(b []byte) { chunks <- bytes.Clone(b) }) }) // the end of the terminal
	})
	return chunks, &reading
}

// echoes sends lines and waits for each.
func echoes(chunks <-chan []byte, lines int, into *[]float64, send func([]byte)) {
	var have []byte
	await := func(want string) {
		for !bytes.Contains(have, []byte(want)) {
			select {
			case c, ok := <-chunks:
				if !ok {
					fail("the terminal ended; %q never came", want)
				}
				have = append(have, c...)
			case <-time.After(30 * time.Second):
				fail("%q never came back; have %.80q", want, have)
			}
		}
		have = have[:0]
	}
	await("ready\r\n")
	for i := range lines {
		line := fmt.Sprintf("k%06d", i)
		*into = append(*into, millis(timed(func() {
			send([]byte(line + "\n"))
			await(line + "\r\n")
		})))
	}
}

// ordinaryIdle starts, connects to and kills 1,000 processes, 16 at a time.
func ordinaryIdle(ctx context.Context, e *env, all subjects) {
	var starts, connects, kills results
	all.inTurns(2, nil, func(i int, t *ordinary) { thousandIdle(ctx, t, &starts[i], &connects[i], &kills[i]) })
	e.add(
		compared("Ordinary client: 1,000 idle processes, start all", "s", nil, &starts, median).atMost(1.2),
		compared("  connect to all", "s", nil, &connects, median).atMost(0.15),
		compared("  kill all", "s", nil, &kills, median).atMost(0.3),
	)
}

// thousandIdle appends the seconds that each phase takes.
func thousandIdle(ctx context.Context, t *ordinary, starts, connects, kills *[]float64) {
	const n = 1000
	pids, subs := make([]uint32, n), make([]*stream, n)
	defer t.hc.CloseIdleConnections()
	defer func() {
		for _, s := range subs {
			if s != nil {
				s.Close()
			}
		}
	}()
	phase := func(into *[]float64, f func(i int)) {
		*into = append(*into, timed(func() { parallel(n, f) }).Seconds())
	}
	err := caught(func() {
		phase(starts, func(i int) {
			s := t.Start(ctx, cmdline{Cmd: "/bin/sleep", Args: []string{"600"}}, false)
			defer s.Close()
			pids[i] = s.First()
		})
		phase(connects, func(i int) {
			subs[i] = t.Connect(ctx, pids[i])
			subs[i].First()
		})
	})
	defer also(func() { check(err) })
	phase(kills, func(i int) { // those that were started, whatever happened then
		if pids[i] == 0 {
			return
		}
		t.Signal(ctx, pids[i], 9)
		if subs[i] == nil {
			return
		}
		if e := subs[i].Drain(nil); e.Exited {
			fail("process %d was killed, and its end says %q", pids[i], e.Status)
		}
	})
}

func ordinaryOutput(ctx context.Context, e *env, all subjects) {
	var direct []float64
	var binary, text results
	all.inTurns(ordinaryRounds, func() { direct = zeroRate(ctx, nil, 1<<30, false, nil, direct) }, func(i int, t *ordinary) {
		binary[i] = zeroRate(ctx, t, 1<<30, false, nil, binary[i])
		text[i] = zeroRate(ctx, t, 256<<20, true, nil, text[i])
	})
	e.add(
		compared("Ordinary client: 1 GiB out, binary", "MiB/s", direct, &binary, median).ratioAtLeast(0.4),
		compared("  256 MiB out, JSON", "MiB/s", nil, &text, median).atLeast(500),
	)
}

// zeroRate has n bytes printed, counts them, and appends the rate; by os/exec if t
// is nil. It calls seen, which may be nil, with how many came so far.
func zeroRate(ctx context.Context, t *ordinary, n int64, asJSON bool, seen func(int64), to []float64) []float64 {
	const head = "/usr/bin/head"
	args := []string{"-c", strconv.FormatInt(n, 10), "/dev/zero"}
	var got int64
	see := func(b []byte) {
		got += int64(len(b))
		if seen != nil {
			seen(got)
		}
	}
	took := timed(func() {
		if t == nil {
			directRun(ctx, see, head, args...)
			return
		}
		exited(t.Run(ctx, cmdline{Cmd: head, Args: args}, asJSON, func(e *event) {
			if e.Kind == 'o' {
				see(e.Data)
			}
		}))
	})
	expect(got, n)
	return append(to, rate(n, took))
}

func ordinaryInput(ctx context.Context, e *env, all subjects) {
	const piece, unary, streamed = 64 << 10, 32 << 20, 256 << 20
	data := bytes.Repeat([]byte{'z'}, piece)
	var bare []float64
	var single, whole results
	// fed feeds wc, and has it say how much came.
	fed := func(t *ordinary, into *[]float64, n int64, feed func(pid uint32)) {
		s := t.Start(ctx, cmdline{Cmd: wcPath, Args: []string{"-c"}, Stdin: true}, false)
		defer s.Close()
		pid := s.First()
		start := time.Now()
		if err := caught(func() {
			feed(pid)
			t.CloseStdin(ctx, pid)
		}); err != nil {
			defer also(func() { t.Signal(ctx, pid, 9) })
			check(err)
		}
		count := ""
		exited(s.Drain(func(e *event) {
			if e.Kind == 'o' {
				count += string(e.Data)
			}
		}))
		*into = append(*into, rate(n, time.Since(start)))
		expect(parseCount(count), n)
	}
	direct := func() {
		cmd := exec.CommandContext(ctx, wcPath, "-c")
		w := must(cmd.StdinPipe())
		check(cmd.Start())
		bare = append(bare, rate(unary, timed(func() {
			defer also(func() { check(errors.Join(w.Close(), cmd.Wait())) })
			for range unary / piece {
				must(w.Write(data))
			}
		})))
	}
	all.inTurns(ordinaryRounds, direct, func(i int, t *ordinary) {
		fed(t, &single[i], unary, func(pid uint32) {
			for range unary / piece {
				t.SendInput(ctx, pid, 1, data)
			}
		})
		fed(t, &whole[i], streamed, func(pid uint32) { t.StreamInput(ctx, pid, streamed, piece) })
	})
	e.add(
		compared("Ordinary client: SendInput of 64 KiB", "MiB/s", bare, &single, median).atLeast(400),
		compared("  StreamInput of 64 KiB", "MiB/s", nil, &whole, median).atLeast(700),
	)
}
