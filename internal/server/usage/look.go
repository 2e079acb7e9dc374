package usage

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// The kinds of subjects.
const kindMachine, kindSandbox, kindService = "machine", "sandbox", "service"

// sight is what was seen at a look.
type sight struct {
	at        time.Time
	boot      int64 // at, as procfs.BootTime
	machine   procfs.Machine
	services  []*tendv1.ServiceStatus
	sandboxes []seenSandbox
	sessions  map[int]procfs.Use // by pid; nil: no service has one
	live      bool               // a process runs
}

type seenSandbox struct {
	info    driver.Info
	samples []driver.Metric // since the look before; none: it does not run, or is not measured
}

// busy reports whether anything runs that has figures, or may begin to without a start.
func (s *sight) busy() bool {
	if s.live || len(s.services) > 0 {
		return true
	}
	for i := range s.sandboxes {
		if s.sandboxes[i].info.State == driver.Ready {
			return true
		}
	}
	return false
}

// look sees everything. Sandboxes have their samples since the look before; nil: none.
func (u *Usage) look(ctx context.Context, before *sight) (*sight, error) {
	ctx = process.Brief(ctx)
	s := &sight{}
	if u.c.Services != nil {
		all, err := u.c.Services(ctx)
		if err != nil {
			return nil, err
		}
		s.services = all.GetServices()
	}
	if u.c.Driver != nil {
		all, err := u.c.Driver.List(ctx)
		if err != nil {
			return nil, err
		}
		meter, _ := u.c.Driver.(driver.Meter)
		for i := range all {
			one := seenSandbox{info: all[i]}
			if meter != nil && all[i].State == driver.Ready {
				from := time.Now()
				if before != nil {
					from = before.at
				}
				// One that cannot be measured, or has ended meanwhile, has a gap.
				one.samples, _ = meter.Metrics(ctx, all[i].ID, from, time.Time{})
			}
			s.sandboxes = append(s.sandboxes, one)
		}
	}
	for _, one := range s.services {
		if one.GetPid() > 0 {
			s.sessions = procfs.Sessions()
			break
		}
	}
	if !s.busy() {
		all, err := u.c.Manager.List(ctx, process.Filter{Live: true})
		if err != nil {
			return nil, err
		}
		s.live = len(all) > 0
	}
	s.machine, s.at, s.boot = procfs.ReadMachine(), time.Now(), procfs.BootTime()
	return s, ctx.Err()
}

// subjects are the machine, the services and the sandboxes, without points.
func (s *sight) subjects() []*tendv1.Usage {
	all := []*tendv1.Usage{{Kind: kindMachine, Name: kindMachine}}
	for _, one := range s.services {
		all = append(all, &tendv1.Usage{Kind: kindService, Name: one.GetName()})
	}
	for i := range s.sandboxes {
		in := &s.sandboxes[i].info
		all = append(all, &tendv1.Usage{Kind: kindSandbox, Id: string(in.ID), Name: in.Name})
	}
	return all
}

// since is what was used since a look: a point for each subject of which it is known.
func (s *sight) since(before *sight) []*tendv1.Usage {
	all := s.subjects()
	wall := s.at.Sub(before.at)
	if wall <= 0 {
		return all
	}
	at := timestamppb.New(s.at)
	if m, was := &s.machine, &before.machine; m.MemTotal > 0 {
		all[0].Cpus, all[0].MemoryTotal = float64(runtime.NumCPU()), m.MemTotal
		all[0].Points = []*tendv1.UsagePoint{{Time: at, Cpu: share(m.Busy-was.Busy, wall), Memory: m.MemUsed,
			Received: rate(m.Received, was.Received, wall), Sent: rate(m.Sent, was.Sent, wall)}}
	}
	for i, one := range s.services {
		use, ok := s.sessions[int(one.GetPid())]
		if !ok || one.GetPid() == 0 {
			continue
		}
		cpu := use.CPU
		if was, there := before.sessions[int(one.GetPid())]; there {
			cpu -= was.CPU
		} else if st, ok := procfs.ReadStat(int(one.GetPid())); !ok || st.Started() < before.boot {
			continue // else it has used all of it since
		}
		all[1+i].Cpus, all[1+i].MemoryTotal = float64(runtime.NumCPU()), s.machine.MemTotal
		all[1+i].Points = []*tendv1.UsagePoint{{Time: at, Cpu: share(cpu, wall), Memory: use.Memory}}
	}
	for i := range s.sandboxes {
		one, m := &s.sandboxes[i], all[1+len(s.services)+i]
		if len(one.samples) == 0 {
			continue
		}
		last := &one.samples[len(one.samples)-1]
		m.Cpus, m.MemoryTotal = last.CPUs, last.MemTotal
		p := &tendv1.UsagePoint{Time: at, Cpu: mean(one.samples, before.at), Memory: last.MemUsed}
		if last.Counted {
			was := before.counted(one.info.ID)
			p.Received, p.Sent = rate(last.Received, was.Received, wall), rate(last.Sent, was.Sent, wall)
		}
		m.Points = []*tendv1.UsagePoint{p}
	}
	return all
}

// counted is the last sample of a sandbox; the zero value: there was none.
func (s *sight) counted(id driver.ID) driver.Metric {
	for i := range s.sandboxes {
		if one := &s.sandboxes[i]; one.info.ID == id && len(one.samples) > 0 {
			return one.samples[len(one.samples)-1]
		}
	}
	return driver.Metric{}
}

// mean is the use of processors over samples, each of which is about the time since the one before.
func mean(samples []driver.Metric, from time.Time) uint32 {
	sum, all := 0.0, 0.0
	for i := range samples {
		d := samples[i].Time.Sub(from).Seconds()
		if from = samples[i].Time; d <= 0 {
			continue
		}
		sum, all = sum+d*samples[i].CPUPercent, all+d
	}
	if all == 0 {
		return 0
	}
	return uint32(min(1<<20, 10*sum/all))
}

// share is processor time in thousandths of one processor.
func share(cpu, wall time.Duration) uint32 {
	return uint32(min(1<<20, max(0, cpu.Seconds()*1000/wall.Seconds())))
}

// rate is what has been added to a sum, a second. A smaller sum has begun again.
func rate(now, before int64, wall time.Duration) *int64 {
	if now < before {
		before = 0
	}
	return proto.Int64(int64(float64(now-before) / wall.Seconds()))
}
