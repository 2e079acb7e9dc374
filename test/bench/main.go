//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/testbin"
)

// wholeRun bounds everything: a benchmark that hangs is a bug that should show.
const wholeRun = 6 * time.Minute

// bench is one subject: a few rows of the table that are measured together.
type bench struct {
	name string
	// fresh means a daemon of its own, on which nothing has run yet.
	fresh bool
	run   func(ctx context.Context, e *env) ([]row, error)
}

func benches() []bench {
	return []bench{
		{"ordinary", false, benchOrdinary},
		{"true", false, benchTrue},
		{"at-once", false, benchAtOnce},
		{"binary", false, benchBinary},
		{"json", false, benchJSON},
		{"pty", false, benchPTY},
		{"stdin", false, benchStdin},
		{"readers", false, benchReaders},
		{"stalled", false, benchStalled},
		{"langsmith", false, benchLangsmith},
		{"idle", true, benchIdle},
		{"idle-langsmith", true, benchLangsmithIdle},
		{"serve", true, benchServe},
		{"crash", true, benchCrash},
		{"upgrade", true, benchUpgrade},
		{"replay", true, benchReplay},
		{"distant", true, benchDistant},
		{"fsync", true, benchFsync},
	}
}

// env is what the benches share.
type env struct {
	tend string // path of the binary; "" with -url
	n    int    // samples of a latency
	d    *daemon
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == tickArg {
		tick(os.Stdout)
		return
	}
	if len(os.Args) == 2 && os.Args[1] == floorArg {
		os.Exit(runFloor())
	}
	os.Exit(run())
}

func run() int {
	only := flag.String("only", "", "run the benches whose name matches this `REGEX`: ordinary, true, at-once, binary, json, pty, stdin, readers, stalled, idle, serve, crash, upgrade, replay, distant, fsync")
	n := flag.Int("n", 1000, "samples of each latency, 10 to 100000")
	asJSON := flag.Bool("json", false, "print one JSON object a row instead of a table")
	url := flag.String("url", "", "measure the daemon that runs at this `URL` (http://HOST:PORT), on this machine; leaves out what needs a daemon of its own")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil || flag.NArg() > 0 || *n < 10 || *n > 100_000 {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: -only:", err)
		}
		flag.Usage()
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()

	print := printTable
	if *asJSON {
		print = printJSON
	}
	if busy, err := othersBusy(ctx); err == nil && busy > 0.1 {
		fmt.Fprintf(os.Stderr, "bench: other programs use %.0f %% of a core: what takes several processes suffers more than the bare limit does\n", 100*busy)
	}
	rows, err := measure(ctx, match, *n, *url)
	if perr := print(os.Stdout, rows); perr != nil {
		err = errors.Join(err, perr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// measure runs the benches that match. One that fails leaves the others their
// turn.
func measure(ctx context.Context, match *regexp.Regexp, n int, url string) (rows []row, errs error) {
	e := &env{n: n}
	if url == "" {
		dir, err := os.MkdirTemp("", "tend-bench-bin-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if err := testbin.Make(dir, testbin.Released); err != nil {
			return nil, err
		}
		e.tend = testbin.Released.Tend(dir)
	}
	var shared *daemon
	defer func() {
		if shared != nil {
			errs = errors.Join(errs, shared.stop())
		}
	}()
	for _, b := range benches() {
		if !match.MatchString(b.name) || ctx.Err() != nil || b.fresh && url != "" {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", b.name)
		if b.fresh && shared != nil {
			// It would take its share of the cores.
			errs = errors.Join(errs, shared.stop())
			shared = nil
		}
		d := shared
		var err error
		switch {
		case d != nil:
		case url != "":
			d, err = attach(ctx, url)
		default:
			d, err = serve(ctx, e.tend)
		}
		if err != nil {
			return rows, errors.Join(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		if !b.fresh {
			shared = d
		}
		e.d = d
		got, err := b.run(ctx, e)
		rows = append(rows, got...)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		if b.fresh {
			errs = errors.Join(errs, d.stop())
		}
	}
	return rows, errors.Join(errs, ctx.Err())
}
