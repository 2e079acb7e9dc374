package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

const (
	maxPortsShown     = 256
	maxPortAddresses  = 16
	maxPortsProcesses = 256 // of a sandbox that are looked at
)

func (s *processes) Ports(ctx context.Context, req *connect.Request[tendv1.PortsRequest]) (*connect.Response[tendv1.PortsResponse], error) {
	procs, err := s.listeners(ctx, req.Msg.GetProcess())
	if err != nil {
		return nil, wireError(err)
	}
	var all []process.Listener
	for _, p := range procs {
		l, ok := p.(process.PortLister)
		if !ok {
			continue
		}
		some, err := l.Listening(ctx)
		if err != nil && !errors.Is(err, process.ErrNotFound) {
			return nil, wireError(err)
		}
		all = append(all, some...)
	}
	return connect.NewResponse(&tendv1.PortsResponse{Ports: portsOf(all), Domains: s.cfg.Domains}), nil
}

// listeners are the processes that are meant. To look at those of a sandbox is no use of it,
// so they are not asked for by its own manager.
func (s *processes) listeners(ctx context.Context, sel *tendv1.Selector) ([]process.Process, error) {
	mgr, err := s.cfg.manager(ctx)
	if err != nil {
		return nil, err
	}
	if mgr == s.cfg.Manager {
		if sel == nil {
			return nil, &process.InvalidError{Field: "process", Reason: fmt.Sprintf("is not set; name a process of the machine, or a sandbox by %s",
				tendpb.SandboxHeader)}
		}
		p, err := s.find(ctx, sel)
		return []process.Process{p}, err
	}
	infos, err := mgr.List(process.Brief(ctx), process.Filter{Live: true})
	if err != nil {
		return nil, err
	}
	if sel != nil {
		id := process.ID(sel.GetId())
		if id == "" {
			return nil, &process.InvalidError{Field: "process", Reason: "names no ID; those of a sandbox are found by it"}
		}
		infos = slices.DeleteFunc(infos, func(in process.Info) bool { return in.ID != id })
	}
	var procs []process.Process
	for _, in := range infos[:min(len(infos), maxPortsProcesses)] {
		p, err := s.cfg.Manager.Get(ctx, process.Selector{ID: in.ID})
		if errors.Is(err, process.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		procs = append(procs, p)
	}
	return procs, nil
}

// portsOf are the ports of sockets, each once.
func portsOf(all []process.Listener) []*tendv1.ListeningPort {
	byPort := map[uint16]*tendv1.ListeningPort{}
	for _, l := range all {
		a, err := netip.ParseAddrPort(l.Address)
		if err != nil {
			continue
		}
		p := byPort[a.Port()]
		if p == nil {
			p = &tendv1.ListeningPort{Port: uint32(a.Port())}
			byPort[a.Port()] = p
		}
		if !slices.Contains(p.Addresses, l.Address) && len(p.Addresses) < maxPortAddresses {
			p.Addresses = append(p.Addresses, l.Address)
		}
	}
	ports := make([]*tendv1.ListeningPort, 0, len(byPort))
	for _, p := range byPort {
		slices.Sort(p.Addresses)
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b *tendv1.ListeningPort) int { return cmp.Compare(a.Port, b.Port) })
	return ports[:min(len(ports), maxPortsShown)]
}
