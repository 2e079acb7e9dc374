package tend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tend-run/tend/internal/lib/home"
	"github.com/tend-run/tend/process"
)

// DialDefault connects to the daemon that the tend command line uses: at TEND_URL if
// that is set, else the daemon of the current user, which is found by its state
// directory (TEND_STATE_DIR; by default /var/lib/tend for root, else
// ~/.local/state/tend). Without Options.Token it sends TEND_TOKEN. It is the only
// function of this package that reads the environment.
//
// It does not start a daemon. If none runs, the error wraps [process.ErrUnavailable];
// tend run or tend serve starts one.
func DialDefault(ctx context.Context, opts Options) (*Client, error) {
	opts.Token = cmp.Or(opts.Token, os.Getenv("TEND_TOKEN"))
	if url := os.Getenv("TEND_URL"); url != "" {
		return Dial(ctx, url, opts)
	}
	urls, err := home.Home{StateDir: os.Getenv("TEND_STATE_DIR"), Getenv: os.Getenv}.URLs()
	if err != nil {
		return nil, err
	}
	for _, url := range urls {
		c, err := Dial(ctx, url, opts)
		if !errors.Is(err, ErrNoDaemon) {
			return c, err
		}
	}
	return nil, fmt.Errorf("%w (tried %s); start one: tend serve", ErrNoDaemon, strings.Join(urls, ", "))
}

// ErrNoDaemon is returned by [Dial] if no program listens at the URL. It wraps
// [process.ErrUnavailable], which is also the error if a daemon listens but does not
// answer.
var ErrNoDaemon error = noDaemon{}

type noDaemon struct{}

func (noDaemon) Error() string { return "no daemon listens there" }
func (noDaemon) Unwrap() error { return process.ErrUnavailable }
