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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/support/testbin"
)

// wholeRun bounds everything: a benchmark that hangs is a bug that should show.
const wholeRun = 15 * time.Minute

// bench is one subject: a few rows of the table that are measured together.
type bench struct {
	name string
	// fresh means a daemon of its own, on which nothing has run yet.
	fresh bool
	// asked means only if -only names it: it takes half a minute or more.
	asked bool
	run   func(ctx context.Context, e *env)
}

// benches are in the order of the table.
func benches() []bench {
	return []bench{
		{name: "ordinary-pty", run: ordinaryBench(ordinaryPTY)},
		{name: "ordinary-true", run: ordinaryBench(ordinaryTrue)},
		{name: "ordinary-at-once", run: ordinaryBench(ordinaryAtOnce)},
		{name: "ordinary-idle", run: ordinaryBench(ordinaryIdle)},
		{name: "ordinary-output", run: ordinaryBench(ordinaryOutput)},
		{name: "ordinary-input", run: ordinaryBench(ordinaryInput)},
		{name: "long", asked: true, run: ordinaryBench(ordinaryLong)},
		{name: "true", run: benchTrue},
		{name: "at-once", run: benchAtOnce},
		{name: "binary", run: benchBinary},
		{name: "json", run: benchJSON},
		{name: "pty", run: benchPTY},
		{name: "stdin", run: benchStdin},
		{name: "readers", run: benchReaders},
		{name: "stalled", run: benchStalled},
		{name: "langsmith", run: benchLangsmith},
		{name: "mcp", run: benchMCP},
		{name: "clients", run: benchClients},
		{name: "page-paint", fresh: true, run: benchPagePaint},
		{name: "page-log", fresh: true, run: benchPageLog},
		{name: "page-follow", fresh: true, run: benchPageFollow},
		{name: "page-viewers", fresh: true, run: benchPageViewers},
		{name: "idle", fresh: true, run: benchIdle},
		{name: "idle-langsmith", fresh: true, run: benchLangsmithIdle},
		{name: "serve", fresh: true, run: benchServe},
		{name: "crash", fresh: true, run: benchCrash},
		{name: "upgrade", fresh: true, run: benchUpgrade},
		{name: "replay", fresh: true, run: benchReplay},
		{name: "distant", fresh: true, run: benchDistant},
		{name: "fsync", fresh: true, run: benchFsync},
		{name: "services", fresh: true, run: benchServices},
		{name: "services-idle", fresh: true, run: benchServicesIdle},
		{name: "services-beside", fresh: true, run: benchServicesBeside},
		{name: "sandbox-create", fresh: true, run: benchSandboxCreate},
		{name: "sandbox-hand", fresh: true, asked: true, run: benchSandboxHand},
		{name: "sandbox-start", fresh: true, run: benchSandboxStart},
		{name: "sandbox-busy", fresh: true, run: benchSandboxBusy},
		{name: "sandbox-end", fresh: true, run: benchSandboxEnd},
		{name: "sandbox-many", fresh: true, run: benchSandboxMany},
		{name: "sandbox-files", fresh: true, run: benchSandboxFiles},
		{name: "sandbox-ports", fresh: true, run: benchSandboxPorts},
		{name: "sandbox-js", fresh: true, run: benchSandboxJS},
		{name: "sandbox-computesdk", fresh: true, run: benchComputeSDK},
		{name: "image-pull", fresh: true, asked: true, run: benchImagePull},
		{name: "image-create", fresh: true, asked: true, run: benchImageCreate},
		{name: "image-run", fresh: true, asked: true, run: benchImageRun},
		{name: "image-build", fresh: true, asked: true, run: benchImageBuild},
		{name: "sandbox-code", fresh: true, asked: true, run: benchSandboxCode}, // its packages come from PyPI
		{name: "sandbox-code-memory", fresh: true, asked: true, run: benchSandboxCodeMemory},
	}
}

// env is what the benches share.
type env struct {
	tend   string // path of the binary; "" with -url
	keeper string // path of the small binary; "" with -url or -tend
	beside string // path of another, which is measured, too, by the ordinary client and as a command; or ""
	n      int    // samples of a latency
	d      *daemon
	rows   []row // of the bench that runs
}

// add adds what a bench has measured.
func (e *env) add(rows ...row) { e.rows = append(e.rows, rows...) }

func main() {
	if len(os.Args) == 2 && os.Args[1] == tickArg {
		tick(os.Stdout)
		return
	}
	if len(os.Args) == 2 && os.Args[1] == floorArg {
		os.Exit(runFloor())
	}
	if len(os.Args) == 4 && os.Args[1] == pourArg {
		os.Exit(pour(os.Stdout, os.Args[2:]))
	}
	if len(os.Args) == 3 && os.Args[1] == webArg {
		os.Exit(web(os.Args[2]))
	}
	if len(os.Args) == 4 && os.Args[1] == webProxyArg {
		os.Exit(webProxy(os.Args[2], os.Args[3]))
	}
	os.Exit(run())
}

// options are the command line.
type options struct {
	only         *regexp.Regexp
	all          bool // without -only
	n            int
	tend, beside string
	url          string
	record       string
	emulated     string // file of rows that were measured there
	json, md     bool
	docs         bool
	busy         float64 // cores that other programs used at the beginning
	version      string  // of what is measured
	failed       []string
}

func parse() (o options, ok bool) {
	var names []string
	for _, b := range benches() {
		names = append(names, b.name)
	}
	only := flag.String("only", "", "run the benches whose name matches this `REGEX`: "+strings.Join(names, ", "))
	flag.IntVar(&o.n, "n", 1000, "samples of each latency, 10 to 100000")
	flag.StringVar(&o.tend, "tend", "", "measure this `BINARY` instead of building one")
	flag.StringVar(&o.beside, "beside", "", "measure this `BINARY`, too, in the rows of the ordinary client and of the command line, in turns with the other")
	flag.StringVar(&o.url, "url", "", "measure the daemon that runs at this `URL` (http://HOST:PORT), on this machine; leaves out what needs a daemon of its own")
	flag.BoolVar(&o.json, "json", false, "print one JSON object a row instead of a table")
	flag.BoolVar(&o.md, "markdown", false, "print the table as the documents have it")
	flag.StringVar(&o.record, "record", "", "write the rows to bench/history/`NAME`.json, in place of those of the same benches, and draw the documents anew")
	flag.StringVar(&o.emulated, "emulated", "",
		"measure nothing: keep the rows of this `FILE`, which -json has printed in the emulated machines of make kernel-test")
	flag.BoolVar(&o.docs, "docs", false, "measure nothing: draw the tables of the documents from the newest record")
	flag.Parse()
	var err error
	o.all = *only == ""
	if o.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench: -only:", err)
	}
	ok = err == nil && flag.NArg() == 0 && o.n >= 10 && o.n <= 100_000 &&
		(o.record == "" && o.emulated == "" || recordName.MatchString(o.record))
	return o, ok
}

func run() int {
	o, ok := parse()
	if !ok {
		flag.Usage()
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, wholeRun)
	defer cancel()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func (o *options) run(ctx context.Context) error {
	if o.docs {
		return caught(drawDocuments)
	}
	if o.emulated != "" {
		return caught(func() { keep(ctx, o, readRows(must(os.ReadFile(o.emulated)))) })
	}
	if caught(func() { o.busy = othersBusy(ctx) }) == nil && o.busy > 0.1 {
		fmt.Fprintf(os.Stderr, "bench: other programs use %.0f %% of a core: what takes several processes suffers more than the bare limit does\n", 100*o.busy)
	}
	rows, err := o.measure(ctx)
	print := printTable
	switch {
	case o.json:
		print = printJSON
	case o.md:
		print = printMarkdown
	}
	err = errors.Join(err, print(os.Stdout, rows))
	if o.record != "" {
		rows = slices.DeleteFunc(rows, func(r row) bool { return slices.Contains(o.failed, r.Bench) })
		err = errors.Join(err, caught(func() { keep(ctx, o, rows) }))
	}
	return err
}

// measure runs the benches that are asked for. One that fails leaves the others
// their turn.
func (o *options) measure(ctx context.Context) (rows []row, errs error) {
	e := &env{n: o.n, tend: o.tend, beside: o.beside}
	if o.url == "" && o.tend == "" {
		dir, err := os.MkdirTemp("", "tend-bench-bin-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if err := testbin.Make(dir, testbin.Released); err != nil {
			return nil, err
		}
		e.tend, e.keeper = testbin.Released.Tend(dir), testbin.Released.Keeper(dir)
	}
	if e.tend != "" {
		o.version = versionOf(ctx, e.tend)
	}
	var shared *daemon
	defer func() {
		if shared != nil {
			errs = errors.Join(errs, shared.stop())
		}
	}()
	for _, b := range benches() {
		if !o.only.MatchString(b.name) || b.asked && o.all || ctx.Err() != nil || b.fresh && o.url != "" {
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
		case o.url != "":
			d, err = attach(ctx, o.url)
		default:
			d, err = serve(ctx, e.tend, "")
		}
		if err != nil {
			return rows, errors.Join(errs, fmt.Errorf("%s: %w", b.name, err))
		}
		if !b.fresh {
			shared = d
		}
		e.d, e.rows = d, nil
		err = caught(func() { b.run(ctx, e) })
		for _, r := range e.rows {
			r.Bench = b.name
			rows = append(rows, r)
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", b.name, err))
			o.failed = append(o.failed, b.name)
		}
		if b.fresh {
			errs = errors.Join(errs, d.stop())
		}
	}
	return rows, errors.Join(errs, ctx.Err())
}
