package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

type statsCmd struct {
	History  bool          `help:"Show what was used over time: by the machine, or by what is named. A time that is not there was not measured."`
	Since    time.Duration `default:"1h" placeholder:"1h" help:"How far back --history goes, 1d at most: a line for each minute, or of more than an hour for each five."`
	Interval time.Duration `short:"d" default:"2s" placeholder:"2s" help:"Time between two tables, at least 100ms."`
	Count    int           `short:"n" placeholder:"N" help:"Stop after this many tables. Default: for ever on a terminal, else 1."`
	UTC      bool          `name:"utc" help:"Times are those of UTC. Default: of this place, with its zone."`
	Names    []string      `arg:"" name:"name" optional:"" complete:"sandbox" help:"Only these: machine, a sandbox, a service. Default: all."`
}

// usageFacts is a point of a subject; what is not known is null.
type usageFacts struct {
	Kind        string    `json:"kind"` // machine, sandbox or service
	ID          string    `json:"id,omitempty"`
	Name        string    `json:"name"`
	Time        time.Time `json:"time"`
	CPUPercent  float64   `json:"cpu_percent"` // 100 is one CPU
	Memory      int64     `json:"memory"`      // bytes
	MemoryTotal int64     `json:"memory_total,omitempty"`
	Received    *int64    `json:"received"` // bytes a second
	Sent        *int64    `json:"sent"`
}

func (c *statsCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Count < 0 || c.Interval < 0 || c.Since <= 0 {
		return usageError("-n and -d are not negative, and --since is more than 0")
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	if c.History {
		return c.history(ctx, inv, d)
	}
	return inv.repeatedly(ctx, c.Count, c.Interval, func() error {
		all, err := d.Usage(ctx, c.Names...)
		if err != nil {
			return serviceError(err)
		}
		return c.print(inv, all, func(u *tend.Usage, p *tend.UsagePoint) []string {
			of := "-"
			if u.MemoryTotal > 0 {
				of = sizeText(u.MemoryTotal)
			}
			return append([]string{printable(nameOfUsage(u)), u.Kind}, append(figures(p), of)...)
		}, "NAME", "KIND", "CPU", "MEMORY", "RECEIVED/s", "SENT/s", "OF MEMORY")
	})
}

// history prints the points of the past.
func (c *statsCmd) history(ctx context.Context, inv *invocation, d *daemon) error {
	if len(c.Names) == 0 {
		c.Names = []string{"machine"}
	}
	all, err := d.UsageHistory(ctx, c.Since, c.Names...)
	if err != nil {
		return serviceError(err)
	}
	return c.print(inv, all, func(u *tend.Usage, p *tend.UsagePoint) []string {
		return append([]string{timeText(p.Time, c.UTC, "2006-01-02 15:04"), printable(nameOfUsage(u))}, figures(p)...)
	}, "TIME", "NAME", "CPU", "MEMORY", "RECEIVED/s", "SENT/s")
}

// print prints a row for each point.
func (c *statsCmd) print(inv *invocation, all []tend.Usage, row func(*tend.Usage, *tend.UsagePoint) []string, head ...string) error {
	rows := [][]string{head}
	for i := range all {
		u := &all[i]
		for k := range u.Points {
			p := &u.Points[k]
			if inv.flags.JSON {
				if err := printJSONLine(inv.out, usageFacts{u.Kind, u.ID, u.Name, p.Time.UTC(), 100 * p.CPU, p.Memory, u.MemoryTotal,
					p.Received, p.Sent}); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, row(u, p))
		}
	}
	if inv.flags.JSON {
		return nil
	}
	return inv.printRows(rows, nil)
}

// figures are the columns of a point.
func figures(p *tend.UsagePoint) []string {
	rate := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return sizeText(*n)
	}
	return []string{fmt.Sprintf("%.1f%%", 100*p.CPU), sizeText(p.Memory), rate(p.Received), rate(p.Sent)}
}

// nameOfUsage is what people call a subject.
func nameOfUsage(u *tend.Usage) string {
	if u.Name == "" {
		return u.ID
	}
	return u.Name
}
