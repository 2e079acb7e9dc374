package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

type topCmd struct {
	inSandbox
	Interval time.Duration `short:"d" default:"2s" placeholder:"2s" help:"Time between two refreshes, at least 100ms."`
	Count    int           `short:"n" placeholder:"N" help:"Stop after this many tables. Default: for ever on a terminal, else 1."`
}

type topFacts struct {
	processFacts
	// CPU is the share of one processor since the last table (or the start),
	// RSS the resident bytes of the session; null if not known here.
	CPU *float64 `json:"cpu"`
	RSS *int64   `json:"rss"`
}

func (c *topCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Count < 0 || c.Interval < 0 {
		return usageError("-n and -d are not negative")
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	_, live := terminalOf(inv.out)
	if live = live && !inv.flags.JSON; live && c.Count == 0 {
		b := dashboard{inv: inv, d: d, services: d.machine && inv.sandbox == "", interval: c.Interval}
		return b.run(ctx)
	}
	before := map[int]usage{}
	return inv.repeatedly(ctx, c.Count, c.Interval, func() error {
		infos, err := d.List(ctx, process.Filter{Live: true})
		if err != nil {
			return err
		}
		now := d.sessions()
		if live {
			io.WriteString(inv.out, "\x1b[H\x1b[2J")
		}
		err, before = c.print(inv, infos, before, now), now
		return err
	})
}

// repeatedly prints a table again and again, until there were count of them (0: for ever on a
// terminal, else one) or the person leaves.
func (inv *invocation) repeatedly(ctx context.Context, count int, interval time.Duration, print func() error) error {
	if _, live := terminalOf(inv.out); count == 0 && (!live || inv.flags.JSON) {
		count = 1
	}
	for n := 1; ; n++ {
		err := print()
		switch {
		case ctx.Err() != nil: // left
			return nil
		case err != nil, n == count:
			return err
		case !backoff.Wait(ctx, max(interval, 100*time.Millisecond)):
			return nil
		}
	}
}

func (c *topCmd) print(inv *invocation, infos []process.Info, before, now map[int]usage) error {
	facts := make([]topFacts, 0, len(infos))
	for i := range infos {
		f := topFacts{processFacts: factsOf(&infos[i])}
		if u, ok := now[infos[i].PID]; ok {
			f.RSS = &u.rss
			cpu := u.share(before[infos[i].PID], infos[i].Started)
			f.CPU = &cpu
		}
		facts = append(facts, f)
	}
	if inv.flags.JSON {
		return printJSON(inv.out, facts)
	}
	slices.SortStableFunc(facts, func(a, b topFacts) int { return compareCPU(b.CPU, a.CPU) })
	rows := [][]string{{"ID", "PID", "CPU%", "RSS", "OUT", "AGE", "NAME", "COMMAND"}}
	for _, f := range facts {
		cpu, rss, out := "-", "-", int64(0)
		if f.CPU != nil {
			cpu, rss = fmt.Sprintf("%.1f", *f.CPU*100), sizeText(*f.RSS)
		}
		for _, s := range f.Streams {
			out += s.End
		}
		rows = append(rows, []string{shortID(f.ID, 14), fmt.Sprint(f.PID), cpu, rss, sizeText(out), age(time.Since(f.Started)),
			printable(cmp.Or(f.Name, f.Tag, "-")), printable(f.Command)})
	}
	lines := alignRows(rows)
	if size, ok := terminalSize(inv.out); ok {
		lines = lines[:min(len(lines), max(2, int(size.Rows)-1))]
		for i := range lines {
			lines[i] = cut(lines[i], int(size.Cols))
		}
	}
	lines[0] = paint(inv.colours(inv.out), bold, lines[0])
	_, err := fmt.Fprintln(inv.out, strings.Join(lines, "\n"))
	return err
}

func compareCPU(a, b *float64) int {
	switch {
	case a == nil || b == nil || *a == *b:
		return 0
	case *a < *b:
		return -1
	}
	return 1
}

// usage is what a session used up to a moment.
type usage struct {
	at  time.Time
	cpu float64 // seconds
	rss int64   // bytes
}

// share is the part of one processor used since before, or since the start.
func (u usage) share(before usage, started time.Time) float64 {
	if before.at.IsZero() {
		before.at, before.cpu = started, 0
	}
	if d := u.at.Sub(before.at).Seconds(); d > 0 {
		return max(0, (u.cpu-before.cpu)/d)
	}
	return 0
}

// sessions returns for each process of this machine, by pid, what all processes of its session
// use together: tend starts each process in a session of its own. Where there is no /proc, or it
// is not the daemon's, it is empty.
func (d *daemon) sessions() map[int]usage {
	if !d.local {
		return nil
	}
	now := time.Now()
	all, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	sums, session := make(map[int]usage, len(all)), make(map[int]int, len(all))
	for _, p := range all {
		st, err := p.Stat()
		if err != nil {
			continue // it ended while we looked
		}
		u := sums[st.Session]
		u.at, u.cpu, u.rss = now, u.cpu+st.CPUTime(), u.rss+int64(st.ResidentMemory())
		sums[st.Session], session[st.PID] = u, st.Session
	}
	uses := make(map[int]usage, len(session))
	for pid, s := range session {
		uses[pid] = sums[s]
	}
	return uses
}
