package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

type sandboxStatsCmd struct {
	Interval time.Duration `short:"d" default:"2s" placeholder:"2s" help:"Time between two tables, at least 100ms."`
	Count    int           `short:"n" placeholder:"N" help:"Stop after this many tables. Default: for ever on a terminal, else 1."`
	Names    []string      `arg:"" name:"sandbox" optional:"" complete:"sandbox" help:"Only these sandboxes. Default: all isolated ones."`
}

func (c *sandboxStatsCmd) Run(ctx context.Context, inv *invocation) error {
	if c.Count < 0 || c.Interval < 0 {
		return usageError("-n and -d are not negative")
	}
	d, err := inv.connect(ctx)
	if err != nil {
		return err
	}
	return inv.repeatedly(ctx, c.Count, c.Interval, func() error { return c.table(ctx, inv, d) })
}

// table prints the newest sample of each sandbox.
func (c *sandboxStatsCmd) table(ctx context.Context, inv *invocation, d *daemon) error {
	infos, err := c.chosen(ctx, d)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "STATE", "CPU", "MEMORY", "OF", "DISK", "OF", "TASKS", "OOM"}}
	for i := range infos {
		info := &infos[i]
		sandbox, err := d.Sandbox(ctx, info.ID)
		if err == nil {
			var samples []tend.SandboxMetric
			if samples, err = sandbox.Metrics(ctx, time.Time{}, time.Time{}); err == nil && len(samples) > 0 {
				m := &samples[len(samples)-1]
				if inv.flags.JSON {
					if err := printJSONLine(inv.out, metricFacts{
						info.ID, info.Name, m.Time.UTC(), m.CPUs, m.CPUPercent, m.MemUsed, m.MemCache, m.MemTotal, m.DiskUsed, m.DiskTotal,
						m.Tasks, m.OOMKills,
					}); err != nil {
						return err
					}
					continue
				}
				rows = append(rows, []string{
					printable(nameOfSandbox(info)), info.State.String(), fmt.Sprintf("%.1f%%", m.CPUPercent), sizeText(m.MemUsed), sizeText(m.MemTotal),
					sizeText(m.DiskUsed), sizeText(m.DiskTotal), fmt.Sprint(m.Tasks), fmt.Sprint(m.OOMKills),
				})
			}
		}
		switch {
		case err == nil, errors.Is(err, process.ErrNotFound): // it ended meanwhile
		case len(c.Names) == 0 && (errors.Is(err, process.ErrUnsupported) || errors.Is(err, tend.ErrSandboxStopped)):
			// Of those, nothing is measured.
		default:
			return about(nameOfSandbox(info), err)
		}
	}
	if inv.flags.JSON {
		return nil
	}
	return inv.printRows(rows, nil)
}

func (c *sandboxStatsCmd) chosen(ctx context.Context, d *daemon) ([]tend.SandboxInfo, error) {
	if len(c.Names) == 0 {
		return d.Sandboxes(ctx, tend.SandboxFilter{})
	}
	var infos []tend.SandboxInfo
	err := each(c.Names, func(name string) error {
		_, info, err := d.sandbox(ctx, name)
		infos = append(infos, info)
		return err
	})
	return infos, err
}
