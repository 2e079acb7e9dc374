package native

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// Use is the resource usage of the processes of a session until a moment.
type Use struct {
	CPU    time.Duration // of all processors together
	Memory int64         // bytes that are resident
}

const (
	maxOverviewCommand = 1 << 10 // bytes
	maxOverviewLabels  = 16
	maxOverviewLabel   = 256 // bytes
)

// looker looks at everything, for any number of viewers: each uses what another has
// seen a moment ago.
type looker struct {
	cfg *Config

	mu   sync.Mutex
	at   time.Time
	last *overview
	used map[int]Use
}

// collect returns what there is. Nobody changes it.
func (l *looker) collect(ctx context.Context) (*overview, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.last != nil && now.Sub(l.at) < overviewLeast/2 {
		return l.last, nil
	}
	ctx = process.Brief(ctx)
	o := &overview{processes: map[string]*tendv1.OverviewProcess{}, sandboxes: map[string]*tendv1.OverviewSandbox{},
		services: map[string]*tendv1.ServiceStatus{}}
	l.lookInside(ctx, o)
	infos, err := l.cfg.Manager.List(ctx, process.Filter{})
	if err != nil {
		return nil, err
	}
	var used map[int]Use
	if l.cfg.Usage != nil {
		used = l.cfg.Usage()
	}
	for n := range infos {
		in := &infos[n]
		if _, inside := o.processes[string(in.ID)]; inside {
			continue
		}
		p := brief(in)
		if u, ok := used[in.PID]; ok && in.Exit == nil && in.PID > 0 {
			p.Memory = &u.Memory
			if before, ok := l.used[in.PID]; ok && now.After(l.at) {
				share := uint32(min(1<<20, max(0, (u.CPU-before.CPU)*1000/now.Sub(l.at))))
				p.Cpu = &share
			}
		}
		o.add(p)
	}
	if l.cfg.Services != nil {
		all, err := l.cfg.Services.List(ctx)
		if err != nil {
			o.missing = append(o.missing, "services: "+tendpb.CleanText(err.Error()))
		}
		for _, s := range all.GetServices() {
			o.services[s.GetName()] = s
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.at, l.last, l.used = now, o, used
	return o, nil
}

// lookInside adds the sandboxes and their processes. One that is destroyed meanwhile
// has none.
func (l *looker) lookInside(ctx context.Context, o *overview) {
	if l.cfg.Driver == nil {
		return
	}
	all, err := l.cfg.Driver.List(ctx)
	if err != nil {
		o.missing = append(o.missing, "sandboxes: "+tendpb.CleanText(err.Error()))
	}
	meter, _ := l.cfg.Driver.(driver.Meter)
	for n := range all {
		in := &all[n]
		sandbox := &tendv1.OverviewSandbox{Sandbox: sandbox(in)}
		o.sandboxes[string(in.ID)] = sandbox
		if meter != nil && in.State == driver.Ready {
			if v, err := meter.Metrics(ctx, in.ID, time.Now().Add(-10*time.Second), time.Time{}); err == nil && len(v) > 0 {
				cpu, memory := uint32(max(0, v[len(v)-1].CPUPercent*10)), v[len(v)-1].MemUsed
				sandbox.Cpu, sandbox.Memory = &cpu, &memory
			}
		}
		s, err := l.cfg.Driver.Get(ctx, string(in.ID))
		if err != nil {
			continue
		}
		infos, err := s.Processes().List(ctx, process.Filter{})
		if err != nil {
			if !errors.Is(err, driver.ErrNotFound) {
				o.missing = append(o.missing, "processes of sandbox "+in.Name+": "+tendpb.CleanText(err.Error()))
			}
			continue
		}
		for n := range infos {
			p := brief(&infos[n])
			p.Sandbox = string(in.ID)
			o.add(p)
		}
	}
}

func (o *overview) add(p *tendv1.OverviewProcess) {
	o.processes[p.GetId()] = p
	o.order = append(o.order, p.GetId())
}

// brief is the short form of what is known of a process.
func brief(in *process.Info) *tendv1.OverviewProcess {
	command := in.Spec.Shell
	if command == "" {
		command = strings.Join(in.Spec.Argv, " ")
	}
	p := &tendv1.OverviewProcess{
		Id: string(in.ID), Name: clip(in.Spec.Name, maxOverviewLabel), Tag: clip(in.Spec.Tag, maxOverviewLabel),
		Command: clip(command, maxOverviewCommand), Pid: uint32(in.PID),
		State: tendv1.State(in.State), Started: tendpb.Time(in.Started), Exit: tendpb.Exit(in.Exit), Pty: in.Spec.PTY != nil,
	}
	for _, s := range in.Streams {
		p.Written += s.End
	}
	for _, key := range slices.Sorted(maps.Keys(in.Spec.Labels)) {
		if len(p.Labels) == maxOverviewLabels {
			break
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[clip(key, maxOverviewLabel)] = clip(in.Spec.Labels[key], maxOverviewLabel)
	}
	return p
}

// clip returns text of at most so many bytes.
func clip(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}
