package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/tend-run/tend/process"
)

type psCmd struct {
	All   bool   `short:"a" help:"Also those that have ended."`
	Quiet bool   `short:"q" help:"Ids only, one a line."`
	Tag   string `placeholder:"TAG" help:"Only those with this tag."`
}

func (c *psCmd) Run(ctx context.Context, inv *invocation) error {
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	// The finished ones are listed too, to know how short an id may be cut.
	all, err := d.List(ctx, process.Filter{})
	if err != nil {
		return err
	}
	prefix := idPrefix(all)
	shown := slices.DeleteFunc(all, func(i process.Info) bool {
		return !c.All && i.State == process.Exited || c.Tag != "" && i.Spec.Tag != c.Tag
	})
	switch {
	case inv.flags.JSON:
		facts := make([]processFacts, 0, len(shown))
		for i := range shown {
			facts = append(facts, factsOf(&shown[i]))
		}
		return printJSON(inv.out, facts)
	case c.Quiet:
		for i := range shown {
			if _, err := fmt.Fprintln(inv.out, shown[i].ID); err != nil {
				return err
			}
		}
		return nil
	}
	return printTable(inv, shown, prefix, time.Now())
}

// printTable writes one line for each process, cut to the terminal's width.
func printTable(inv *invocation, infos []process.Info, prefix int, now time.Time) error {
	width := 0
	if size, ok := terminalSize(inv.out); ok {
		width = int(size.Cols)
	}
	rows := [][]string{{"ID", "PID", "STATE", "AGE", "NAME", "COMMAND"}}
	for i := range infos {
		info := &infos[i]
		rows = append(rows, []string{
			shortID(info.ID, prefix), fmt.Sprint(info.PID), stateAndPin(info), age(now.Sub(info.Started)),
			printable(cmp.Or(info.Spec.Name, info.Spec.Tag, "-")), printable(info.Spec.Command()),
		})
	}
	lines, err := alignRows(rows)
	if err != nil {
		return err
	}
	colour := inv.colours(inv.out)
	for i, line := range lines {
		line = cut(line, width)
		switch {
		case i == 0:
			line = paint(colour, dim, line)
		case infos[i-1].Exit != nil && infos[i-1].Exit.ShellStatus() != 0:
			line = paint(colour, red, line)
		case infos[i-1].State == process.Exited:
			line = paint(colour, dim, line)
		case infos[i-1].State == process.Stopped:
			line = paint(colour, yellow, line)
		}
		if _, err := fmt.Fprintln(inv.out, line); err != nil {
			return err
		}
	}
	return nil
}

// alignRows lays out rows in columns. It comes before any colour, whose bytes
// would count as width.
func alignRows(rows [][]string) ([]string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := io.WriteString(w, strings.Join(row, "\t")+"\n"); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), nil
}

// cut shortens a line to width runes; 0 keeps it.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width])
}

func stateAndPin(info *process.Info) string {
	text := stateText(info)
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

// idPrefix returns how many letters tell all ids apart: at least 12, which is
// the time of the start and some more.
func idPrefix(infos []process.Info) int {
	ids := make([]string, 0, len(infos))
	for i := range infos {
		ids = append(ids, string(infos[i].ID))
	}
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

func shortID(id process.ID, n int) string {
	if len(id) <= n {
		return string(id)
	}
	return string(id[:n])
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
