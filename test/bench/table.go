//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// row is one figure. A zero Bare means that there is no limit to compare with.
type row struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	Bare float64 `json:"bare,omitempty"`
	Tend float64 `json:"tend"`
	// HTTP is what a server that does nothing gets from the same client.
	HTTP float64 `json:"http,omitempty"`
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

// http adds the figure of the floor.
func (r row) http(v float64) row {
	r.HTTP = v
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
	if len(rows) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tunit\tbare\tHTTP alone\ttend\tratio\tgoal\t\t")
	for _, r := range rows {
		bare, http, ratio := "–", "–", "–"
		if r.HTTP > 0 {
			http = number(r.HTTP)
		}
		if r.Bare > 0 {
			bare, ratio = number(r.Bare), fmt.Sprintf("%.2f×", r.Ratio)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Unit, bare, http, number(r.Tend), ratio, r.Goal, r.verdict(), r.Note)
	}
	return tw.Flush()
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
