package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// dashboard is tend top on a terminal, and tend up --tui: services and processes with what they use,
// one of which is chosen, and keys that act on it.
type dashboard struct {
	inv      *invocation
	d        *daemon
	services bool   // also these, and not only processes
	project  string // the services of this one alone; "": all
	interval time.Duration

	rows   []dashboardRow
	chosen string // the key of a row
	says   string // what the last action has come to
	told   chan string
	before map[int]usage
}

type dashboardRow struct {
	key, name string // what verbs find it by, and what it is called
	service   bool
	up        bool
	cells     []string
	colour    string
}

// keys has the terminal give keys at once, by their names where they have some. The returned function
// puts the terminal back. Without a terminal there are none.
func (inv *invocation) keys() (keys <-chan string, back func(), err error) {
	fd, ok := terminalOf(inv.in)
	if !ok || !inForeground(fd) {
		return nil, func() {}, nil
	}
	restore, err := singleKeys(fd)
	if err != nil {
		return nil, nil, err
	}
	in, err := newCancelReader(inv.in)
	if err != nil {
		restore()
		return nil, nil, err
	}
	all, left := make(chan string), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(all)
		buf := make([]byte, 64)
		for {
			n, err := in.Read(buf)
			for _, key := range keyNames(string(buf[:n])) {
				select {
				case all <- key:
				case <-left:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	return all, func() {
		in.cancel()
		close(left)
		wg.Wait()
		in.release()
		restore()
	}, nil
}

// keyOf names keys that have more than one letter, or more than one key for the same.
var keyOf = map[string]string{
	"\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down",
	"\x1b[C": "open", "\x1bOC": "open", "\r": "open", "\n": "open", "l": "open",
	"\x1b[D": "back", "\x1bOD": "back", "\x1b": "back", "h": "back", "q": "quit", "Q": "quit", "\x1d": "quit", "\x04": "quit",
}

// sequence is what a terminal sends for a key that is no letter, or for one with alt.
var sequence = lazyregexp.New(`^\x1b(\[[0-?]*[ -/]*[@-~]|O?.)`)

// keyNames are those of what was typed at once. A sequence that has no name is no key.
func keyNames(typed string) (names []string) {
	for len(typed) > 0 {
		key := typed[:max(len(sequence.FindString(typed)), 1)]
		typed = typed[len(key):]
		if name := keyOf[key]; name != "" {
			names = append(names, name)
		} else if len(key) == 1 {
			names = append(names, key)
		}
	}
	return names
}

// run shows it until the person leaves.
func (b *dashboard) run(ctx context.Context) error {
	keys, back, err := b.inv.keys()
	if err != nil {
		return err
	}
	defer back()
	io.WriteString(b.inv.out, "\x1b[?1049h\x1b[?25l")
	defer io.WriteString(b.inv.out, "\x1b[?25h\x1b[?1049l")
	b.told = make(chan string)
	acting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	tick := time.NewTicker(max(b.interval, 100*time.Millisecond))
	defer tick.Stop()
	for look := true; ; {
		if look {
			if err := b.look(ctx); ctx.Err() != nil {
				return nil
			} else if err != nil {
				return err
			}
		}
		b.draw()
		select {
		case <-ctx.Done():
			return nil
		case b.says = <-b.told:
			look = true
		case <-tick.C:
			look = true
		case key := <-keys:
			look = false
			row, at := b.row()
			switch key {
			case "quit", "": // "": the terminal is gone
				return nil
			case "up", "down":
				by := map[string]int{"up": -1, "down": 1}[key]
				if len(b.rows) > 0 {
					b.chosen = b.rows[min(max(at+by, 0), len(b.rows)-1)].key
				}
			case "open":
				if row != nil {
					if err := b.logs(ctx, keys, row); err != nil {
						return err
					}
					look = true
				}
			case "r", "s", "x":
				if row != nil {
					act, chosen := b.action(key, row), *row
					b.says = act.doing + " " + chosen.name + " …"
					wg.Go(func() {
						says := act.done + " " + chosen.name
						if err := act.do(acting); err != nil {
							says = err.Error()
						}
						select {
						case b.told <- says:
						case <-acting.Done():
						}
					})
				}
			}
		}
	}
}

// row is the chosen one, and where it is.
func (b *dashboard) row() (*dashboardRow, int) {
	at := slices.IndexFunc(b.rows, func(r dashboardRow) bool { return r.key == b.chosen })
	if at < 0 {
		return nil, 0
	}
	return &b.rows[at], at
}

type action struct {
	doing, done string
	do          func(context.Context) error
}

// action is what a key does to a row.
func (b *dashboard) action(key string, row *dashboardRow) action {
	name := row.key
	usual := grace{Time: usualGrace, Signal: "TERM"}
	switch {
	case row.service && key == "r":
		return action{"restarting", "restarted", func(ctx context.Context) error { return b.d.RestartServices(ctx, name) }}
	case row.service && (row.up || key == "x"): // what is stopped stays so by x
		return action{"stopping", "stopped", func(ctx context.Context) error { return b.d.StopServices(ctx, name) }}
	case row.service:
		return action{"starting", "started", func(ctx context.Context) error { return b.d.StartServices(ctx, name) }}
	case key == "r":
		return action{"restarting", "restarted", b.verb(&restartCmd{grace: usual, IDs: []string{name}})}
	case key == "s":
		return action{"stopping", "stopped", b.verb(&stopCmd{grace: usual, IDs: []string{name}})}
	}
	return action{"killing", "killed", b.verb(&killCmd{IDs: []string{name}})}
}

// verb runs one of the command line; what it says is its error.
func (b *dashboard) verb(r runner) func(context.Context) error {
	return func(ctx context.Context) error {
		var errs bytes.Buffer
		own := b.apart()
		defer own.hangUp()
		own.out, own.errs = io.Discard, &errs
		err := r.Run(ctx, own)
		if said := strings.TrimSpace(errs.String()); err == nil && said != "" {
			err = errors.New(said)
		}
		return err
	}
}

// apart is an invocation with its own connections.
func (b *dashboard) apart() *invocation {
	own := *b.inv
	own.dialed = nil
	return &own
}

// hangUp closes the connections of an invocation.
func (inv *invocation) hangUp() {
	for _, d := range inv.dialed {
		d.Close()
	}
}

// logs follows the output of a row until a key leads back.
func (b *dashboard) logs(ctx context.Context, keys <-chan string, row *dashboardRow) error {
	size, _ := terminalSize(b.inv.out)
	fmt.Fprintf(b.inv.out, "\x1b[H\x1b[2J%s\n", paint(true, "7", cut(" "+row.name+": its output; q leads back ", int(size.Cols))))
	within, stop := context.WithCancel(ctx)
	own, ended := b.apart(), make(chan error, 1)
	go func() {
		defer own.hangUp()
		c := logsCmd{IDs: []string{row.key}}
		c.Follow, c.Tail = true, fmt.Sprint(max(int(size.Rows)-3, 1))
		ended <- c.Run(within, own)
	}()
	over := false
	defer func() {
		stop()
		if !over {
			<-ended
		}
		io.WriteString(b.inv.out, "\x1b[0m\x1b[?25l") // what programs write may have changed both
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			over, ended = true, nil
			text := "the end; q leads back"
			if err != nil {
				text = err.Error()
			}
			fmt.Fprintf(b.inv.out, "\x1b[0m\n%s\n", paint(true, dim, printable(text)))
		case key := <-keys:
			if key == "quit" || key == "back" || key == "open" || key == "" {
				return nil
			}
		}
	}
}

// look asks what there is.
func (b *dashboard) look(ctx context.Context) error {
	infos, err := b.d.List(ctx, process.Filter{Live: true})
	if err != nil {
		return err
	}
	now := b.d.sessions()
	var rows []dashboardRow
	started := map[process.ID]time.Time{}
	for i := range infos {
		started[infos[i].ID] = infos[i].Started
	}
	if b.services {
		all, err := b.d.Services(ctx)
		if err != nil && !errors.Is(err, process.ErrUnsupported) {
			return err
		}
		for _, s := range all {
			r := dashboardRow{key: s.Name, name: printable(s.Name), service: true, up: s.Up}
			if b.project != "" {
				if s.Project != b.project {
					continue
				}
				r.name = printable(shortName(s.Name))
			}
			pid := "-"
			if s.PID > 0 {
				pid = fmt.Sprint(s.PID)
			}
			state := serviceState(&s)
			switch {
			case s.Phase == tend.ServiceFailed || s.Healing == tend.HealBroken:
				r.colour = red
			case s.Ready:
				r.colour = green
			}
			cpu, rss := b.uses(now, s.PID, started[s.Process])
			r.cells = []string{r.name, state, pid, cpu, rss, fmt.Sprint(s.Restarts), age(s.Age), cmp.Or(printable(s.Why), "-")}
			rows = append(rows, r)
		}
	}
	for i := range infos {
		p := &infos[i]
		if b.project != "" || b.services && p.Spec.Labels[process.LabelService] != "" {
			continue
		}
		r := dashboardRow{key: string(p.ID), name: printable(cmp.Or(p.Spec.Name, p.Spec.Tag, shortID(p.ID, 14))), up: true}
		cpu, rss := b.uses(now, p.PID, p.Started)
		r.cells = []string{r.name, stateText(p), fmt.Sprint(p.PID), cpu, rss, "-", age(time.Since(p.Started)), printable(commandOf(&p.Spec))}
		rows = append(rows, r)
	}
	b.rows, b.before = rows, now
	if row, _ := b.row(); row == nil && len(rows) > 0 {
		b.chosen = rows[0].key
	}
	return nil
}

// uses are the columns of processor and memory.
func (b *dashboard) uses(now map[int]usage, pid int, started time.Time) (cpu, rss string) {
	u, ok := now[pid]
	if !ok || pid <= 0 {
		return "-", "-"
	}
	return fmt.Sprintf("%.1f", 100*u.share(b.before[pid], started)), sizeText(u.rss)
}

// draw shows the rows around the chosen one.
func (b *dashboard) draw() {
	size, ok := terminalSize(b.inv.out)
	if !ok {
		size = fallbackSize
	}
	cells := [][]string{{"NAME", "STATE", "PID", "CPU%", "RSS", "RESTARTS", "AGE", "COMMAND, OR WHY"}}
	for _, r := range b.rows {
		cells = append(cells, r.cells)
	}
	lines, colours := alignRows(cells), b.inv.colours(b.inv.out)
	room := max(int(size.Rows)-3, 1)
	_, at := b.row()
	from := max(min(at-room/2, len(b.rows)-room), 0)
	var out strings.Builder
	line := func(sgr, text string) {
		out.WriteString(paint(sgr == "7" || colours, sgr, cut(text, int(size.Cols))) + "\x1b[K\n")
	}
	out.WriteString("\x1b[H")
	line(bold, lines[0])
	for i := from; i < min(from+room, len(b.rows)); i++ {
		sgr := b.rows[i].colour
		if i == at {
			sgr = "7"
		}
		line(sgr, lines[i+1])
	}
	if len(b.rows) == 0 {
		line(dim, "nothing runs")
	}
	out.WriteString("\x1b[J")
	fmt.Fprintf(&out, "\x1b[%d;1H", size.Rows-1)
	line(yellow, printable(b.says))
	out.WriteString(paint(colours, dim, cut("up, down: choose  enter: output  r: restart  s: stop, start  x: kill  q: leave", int(size.Cols))))
	io.WriteString(b.inv.out, out.String())
}
