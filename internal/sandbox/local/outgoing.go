package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/network"
	"github.com/tend-run/tend/internal/sandbox/route"
)

// layerOutgoing is the word of Capabilities for a network of the sandbox's own that leads
// out.
const layerOutgoing = "outgoing"

// policyOf reads the rules of a network, as errors of the request's fields.
func policyOf(n *driver.Network) (*network.Policy, error) {
	p, err := network.ParsePolicy(n.Allow, n.Deny)
	if wrong, ok := errors.AsType[*network.RuleError](err); ok {
		return nil, &driver.InvalidError{Field: "network." + wrong.List, Reason: fmt.Sprintf("has the rule %.80q, which %s",
			wrong.Rule, wrong.Reason)}
	}
	return p, err
}

// refuseRules names what is wrong with rules, and what cannot be had here. What leads
// nowhere denies everything already.
func (d *Driver) refuseRules(n *driver.Network) error {
	if _, err := policyOf(n); err != nil {
		return err
	}
	if len(n.Allow) == 0 {
		return nil
	}
	if err := d.out.Unable(); err != nil {
		return &driver.UnsupportedError{Field: "network.allow", Reason: "the networks of sandboxes lead nowhere on this machine: " + err.Error()}
	}
	return nil
}

// policy is what the sandbox may reach. s.mu is held.
func (s *sandbox) policy() *network.Policy {
	p, err := network.ParsePolicy(s.rec.Allow, s.rec.Deny)
	if err != nil { // of a version that did not read them
		s.d.log.Warn("rules of a sandbox are not usable, it reaches nothing", slog.String("id", string(s.id)), slog.Any("err", err))
		p, _ = network.ParsePolicy(nil, []string{"*"})
	}
	return p
}

// network makes the sandbox's own network usable, which there is from the first start
// on. A server before this one may have ended before it had.
func (s *sandbox) network(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock() // one of several first starts makes it
	if s.rec.Network != driver.NetworkOwn || s.usesNetwork && !s.waitsForWay() {
		return nil
	}
	info, err := s.d.cfg.Engine.Network(ctx, s.container.ID)
	if err != nil {
		return fault(err)
	}
	if err := s.connect(info); err != nil {
		return fmt.Errorf("network of sandbox %s: %w", s.id, err)
	}
	s.container, s.usesNetwork = info, true
	return nil
}

// waitsForWay reports whether the network leads nowhere because none could, and could
// now. s.mu is held.
func (s *sandbox) waitsForWay() bool { return s.lacksWay && s.d.out.Unable() == nil }

// connect configures the network of a container. s.mu is held.
func (s *sandbox) connect(info container.Info) error {
	space, err := openSpace(info)
	if err != nil {
		return err
	}
	policy, unable := s.policy(), s.d.out.Unable() != nil
	s.lacksWay = unable
	if policy.Closed() || unable || s.d.over.Load() {
		err := space.Loopback()
		if err == nil {
			s.openDoors(space)
		}
		return errors.Join(err, space.Close())
	}
	if s.way, err = s.d.out.Open(space, policy); err == nil {
		s.openDoors(space)
	}
	return err
}

// openDoors has programs inside find envd on localhost, if theirs is a sandbox of E2B's, and what belongs to its start
// command. A program may have taken the port while no server ran: it fools its own sandbox alone. s.mu is held.
func (s *sandbox) openDoors(space *network.Space) {
	if s.d.cfg.Door == nil || len(s.doors) > 0 || s.d.over.Load() {
		return
	}
	for port, wanted := range map[uint16]bool{route.EnvdPort: s.rec.E2BTemplate != "",
		s.d.cfg.WarmPort: s.d.cfg.WarmPort != 0 && s.rec.StartCommand == s.d.cfg.WarmStart} {
		if !wanted {
			continue
		}
		l, err := space.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
		if err != nil {
			s.d.log.Info("programs of a sandbox do not find a port of the server on localhost", slog.String("id", string(s.id)),
				slog.Int("port", int(port)), slog.Any("err", err))
			continue
		}
		s.doors = append(s.doors, l)
		s.d.cfg.Door(s.id, l)
	}
}

// applyRules has the network follow rules that were changed.
func (s *sandbox) applyRules() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.way != nil:
		s.way.SetPolicy(s.policy())
	case s.usesNetwork && !s.gone:
		return s.connect(s.container)
	}
	return nil
}

// disconnect ends the way out.
func (s *sandbox) disconnect() {
	s.mu.Lock()
	way, doors := s.way, s.doors
	s.way, s.doors, s.usesNetwork = nil, nil, false
	s.mu.Unlock()
	for _, door := range doors {
		_ = door.Close()
	}
	if way == nil {
		return
	}
	if err := way.Close(); err != nil {
		s.d.log.Warn("network of a sandbox is not closed", slog.String("id", string(s.id)), slog.Any("err", err))
	}
}

// reconnect gives sandboxes whose way out was another server's one of this server.
func (d *Driver) reconnect(ctx context.Context) {
	for _, s := range d.containers.All() {
		s.mu.Lock()
		needed := s.container.Network && !s.usesNetwork && !s.gone && !s.hidden && s.rec.live()
		s.mu.Unlock()
		if !needed || ctx.Err() != nil {
			continue
		}
		if err := s.network(ctx); err != nil {
			d.log.Warn("sandbox has no way out", slog.String("id", string(s.id)), slog.Any("err", err))
		}
	}
}

// disconnectAll ends all ways out, for good.
func (d *Driver) disconnectAll() {
	d.over.Store(true)
	for _, s := range d.containers.All() {
		s.disconnect()
	}
}

// rules keeps the rules of a network in the record.
func (r *record) rules(n *driver.Network) {
	r.Allow, r.Deny = slices.Clone(n.Allow), slices.Clone(n.Deny)
}
