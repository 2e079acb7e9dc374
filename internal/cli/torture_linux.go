package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/cli/torture"
	"github.com/tend-run/tend/sdk/go"
)

// manyStrikes never ends a run before its time does.
const manyStrikes = 1 << 30

// Run hurts daemons of its own in all the ways that there are, in turn, for the
// same time each: upgrades, each set of roles killed, roles standing still, connections
// broken.
func (c *tortureCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Minutes <= 0 {
		return usageError(fmt.Sprintf("--minutes %g is no time", c.Minutes))
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	turns := torture.Turns()
	each := time.Duration(c.Minutes * float64(time.Minute) / float64(len(turns)))
	fmt.Fprintf(inv.out, "tend torture: %d turns of %v in %s, seed %d\n", len(turns), each.Round(time.Second), dir, c.Seed)
	var killed, problems int
	for i, cfg := range turns {
		cfg.Tend, cfg.Workload, cfg.Dir, cfg.Env = []string{exe}, []string{exe, "torture-work"}, dir, os.Environ()
		cfg.Seed, cfg.Strikes, cfg.For = c.Seed+uint64(i), manyStrikes, each
		if cfg.Upgrade {
			cfg.Binaries = []string{exe}
		}
		if i == 0 {
			cfg.Promised = func(all map[string]tend.Promise) { printPromises(inv.out, all) }
		}
		r, err := torture.Run(ctx, cfg)
		if ctx.Err() != nil {
			return statusError(130)
		}
		if err != nil {
			return err
		}
		r.Print(inv.out)
		killed, problems = killed+r.Killed, problems+len(r.Problems)
		if len(r.Problems) > 0 {
			path := filepath.Join(dir, fmt.Sprintf("tend-torture-%d.log", cfg.Seed))
			if err := os.WriteFile(path, []byte(r.Log), 0o600); err != nil {
				return err
			}
			fmt.Fprintf(inv.out, "    log of the daemon: %s\n", path)
		}
	}
	fmt.Fprintf(inv.out, "%d roles killed, %d problems\n", killed, problems)
	if problems > 0 {
		return errors.New("something was lost on this machine; please report it with the output above and the logs")
	}
	return nil
}

func printPromises(out io.Writer, all map[string]tend.Promise) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		word := "kept"
		if !all[name].Kept {
			word = "NOT KEPT HERE"
		}
		fmt.Fprintf(out, "  %-36s %s: %s\n", name, word, printable(all[name].Detail))
	}
}

func (c *tortureWorkCmd) Run(context.Context, *invocation) error {
	torture.Work(c.Args)
	return nil
}
