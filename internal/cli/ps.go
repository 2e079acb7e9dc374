package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/service/sockets"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

type psCmd struct {
	inSandbox
	All    bool     `short:"a" help:"Also ended processes."`
	Quiet  bool     `short:"q" help:"Print only IDs, one on each line."`
	Tag    string   `placeholder:"TAG" complete:"tag" help:"Only processes with this tag."`
	Filter []string `placeholder:"K=V" complete:"filter" help:"Only processes that match. K is name, tag, id (its beginning), status, exited (a code), label or user. name, tag and user may contain * and ?; without these the whole text must match. With several filters, each key must match, and for each key one of its filters. status and exited find ended processes even without -a."`
}

// psFilter is a key of --filter.
type psFilter struct {
	key, help string
	// holds says whether a value fits a process.
	holds func(i *process.Info, value string) bool
	// of is the value of a process, for completion; nil: none is offered.
	of func(i *process.Info) string
	// check says what is wrong with a value, "" if nothing is.
	check func(value string) string
}

var psFilters = []psFilter{
	{"name", "its name, * and ? stand for others", func(i *process.Info, v string) bool { return like(v, i.Spec.Name) },
		func(i *process.Info) string { return i.Spec.Name }, badPattern},
	{"tag", "its tag", func(i *process.Info, v string) bool { return like(v, i.Spec.Tag) },
		func(i *process.Info) string { return i.Spec.Tag }, badPattern},
	{"user", "its user, as given at the start", func(i *process.Info, v string) bool { return like(v, i.Spec.User) },
		func(i *process.Info) string { return i.Spec.User }, badPattern},
	{"id", "how its id begins", func(i *process.Info, v string) bool { return strings.HasPrefix(string(i.ID), v) },
		idOf, nil},
	{"status", "running, stopped, exited, lost, timeout, oom or killed", hasStatus, statusOf, func(v string) string {
		if slices.Contains(psStatuses, v) {
			return ""
		}
		return "is none of " + strings.Join(psStatuses, ", ")
	}},
	{"exited", "ended with this code", func(i *process.Info, v string) bool {
		return i.Exit != nil && !i.Exit.Lost() && strconv.Itoa(i.Exit.ShellStatus()) == v
	}, nil, func(v string) string {
		if n, err := strconv.Atoi(v); err != nil || n < 0 || n > 255 {
			return "is no exit status; 0 to 255 are"
		}
		return ""
	}},
	{"label", "has this label: label=K or label=K=V", func(i *process.Info, v string) bool {
		k, want, has := strings.Cut(v, "=")
		got, ok := i.Spec.Labels[k]
		return ok && (!has || got == want)
	}, nil, nil},
}

var psStatuses = []string{"running", "stopped", "exited", "lost", "timeout", "oom", "killed"}

// statusOf is the most special of the words for a process; all that have ended
// are "exited", too.
func statusOf(i *process.Info) string {
	switch {
	case i.Exit == nil:
		return i.State.String()
	case i.Exit.Lost():
		return "lost"
	}
	switch i.Exit.Cause {
	case process.CauseTimeout, process.CauseOOM, process.CauseKilled:
		return i.Exit.Cause.String()
	}
	return "exited"
}

func hasStatus(i *process.Info, v string) bool {
	return statusOf(i) == v || v == "exited" && i.Exit != nil
}

func like(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}

func badPattern(v string) string {
	if _, err := path.Match(v, ""); err != nil {
		return "has a [ without its end"
	}
	return ""
}

// wanted reads --filter.
func (c *psCmd) wanted() (fits func(*process.Info) bool, ended bool, err error) {
	values := map[*psFilter][]string{}
	for _, text := range c.Filter {
		key, value, has := strings.Cut(text, "=")
		at := slices.IndexFunc(psFilters, func(f psFilter) bool { return f.key == key })
		if !has || at < 0 {
			return nil, false,
				usageError(fmt.Sprintf("--filter %s is not known; write KEY=VALUE with name, tag, user, id, status, exited or label", text))
		}
		f := &psFilters[at]
		if f.check != nil {
			if wrong := f.check(value); wrong != "" {
				return nil, false, usageError(fmt.Sprintf("--filter %s: %q %s", key, value, wrong))
			}
		}
		ended = ended || key == "status" || key == "exited"
		values[f] = append(values[f], value)
	}
	return func(i *process.Info) bool {
		for f, some := range values {
			if !slices.ContainsFunc(some, func(v string) bool { return f.holds(i, v) }) {
				return false
			}
		}
		return true
	}, ended, nil
}

func (c *psCmd) Run(ctx context.Context, inv *invocation) error {
	fits, ended, err := c.wanted()
	if err != nil {
		return err
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	// The finished ones are listed too, to know how short an id may be cut.
	all, err := d.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	prefix := idPrefix(all)
	shown := slices.DeleteFunc(all, func(i process.Info) bool {
		return !c.All && !ended && i.State == process.Exited || c.Tag != "" && i.Spec.Tag != c.Tag || !fits(&i)
	})
	switch {
	case inv.flags.JSON:
		return printJSON(inv.out, mapped(shown, factsOf))
	case c.Quiet:
		for i := range shown {
			if _, err := fmt.Fprintln(inv.out, printable(string(shown[i].ID))); err != nil {
				return err
			}
		}
		return nil
	}
	return printTable(inv, shown, prefix, time.Now(), inv.sandboxNames(ctx, d, shown))
}

// sandboxNames are the names of the sandboxes in which some of the processes are, by ID;
// nil: none is in one, or all are in the one that was asked for.
func (inv *invocation) sandboxNames(ctx context.Context, d *daemon, infos []process.Info) map[string]string {
	if inv.sandbox != "" || !slices.ContainsFunc(infos, func(i process.Info) bool { return i.Spec.Labels[process.LabelSandbox] != "" }) {
		return nil
	}
	names := map[string]string{}
	all, _ := d.Sandboxes(ctx, tend.SandboxFilter{}) // else the IDs say it
	for i := range all {
		names[all[i].ID] = all[i].Name
	}
	return names
}

// printTable writes one line for each process, cut to the terminal's width. With the names
// of sandboxes there is a column for them.
func printTable(inv *invocation, infos []process.Info, prefix int, now time.Time, sandboxes map[string]string) error {
	rows := [][]string{{"ID", "PID", "STATE", "AGE", "NAME", "COMMAND"}}
	for i := range infos {
		info := &infos[i]
		rows = append(rows, []string{
			shortID(info.ID, prefix), fmt.Sprint(info.PID), stateAndMore(info, now), age(now.Sub(info.Started)),
			nameOf(&info.Spec), printable(commandOf(&info.Spec)),
		})
	}
	for i := range rows {
		in := "SANDBOX"
		if i > 0 {
			id := infos[i-1].Spec.Labels[process.LabelSandbox]
			in = printable(cmp.Or(sandboxes[id], shortID(process.ID(id), 13), "-"))
		}
		if sandboxes != nil {
			rows[i] = slices.Insert(rows[i], 4, in)
		}
	}
	return inv.printRows(rows, func(n int) string { return colourOf(&infos[n], now) })
}

// nameOf is how tables call a process: its name, else its tag.
func nameOf(s *process.Spec) string { return printable(cmp.Or(s.Name, s.Tag, "-")) }

// commandOf is how tables call the command of a process. That of a service with sockets
// begins as tend, and is shown as what it becomes.
func commandOf(s *process.Spec) string {
	if s.Labels[process.LabelService] == "" || s.Shell != "" {
		return s.Command()
	}
	own := process.Spec{Argv: sockets.Command(s.Argv)}
	return own.Command()
}

// colourOf is the colour of a process in tables, "" for none.
func colourOf(info *process.Info, now time.Time) string {
	switch {
	case info.Exit != nil && info.Exit.ShellStatus() != 0:
		return red
	case outlived(info, now), info.State == process.Stopped:
		return yellow
	case info.State == process.Exited:
		return dim
	}
	return ""
}

// outlived: it has ended and descendants of it run. While tend itself ends all of
// them, which takes a moment, it is not said.
func outlived(info *process.Info, now time.Time) bool {
	if info.Exit == nil || info.TreeGone {
		return false
	}
	switch info.Exit.Cause {
	case process.CauseTimeout, process.CauseKilled, process.CauseNoReaders, process.CauseShutdown, process.CauseOOM:
		return now.Sub(info.Exit.Time) > 2*time.Second
	}
	return !info.Exit.Lost()
}

// stateAndMore adds what the state alone would hide.
func stateAndMore(info *process.Info, now time.Time) string {
	text := stateText(info)
	if outlived(info, now) {
		text += ", descendants run"
	}
	if info.Pinned {
		text += ", pinned"
	}
	if info.Damaged != "" {
		text += ", damaged"
	}
	return text
}

// stateText is the state, and for a finished process how it ended.
func stateText(info *process.Info) string {
	e := info.Exit
	if e == nil {
		return info.State.String()
	}
	switch {
	case e.Lost():
		return "lost"
	case e.Cause == process.CauseTimeout:
		return "timeout"
	case e.Cause == process.CauseOOM:
		return "oom"
	case e.Signal != 0:
		return "exited " + signalName(e.Signal)
	}
	return fmt.Sprintf("exited %d", e.Code)
}

// idPrefix returns how many letters are enough to distinguish all ids: at least 12, which is
// the time of the start and some more.
func idPrefix(infos []process.Info) int {
	ids := mapped(infos, idOf)
	slices.Sort(ids)
	need := 12
	for i := 1; i < len(ids); i++ {
		common := 0
		for common < len(ids[i]) && common < len(ids[i-1]) && ids[i][common] == ids[i-1][common] {
			common++
		}
		need = max(need, common+1)
	}
	return need
}

func idOf(i *process.Info) string { return string(i.ID) }

func shortID(id process.ID, n int) string {
	return printable(string(id[:min(n, len(id))]))
}

// age is a duration in its largest unit, as ps-like tables show it.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
