//go:build linux

package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/core/failpoint"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// Config of a run.
type Config struct {
	// Tend is the program of the daemon, behind what is to execute it, if
	// anything, and Flags are those of its `serve`.
	Tend  []string
	Flags []string
	// Workload is the command line that reaches Work.
	Workload []string
	// Dir is where the daemon keeps its state: the filesystem under test.
	Dir string
	// Env is the daemon's environment.
	Env []string
	// Seed of the moments and choices.
	Seed uint64
	// Victims to kill; nil: none.
	Victims Victims
	// Freeze stops the victims instead of killing them, and continues them after
	// this time at most.
	Freeze time.Duration
	// Strikes is how often they are killed, at most. For, if it is set, ends the
	// run after that time; rounds that have begun are finished.
	Strikes int
	For     time.Duration
	// Storm sends all threads of all roles a signal of Go's runtime, over and over.
	Storm bool
	// Cut breaks the clients' connections, over and over.
	Cut bool
	// Upgrade also upgrades roles, over and over. Without Victims, Strikes is how
	// often.
	Upgrade bool
	// Binaries are programs to upgrade to in turn; none: the one that runs.
	Binaries []string
	// Only runs these scenarios; none: all.
	Only []string
	// Pause is the longest time between two strikes. 0: 100 ms.
	Pause time.Duration
	// Rest is how long each scenario waits after a round: strikes meet the same work at
	// every stage, for a part of the CPU time.
	Rest time.Duration
	// Points are where roles die, in turn, instead of at random moments; for a
	// Tend built with the tag tend_failpoint. Together: other roles die at the
	// instant at which one stands at a point, or it alone, or both.
	Points   []failpoint.Point
	Together bool
	// Promised is called with what this machine allows, before anything is hurt; nil: nobody
	// wants to know.
	Promised func(map[string]tend.Promise)
}

// Turns are the runs that together are the whole proof. The caller adds program,
// directory, seed and length to each.
func Turns() []Config {
	turns := []Config{{Upgrade: true}}
	for _, v := range Combinations {
		turns = append(turns, Config{Victims: v})
	}
	for _, v := range Frozen {
		turns = append(turns, Config{Victims: v, Freeze: 5 * time.Second})
	}
	return append(turns, Config{Cut: true}, Config{Cut: true, Victims: Victims{testdaemon.Server}})
}

// Report of a run.
type Report struct {
	Victims  string
	Seed     uint64
	Killed   int // processes of the daemon
	Strikes  int
	Upgrades int
	Rounds   map[string]int
	Bytes    int64
	Statuses int64
	Dials    int64          // connections that were not refused
	Points   map[string]int // strikes by point
	Cut      int64          // connections of clients that were broken
	Signals  int64          // of a storm
	Promises map[string]tend.Promise
	Problems []string
	Hung     string // the daemon's processes when something first took too long
	Log      string // of the daemon, with problems only
}

// shortSilence is how long clients whose connections are broken wait for a byte
// before they open another one. The default of 45 s would leave no time for
// anything else.
const shortSilence = 500 * time.Millisecond

// quickRetry is for clients whose connections are broken: with the default, a few broken in a
// row are ten seconds, after which others write in the middle of a write.
var quickRetry = tend.Retry{First: 20 * time.Millisecond, Max: 200 * time.Millisecond, Attempts: 100}

// roundTimeout is how long one round may take before it counts as hung.
const roundTimeout = 3 * time.Minute

// noVault is how a keeper says that a stream is lost, and with it what is written to it.
const noVault = "no vault holds its"

// Run runs all scenarios over and over while victims die.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	dir, err := os.MkdirTemp(cfg.Dir, "torture-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &runner{cfg: cfg, dir: dir, report: Report{Victims: cfg.what(), Seed: cfg.Seed, Rounds: map[string]int{}}}
	if len(cfg.Points) > 0 {
		// The points' file is where the daemon will be.
		state := testdaemon.StateDir(dir)
		if err := os.MkdirAll(state, 0o700); err != nil {
			return nil, err
		}
		if r.table, err = failpoint.Create(state); err != nil {
			return nil, err
		}
		defer r.table.Close()
	}
	d, err := testdaemon.Start(testdaemon.Config{Command: cfg.Tend, Flags: cfg.Flags, Dir: dir, Env: cfg.Env})
	if err != nil {
		return nil, err
	}
	r.d = d
	if r.cfg.Pause == 0 {
		r.cfg.Pause = 100 * time.Millisecond
	}
	r.run(ctx)
	if r.report.Hung != "" {
		d.Dump(testdaemon.Keeper)
	}
	if err := d.Stop(); err != nil {
		r.problem("%v", err)
	}
	for line := range strings.Lines(d.Log()) { // also of what no scenario wrote or read any more
		if strings.Contains(line, noVault) {
			r.problem("%s", strings.TrimSpace(line))
		}
	}
	if len(r.report.Problems) > 0 {
		r.report.Log = d.Log()
	}
	return &r.report, nil
}

// what names the run in reports.
func (c *Config) what() string {
	switch {
	case len(c.Points) > 0 && c.Together:
		return "sets at points"
	case len(c.Points) > 0:
		return "at points"
	case c.Storm:
		return "signals+" + c.Victims.String()
	case c.Cut && len(c.Victims) > 0:
		return "connections+" + c.Victims.String()
	case c.Cut:
		return "connections"
	case len(c.Victims) == 0:
		return "nobody"
	case c.Freeze > 0 && slices.Contains(c.Victims, testdaemon.Launcher):
		return "frozen machine"
	case c.Freeze > 0:
		return "frozen " + c.Victims.String()
	}
	return c.Victims.String()
}

type runner struct {
	cfg   Config
	d     *testdaemon.Daemon
	dir   string
	table *failpoint.Table // or nil
	cut   *cutter          // or nil

	bytes, statuses, dials atomic.Int64
	mu                     sync.Mutex
	report                 Report // guarded by mu
}

func (r *runner) problem(format string, a ...any) {
	r.noting(func(rep *Report) {
		if len(rep.Problems) < 20 {
			rep.Problems = append(rep.Problems, fmt.Sprintf(format, a...))
		}
	})
}

// noting changes the report.
func (r *runner) noting(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
}

func (r *runner) run(ctx context.Context) {
	r.askPromises(ctx)
	if r.cfg.Cut {
		var err error
		if r.cut, err = newCutter(r.d.Addr(), rand.New(rand.NewPCG(r.cfg.Seed, 1<<32))); err != nil {
			r.problem("proxy: %v", err)
			return
		}
		defer r.cut.close()
	}
	rounds, stop := context.WithCancel(ctx)
	defer stop()
	// A scenario that failed brings no role to a point any more, so strikes end.
	whole, failed := context.WithCancel(ctx)
	defer failed()
	var wg sync.WaitGroup
	for i, s := range scenarios {
		if len(r.cfg.Only) > 0 && !slices.Contains(r.cfg.Only, s.name) {
			continue
		}
		wg.Go(func() {
			if !r.repeat(ctx, rounds, s, rand.New(rand.NewPCG(r.cfg.Seed, uint64(i+1)))) {
				failed()
			}
		})
	}
	wg.Go(func() { r.knock(rounds) })
	var aside sync.WaitGroup
	upgraded := make(chan struct{}) // as often as was asked for
	if r.cfg.Upgrade {
		aside.Go(func() { r.upgrade(ctx, rounds, upgraded) })
	}
	if r.cfg.Storm {
		aside.Go(func() { r.storm(rounds) })
	}
	during := whole
	if r.cfg.For > 0 {
		var cancel context.CancelFunc
		during, cancel = context.WithTimeout(during, r.cfg.For)
		defer cancel()
	}
	rnd := rand.New(rand.NewPCG(r.cfg.Seed, 0))
	s, done := r.striker(ctx, rnd)
	defer done()
	if s != nil {
		b := strikes{d: r.d, rnd: rnd, striker: s, pause: r.cfg.Pause}
		killed, struck := b.run(during, r.cfg.Strikes)
		r.noting(func(rep *Report) { rep.Killed, rep.Strikes = killed, struck })
	} else if r.cfg.Upgrade {
		select {
		case <-upgraded:
		case <-during.Done():
		}
	} else {
		backoff.Wait(during, time.Duration(r.cfg.Strikes)*r.cfg.Pause)
	}
	stop()
	aside.Wait()
	wg.Wait()
	if !r.d.Settle(ctx) && ctx.Err() == nil {
		r.problem("not all roles are back: %v", r.d.Roles())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Bytes, r.report.Statuses, r.report.Dials = r.bytes.Load(), r.statuses.Load(), r.dials.Load()
	if r.table != nil {
		r.notePoints()
	}
	if r.cut != nil {
		r.report.Cut = r.cut.broken.Load()
	}
}

// striker is what hurts roles in this run; nil: nothing does.
func (r *runner) striker(ctx context.Context, rnd *rand.Rand) (s striker, done func()) {
	switch {
	case len(r.cfg.Points) > 0:
		c, err := r.d.Dial(ctx, tend.Options{})
		if err != nil {
			r.problem("dial: %v", err)
			return nil, func() {}
		}
		s := r.strikePoints(c, rnd)
		return s, func() {
			s.wg.Wait()
			c.Close()
		}
	case r.cfg.Freeze > 0:
		f := &freezer{d: r.d, rnd: rnd, victims: r.cfg.Victims, longest: r.cfg.Freeze}
		if slices.Contains(f.victims, testdaemon.Launcher) {
			f.tree = treeOf(r.report.Promises)
		}
		return f, func() {}
	case len(r.cfg.Victims) > 0:
		return &killer{d: r.d, rnd: rnd, victims: r.cfg.Victims}, func() {}
	}
	return nil, func() {}
}

// askPromises notes what this machine allows.
func (r *runner) askPromises(ctx context.Context) {
	c, err := r.d.Dial(ctx, tend.Options{})
	if err != nil {
		r.problem("dial: %v", err)
		return
	}
	defer c.Close()
	st, err := c.Status(ctx)
	if err != nil {
		r.problem("status: %v", err)
		return
	}
	r.report.Promises = st.Promises
	if r.cfg.Promised != nil {
		r.cfg.Promised(st.Promises)
	}
}

// repeat runs one scenario to the end of the rounds, at least once. It reports false at the
// first that fails.
func (r *runner) repeat(ctx, rounds context.Context, s scenario, rnd *rand.Rand) bool {
	url, opts := r.d.URL, tend.Options{}
	if r.cut != nil {
		url, opts.Silence, opts.Retry = r.cut.url(), shortSilence, quickRetry
	}
	c, err := testdaemon.Dial(ctx, url, opts)
	if err != nil {
		r.problem("%s: dial: %v", s.name, err)
		return false
	}
	defer c.Close()
	b := &bench{c: c, url: url, cut: r.cut != nil, workload: r.cfg.Workload, dir: r.dir, rnd: rnd, bytes: &r.bytes, statuses: &r.statuses}
	for {
		round, cancel := context.WithTimeout(ctx, roundTimeout)
		err := s.run(round, b)
		cancel()
		if ctx.Err() != nil {
			return true
		}
		if err != nil {
			r.problem("%s: %v", s.name, err)
			if errors.Is(err, context.DeadlineExceeded) {
				all := r.d.Processes()
				r.noting(func(rep *Report) { rep.Hung = cmp.Or(rep.Hung, all) })
			}
			return false
		}
		r.noting(func(rep *Report) { rep.Rounds[s.name]++ })
		if !backoff.Wait(rounds, r.cfg.Rest) {
			return true
		}
	}
}

// knock opens connections all the time. None may be refused, whatever role is dead.
func (r *runner) knock(rounds context.Context) {
	addr := r.d.Addr()
	for {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		switch {
		case err == nil:
			r.dials.Add(1)
			c.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			r.problem("a connection was refused")
			return
		}
		if !backoff.Wait(rounds, 3*time.Millisecond) {
			return
		}
	}
}

// upgrade replaces server and keeper in turn, to the end of the rounds. It closes enough after
// as many upgrades as were asked for, or when no upgrade is possible.
func (r *runner) upgrade(ctx, rounds context.Context, enough chan<- struct{}) {
	reached := sync.OnceFunc(func() { close(enough) })
	defer reached()
	c, err := r.d.Dial(ctx, tend.Options{})
	if err != nil {
		r.problem("upgrade: dial: %v", err)
		return
	}
	defer c.Close()
	for n := 0; backoff.Wait(rounds, 200*time.Millisecond); n++ {
		what := tend.Upgrade{Server: n%2 == 1, Keeper: n%2 == 0}
		if b := r.cfg.Binaries; len(b) > 0 {
			what.Binary = b[n/2%len(b)]
		}
		call, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := c.Upgrade(call, what)
		cancel()
		if err == nil {
			r.noting(func(rep *Report) {
				if rep.Upgrades++; rep.Upgrades == r.cfg.Strikes {
					reached()
				}
			})
		} else if len(r.cfg.Victims) == 0 && ctx.Err() == nil && what.Keeper {
			r.problem("upgrade of the keeper: %v", err)
			return
		}
	}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	verdict := "nothing lost"
	if len(r.Problems) > 0 {
		verdict = fmt.Sprintf("%d PROBLEMS", len(r.Problems))
	}
	rounds := 0
	for _, n := range r.Rounds {
		rounds += n
	}
	fmt.Fprintf(w, "%-22s %5d strikes %5d kills %4d upgrades %6d rounds %8.1f MB %6d exit statuses %7d connections (%d cut)  %s\n",
		r.Victims, r.Strikes, r.Killed, r.Upgrades, rounds, float64(r.Bytes)/1e6, r.Statuses, r.Dials, r.Cut, verdict)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "    %s\n", p)
	}
	for line := range strings.Lines(r.Hung) {
		fmt.Fprintf(w, "        %s", line)
	}
}
