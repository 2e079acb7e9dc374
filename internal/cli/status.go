package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/cli/doctor"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// statusFacts is the JSON of "tend status".
type statusFacts struct {
	Version   string                    `json:"version"`
	URL       string                    `json:"url"`
	StateDir  string                    `json:"state_dir"`
	Roles     map[string]roleFacts      `json:"roles"`
	Processes int                       `json:"processes"` // running
	Promises  map[string]doctor.Promise `json:"promises"`
	// Parts is left out where the daemon is of an older version.
	Parts map[string]map[string]string `json:"parts,omitempty"`
}

type roleFacts struct {
	PID int `json:"pid"`
}

type statusCmd struct{}

func (c *statusCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	s, err := d.facts(ctx)
	if err != nil {
		return err
	}
	if inv.flags.JSON {
		return printJSON(inv.out, s)
	}
	return s.print(inv)
}

// facts asks the daemon about itself.
func (d *daemon) facts(ctx context.Context) (*statusFacts, error) {
	status, err := d.Status(ctx)
	if err != nil {
		return nil, err
	}
	s := &statusFacts{
		Version: status.Version, URL: status.URL, StateDir: status.StateDir, Processes: status.Processes,
		Roles: map[string]roleFacts{}, Promises: map[string]doctor.Promise{}, Parts: status.Parts,
	}
	for _, name := range []string{"anchor", "keeper", "server"} {
		s.Roles[name] = roleFacts{PID: status.Roles[name]}
	}
	for name, p := range status.Promises {
		s.Promises[name] = doctor.Promise(p)
	}
	return s, nil
}

func (s *statusFacts) print(inv *invocation) error {
	colour := inv.colours(inv.out)
	rows := [][]string{
		{"version", printable(s.Version)}, {"url", printable(s.URL)}, {"state", printable(s.StateDir)},
		{"processes", fmt.Sprintf("%d running", s.Processes)},
	}
	for _, name := range []string{"anchor", "keeper", "server"} {
		text := "not there"
		if pid := s.Roles[name].PID; pid != 0 {
			text = fmt.Sprintf("pid %d", pid)
		}
		rows = append(rows, []string{name, text})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Parts)) {
		var facts []string
		for _, fact := range slices.Sorted(maps.Keys(s.Parts[name])) {
			facts = append(facts, fact+" "+s.Parts[name][fact])
		}
		rows = append(rows, []string{printable(name), printable(strings.Join(facts, ", "))})
	}
	first := len(rows)
	names := slices.Sorted(maps.Keys(s.Promises))
	for _, name := range names {
		word := "yes"
		if !s.Promises[name].Kept {
			word = "no"
		}
		text := word
		if detail := s.Promises[name].Detail; detail != "" {
			text += ": " + printable(detail)
		}
		rows = append(rows, []string{printable(name), text})
	}
	for i, line := range alignRows(rows) {
		if i >= first && !s.Promises[names[i-first]].Kept {
			line = paint(colour, yellow, line)
		}
		if _, err := fmt.Fprintln(inv.out, line); err != nil {
			return err
		}
	}
	return nil
}

type upgradeCmd struct {
	Server bool   `help:"Only the server."`
	Keeper bool   `help:"Only the keeper."`
	Binary string `placeholder:"FILE" help:"The new program, on the daemon's machine. Default: the file that the running one was started from."`
}

// upgradeTimeout is how long the new server may take to answer.
const upgradeTimeout = 30 * time.Second

func (c *upgradeCmd) Run(ctx context.Context, inv *invocation) error {
	what := tend.Upgrade{Server: c.Server || !c.Keeper, Keeper: c.Keeper || !c.Server}
	if c.Binary != "" {
		path, err := filepath.Abs(c.Binary)
		if err != nil {
			return err
		}
		what.Binary = path
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	if d.local && what.Binary != "" {
		if _, err := os.Stat(what.Binary); err != nil {
			return fmt.Errorf("the new binary: %w", err)
		}
	}
	before, err := d.facts(ctx)
	if err != nil {
		return err
	}
	if _, err := d.Upgrade(ctx, what); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	done := inv.progress("upgrading")
	after, err := inv.upgraded(ctx, before, what)
	done()
	if err != nil {
		return err
	}
	if inv.flags.JSON {
		return printJSON(inv.out, after)
	}
	for _, name := range []string{"server", "keeper"} {
		was, is := before.Roles[name].PID, after.Roles[name].PID
		switch {
		case was != is:
			fmt.Fprintf(inv.out, "%s: pid %d, was %d\n", name, is, was)
		case name == "keeper" && what.Keeper:
			fmt.Fprintf(inv.out, "keeper: pid %d, replaced in place\n", is)
		}
	}
	fmt.Fprintf(inv.out, "version %s, was %s; running processes: %d\n", printable(after.Version), printable(before.Version), after.Processes)
	return nil
}

// keeperImage identifies one program of the keeper: the next may have the same
// pid.
func (s *statusFacts) keeperImage() string {
	return fmt.Sprint(s.Roles["keeper"].PID, s.Promises["keeper_upgrades"].Detail)
}

// upgraded waits until each replaced part answers as another process.
func (inv *invocation) upgraded(ctx context.Context, before *statusFacts, what tend.Upgrade) (*statusFacts, error) {
	var last error
	for {
		now, err := inv.askAgain(ctx)
		switch {
		case err != nil:
			last = err
		case what.Server && now.Roles["server"].PID == before.Roles["server"].PID:
			last = errors.New("the old server still answers")
		case what.Keeper && (now.Roles["keeper"].PID == 0 || now.keeperImage() == before.keeperImage()):
			last = errors.New("the keeper is not back yet")
		default:
			return now, nil
		}
		if !backoff.Wait(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("the upgrade did not finish within %v: %w; tend status shows the state", upgradeTimeout, last)
		}
	}
}

// askAgain uses a new connection: an old one may lead to the old server.
func (inv *invocation) askAgain(ctx context.Context) (*statusFacts, error) {
	d, err := inv.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.facts(ctx)
}

// shutdownTimeout is how long the daemon may take to end: as the roles give each
// other, and some more.
const shutdownTimeout = time.Minute

type shutdownCmd struct {
	Keep bool `help:"Leave the processes running for the next daemon on the same state directory."`
}

func (c *shutdownCmd) Run(ctx context.Context, inv *invocation) error {
	if err := c.end(ctx, inv); err != nil || !inv.flags.JSON {
		return err
	}
	return printJSON(inv.out, map[string]any{"shutdown": true, "kept": c.Keep})
}

func (c *shutdownCmd) end(ctx context.Context, inv *invocation) error {
	if inv.flags.URL == "" {
		dir, err := inv.stateDir()
		if err != nil {
			return err
		}
		continueRoles(dir) // a role that is stopped cannot end in good order
	}
	d, err := inv.connect(ctx)
	if errors.Is(err, process.ErrUnavailable) && inv.flags.URL == "" && !c.Keep {
		return inv.shutdownWithoutServer(ctx, err)
	}
	if err != nil {
		return err
	}
	if !c.Keep {
		live, err := d.List(ctx, process.Filter{Live: true})
		if err != nil {
			return err
		}
		switch len(live) {
		case 0:
		case 1:
			inv.note("1 running process ends with the daemon")
		default:
			inv.note("%d running processes end with the daemon", len(live))
		}
	}
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	gone := goneFrom(status.StateDir, func() bool { return nobodyAt(ctx, d.url) })
	if err := d.Shutdown(ctx, c.Keep); err != nil || !d.local {
		return err
	}
	return inv.awaitEnd(d.url, func() bool { return gone() || c.Keep && kept(status.StateDir) })
}

// shutdownWithoutServer ends our own daemon whose server cannot start, or says
// nothing for another reason; why is what came of asking it.
func (inv *invocation) shutdownWithoutServer(ctx context.Context, why error) error {
	dir, err := inv.stateDir()
	if err != nil {
		return err
	}
	urls, err := inv.home().URLs()
	if err != nil {
		return err
	}
	gone := goneFrom(dir, func() bool {
		for _, url := range urls {
			if !nobodyAt(ctx, url) {
				return false
			}
		}
		return true
	})
	if err := end(dir); err != nil {
		return fmt.Errorf("%w; nor can it be ended without its server: %w", why, err)
	}
	return inv.awaitEnd(urls[0], gone)
}

// goneFrom returns what reports whether the daemon of a state directory has ended. Its
// roles say so if they can be seen from here: where systemd holds its sockets, these take
// connections beyond its end, and one would have it started again. Else unreachable does.
func goneFrom(dir string, unreachable func() bool) func() bool {
	if !lives(dir) {
		return unreachable
	}
	return func() bool { return !lives(dir) }
}

// awaitEnd waits until the daemon has ended: what comes next may be another one in
// the same place.
func (inv *invocation) awaitEnd(url string, ended func() bool) error {
	done := inv.progress("ending the daemon")
	defer done()
	for last := time.Now().Add(shutdownTimeout); !ended(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(last) {
			return fmt.Errorf("the daemon was told to end and still listens at %s after %v; tend status shows its state", url, shutdownTimeout)
		}
	}
	return nil
}
