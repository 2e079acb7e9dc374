//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one figure. A zero Bare means that there is no limit to compare with.
type row struct {
	Bench string  `json:"bench"`
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Bare  float64 `json:"bare,omitempty"`
	Tend  float64 `json:"tend"`
	// HTTP is what a server that does nothing gets from the same client.
	HTTP float64 `json:"http,omitempty"`
	// Beside is what the binary of -beside gets.
	Beside float64 `json:"beside,omitempty"`
	// Peers are other programs that do the same, by the name of their column.
	Peers map[string]float64 `json:"peers,omitempty"`
	// Ratio is Tend / Bare.
	Ratio float64 `json:"ratio,omitempty"`
	Goal  string  `json:"goal,omitempty"`
	// Met is absent where there is no goal.
	Met  *bool  `json:"met,omitempty"`
	Note string `json:"note,omitempty"`
}

func figure(name, unit string, bare, tend float64) row {
	r := row{Name: name, Unit: unit, Bare: bare, Tend: tend}
	if bare > 0 {
		r.Ratio = tend / bare
	}
	return r
}

func (r row) notes(format string, args ...any) row {
	r.Note = fmt.Sprintf(format, args...)
	return r
}

// ratioAtMost, ratioAtLeast, atMost and atLeast set the goal.
func (r row) ratioAtMost(g float64) row { return r.goal(r.Ratio <= g, fmt.Sprintf("≤ %.2f×", g)) }

func (r row) ratioAtLeast(g float64) row { return r.goal(r.Ratio >= g, fmt.Sprintf("≥ %.2f×", g)) }

func (r row) atMost(g float64) row { return r.goal(r.Tend <= g, fmt.Sprintf("≤ %g %s", g, r.Unit)) }

func (r row) atLeast(g float64) row { return r.goal(r.Tend >= g, fmt.Sprintf("≥ %g %s", g, r.Unit)) }

func (r row) goal(met bool, text string) row {
	r.Goal, r.Met = text, &met
	return r
}

func (r row) verdict() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	default:
		return "NOT MET"
	}
}

func printTable(w io.Writer, rows []row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cells := range table(rows) {
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// printMarkdown prints what the documents hold.
func printMarkdown(w io.Writer, rows []row) error {
	for i, cells := range table(rows) {
		if parent, ok := strings.CutPrefix(cells[0], "  "); ok {
			cells[0] = "… " + parent
		}
		if _, err := fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")); err != nil {
			return err
		}
		if i == 0 {
			fmt.Fprintln(w, "|"+strings.Repeat("---|", len(cells)))
		}
	}
	return nil
}

// table returns the cells of the rows below those of a heading, without the
// columns that are empty.
func table(rows []row) [][]string {
	if len(rows) == 0 {
		return nil
	}
	lines := [][]string{slices.Concat([]string{"", "unit", "bare"}, peerNames, []string{"HTTP alone", "before", "tend", "tend : bare", "goal", "", "notes"})}
	for _, r := range rows {
		line := []string{r.Name, r.Unit, some(r.Bare)}
		for _, name := range peerNames {
			line = append(line, some(r.Peers[name]))
		}
		ratio := ""
		if r.Bare > 0 {
			ratio = fmt.Sprintf("%.2f×", r.Ratio)
		}
		lines = append(lines, append(line, some(r.HTTP), some(r.Beside), number(r.Tend), ratio, r.Goal, r.verdict(), r.Note))
	}
	for i := len(lines[0]) - 1; i > 0; i-- {
		if !slices.ContainsFunc(lines[1:], func(line []string) bool { return line[i] != "" }) {
			for k, line := range lines {
				lines[k] = slices.Delete(line, i, i+1)
			}
		}
	}
	return lines
}

// some prints a figure that may be absent.
func some(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
}

func printJSON(w io.Writer, rows []row) error {
	enc := json.NewEncoder(w)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// number prints three significant digits, and no exponent.
func number(v float64) string {
	digits := 2
	if a := math.Abs(v); a >= 100 {
		digits = 0
	} else if a >= 10 {
		digits = 1
	}
	return fmt.Sprintf("%.*f", digits, v)
}

// quantile returns the q-quantile of v, which it sorts; 0 if v is empty.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

func median(v []float64) float64 { return quantile(v, 0.5) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const mib = 1 << 20

// rate is n bytes in d, in MiB/s.
func rate(n int64, d time.Duration) float64 { return float64(n) / mib / d.Seconds() }
