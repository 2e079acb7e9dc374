package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

type waitCmd struct {
	inSandbox
	Until   string        `default:"exit" placeholder:"CONDITION" complete:"until" help:"exit, eof, tree, input, quiet=2s, port=3000 or match=REGEX. Default: exit."`
	From    int64         `default:"0" placeholder:"OFFSET" help:"The offset in each stream where match= starts to search."`
	Timeout time.Duration `placeholder:"30s" help:"Give up after this long, with exit status 124."`

	IDs []string `arg:"" name:"id" complete:"process" help:"The processes; with several it waits for each, and exits with the greatest status."`
}

func (c *waitCmd) Run(ctx context.Context, inv *invocation) (err error) {
	until, err := parseUntil(c.Until)
	if err != nil {
		return err
	}
	switch {
	case c.From < 0:
		return usageError("--from is negative; offsets count from 0")
	case c.Timeout < 0:
		return usageError("--timeout is negative; leave it out to wait for ever")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	terminated := ctx
	ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT)
	defer stop()
	interrupted := ctx
	over := false  // the end of the wait is known
	defer func() { // whatever it was about to do
		switch {
		case terminated.Err() != nil:
			err = statusError(128 + int(syscall.SIGTERM))
		case interrupted.Err() != nil:
			err = statusError(128 + int(syscall.SIGINT))
		case err != nil && !over && errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = c.late(strings.Join(c.IDs, ", "))
		}
	}()
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	done := inv.progress("waiting for " + c.Until)
	defer done()
	results := make([]waited, len(c.IDs))
	failed := atOnce(c.IDs, func(i int, id string) (err error) {
		results[i], err = c.one(ctx, d, id, until)
		return err
	})
	done()
	over = !slices.ContainsFunc(failed, func(err error) bool { return err != nil })
	if len(c.IDs) > 1 { // each for itself, and none of them silently
		for i, id := range c.IDs {
			if errors.Is(failed[i], context.DeadlineExceeded) && terminated.Err() == nil && interrupted.Err() == nil {
				failed[i] = c.late(id)
			}
		}
		over = true
	}
	for i, id := range c.IDs {
		if failed[i] == nil {
			failed[i] = c.result(inv, id, results[i])
		}
	}
	return errors.Join(failed...)
}

// late says that the time is up.
func (c *waitCmd) late(id string) error {
	return &runError{status: 124, err: lateError(fmt.Sprintf("%s: the condition was not met within %v", id, c.Timeout))}
}

// lateError: what was waited for did not come in the time that was given.
type lateError string

func (e lateError) Error() string { return string(e) }

// waited is what came of waiting for one process.
type waited struct {
	id  process.ID
	res process.WaitResult
}

func (c *waitCmd) one(ctx context.Context, d *daemon, id string, until process.Until) (waited, error) {
	p, err := d.find(ctx, id)
	if err != nil {
		return waited{}, err
	}
	if until.From, err = startAt(ctx, p, c.From, nil); err != nil {
		return waited{}, about(id, err)
	}
	res, err := p.Wait(ctx, until)
	return waited{p.ID(), res}, about(id, err)
}

// result prints what was found. The status is that of the process if its end
// was waited for, else 0 if the condition held and 1 if the process ended
// before it did.
func (c *waitCmd) result(inv *invocation, id string, w waited) error {
	res := w.res
	if inv.flags.JSON {
		if err := printJSON(inv.out, waitFactsOf(w.id, c.Until, res)); err != nil {
			return err
		}
	} else if err := c.print(inv, id, res); err != nil {
		return err
	}
	word, _, _ := strings.Cut(c.Until, "=")
	switch {
	case res.Exit != nil && (word == "exit" || word == "eof" || word == "tree"):
		return inv.exitAs(res.Exit)
	case res.Met:
		return nil
	case res.Exit != nil:
		return fmt.Errorf("%s: the process ended first (%s)", id, res.Exit)
	}
	return fmt.Errorf("%s: the wait ended without %s", id, c.Until)
}

func (c *waitCmd) print(inv *invocation, id string, res process.WaitResult) (err error) {
	if len(c.IDs) > 1 {
		if _, err := fmt.Fprintf(inv.out, "%s: ", printable(id)); err != nil {
			return err
		}
	}
	switch {
	case res.Met && res.Match != "":
		_, err = fmt.Fprintln(inv.out, strings.TrimRight(res.Match, "\r\n"))
	case res.Met && len(res.Listening) > 0:
		for _, l := range res.Listening {
			_, err = fmt.Fprintln(inv.out, printable(l.Address))
		}
	case res.Met && c.Until == "input":
		_, err = fmt.Fprintln(inv.out, res.Input)
	case res.Exit != nil:
		_, err = fmt.Fprintln(inv.out, res.Exit)
	}
	return err
}

// parseUntil reads the argument of --until.
func parseUntil(text string) (process.Until, error) {
	word, arg, has := strings.Cut(text, "=")
	bad := func(format string, args ...any) (process.Until, error) {
		return process.Until{}, usageError(fmt.Sprintf("--until %s: ", text) + fmt.Sprintf(format, args...))
	}
	plain := map[string]process.Until{
		"exit": {}, "eof": {EOF: true}, "tree": {TreeGone: true}, "input": {Input: true},
	}
	if until, ok := plain[word]; ok && !has {
		return until, nil
	}
	switch {
	case word == "quiet" && has:
		d, err := duration(arg)
		if err != nil || d <= 0 || d > process.MaxTimeout {
			return bad("%q is no duration up to %v; write quiet=2s", arg, process.MaxTimeout)
		}
		return process.Until{Quiet: d}, nil
	case word == "port" && has:
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > 65535 {
			return bad("%q is no TCP port; write port=3000", arg)
		}
		return process.Until{Port: n}, nil
	case word == "match" && has:
		if arg == "" {
			return bad("the expression is empty; write match=REGEX")
		}
		if _, err := regexp.Compile(arg); err != nil {
			return bad("%v (RE2 syntax: https://golang.org/s/re2syntax)", err)
		}
		return process.Until{Match: arg}, nil
	}
	return bad("is not known; give exit, eof, tree, input, quiet=2s, port=3000 or match=REGEX")
}
