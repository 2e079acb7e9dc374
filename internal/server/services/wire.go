package services

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/run"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// API answers the ServiceService with Services.
type API struct{ *Services }

// Apply implements native.Services.
func (a API) Apply(ctx context.Context, req *tendv1.ApplyServicesRequest) error {
	return a.Services.Apply(ctx, &File{
		Source: config.Source{Name: req.GetName(), Dir: req.GetDir(), Text: req.GetText(), EnvFiles: req.GetEnvFiles()},
		Env:    req.GetEnv(), Project: req.GetProject(),
	})
}

// List implements native.Services.
func (a API) List(ctx context.Context) (*tendv1.ListServicesResponse, error) {
	if a.trouble != nil {
		return nil, a.trouble
	}
	all, err := a.sup.List(ctx)
	if err != nil {
		return nil, away(err)
	}
	m := new(tendv1.ListServicesResponse)
	a.mu.Lock()
	for _, p := range a.projects {
		m.Projects = append(m.Projects, &tendv1.ServiceProject{Name: p.Name, File: p.File})
	}
	if p := a.plain(); p != nil {
		m.File = p.File
	}
	a.mu.Unlock()
	m.Services = a.messages(ctx, all) // which may wait for the keeper
	return m, nil
}

// Next implements native.Services.
func (a API) Next(ctx context.Context, after string) ([]*tendv1.ServiceStatus, string, error) {
	if a.trouble != nil {
		return nil, "", a.trouble
	}
	for version := uint64(0); ; {
		all, now, err := a.sup.Changes(ctx, version)
		if err != nil {
			return nil, "", away(err)
		}
		if sum := a.summary(all); sum != after {
			return a.messages(ctx, all), sum, nil
		}
		version = now
	}
}

// summary is another text when something has changed that people notice.
func (a API) summary(all []run.Status) string {
	b := new(strings.Builder)
	b.WriteByte('.') // never empty
	for i := range all {
		st := &all[i].State
		fmt.Fprintf(b, "%s %d %t %t %d %d %q", all[i].Name, st.Phase, st.Up, st.Ready, st.Run, st.Total, st.Why+st.Away+st.Starved)
		if rules := all[i].Rules; rules != nil {
			fmt.Fprintf(b, " %q %q", rules.Sandbox, rules.Sockets)
		}
		if a.c.Healer != nil {
			if st, episode, ok := a.c.Healer.Of(all[i].Name); ok {
				fmt.Fprintf(b, " %v %s", st, episode)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (a API) messages(ctx context.Context, all []run.Status) []*tendv1.ServiceStatus {
	out := make([]*tendv1.ServiceStatus, len(all))
	for i := range all {
		one, st := &all[i], &all[i].State
		m := &tendv1.ServiceStatus{
			Name: one.Name, Phase: tendv1.ServicePhase(st.Phase + 1), Up: st.Up, Ready: st.Ready, Why: strings.ToValidUTF8(why(st), "\ufffd"),
			Process: string(one.ID), Run: st.Run, Restarts: st.Total, Age: durationpb.New(one.Age),
			Project: a.projectOf(one.Name),
		}
		m.Adopted = st.Adopted != nil
		if by := st.AdoptedBy; by != nil && by.PIDFile != "" {
			m.AdoptedBy = &tendv1.ServiceStatus_AdoptedPidFile{AdoptedPidFile: strings.ToValidUTF8(by.PIDFile, "\ufffd")}
		} else if by != nil {
			m.AdoptedBy = &tendv1.ServiceStatus_AdoptedPort{AdoptedPort: uint32(by.Port)}
		}
		for _, p := range st.Probes {
			m.Failures = max(m.Failures, uint32(max(0, p.Failures)))
		}
		if rules := one.Rules; rules != nil {
			m.Sandbox = rules.Sandbox
			for _, k := range rules.Sockets {
				m.Sockets = append(m.Sockets, &tendv1.ServiceSocket{Name: k.Name, Address: strings.ToValidUTF8(string(k.Listen), "\ufffd")})
			}
		}
		if a.c.Healer != nil {
			if known, episode, ok := a.c.Healer.Of(one.Name); ok {
				m.Healing, m.Episode = tendv1.HealStatus(known+1), episode
			}
		}
		if st.Exit != nil {
			m.Exit = tendpb.Exit(st.Exit)
		}
		if one.Next > 0 {
			m.Next = durationpb.New(one.Next)
		}
		if st.Phase.Alive() {
			m.Pid = a.pid(ctx, one)
		}
		out[i] = m
	}
	return out
}

// why says in what way a service is not as it should be.
func why(st *supervisor.State) string {
	text := trouble(st)
	switch {
	case st.Phase != supervisor.Running || st.Starved == "":
		return text
	case text == "":
		return st.Starved
	}
	return text + "; " + st.Starved
}

func trouble(st *supervisor.State) string {
	if st.Phase == supervisor.Running && st.Away != "" {
		return st.Away
	}
	if st.Phase != supervisor.Running || st.Ready {
		return st.Why
	}
	for _, p := range st.Probes {
		if p.Text != "" {
			return p.Text
		}
	}
	return st.Why
}

// pid of a service; 0: it is not known.
func (a API) pid(ctx context.Context, s *run.Status) uint32 {
	if adopted := s.State.Adopted; adopted != nil {
		return uint32(adopted.PID)
	}
	p, err := a.c.Manager.Get(ctx, process.Selector{ID: s.ID})
	if err != nil {
		return 0
	}
	in, err := p.Info(ctx)
	if err != nil || in.Exit != nil {
		return 0
	}
	return uint32(in.PID)
}

// errNoHealer: this server repairs nothing.
var errNoHealer = fmt.Errorf("nothing is repaired by this server: %w", process.ErrUnsupported)

// Episodes implements native.Services.
func (a API) Episodes(ctx context.Context, service string) ([]*tendv1.Episode, error) {
	if a.c.Healer == nil {
		return nil, errNoHealer
	}
	return a.c.Healer.List(ctx, service)
}

// Episode implements native.Services.
func (a API) Episode(ctx context.Context, id string) (*tendv1.GetEpisodeResponse, error) {
	if a.c.Healer == nil {
		return nil, errNoHealer
	}
	return a.c.Healer.Get(ctx, id)
}

// WatchEpisode implements native.Services.
func (a API) WatchEpisode(ctx context.Context, id string, from int64, send func(*tendv1.WatchEpisodeResponse) error) error {
	if a.c.Healer == nil {
		return errNoHealer
	}
	return a.c.Healer.Watch(ctx, id, from, send)
}

// Heal implements native.Services.
func (a API) Heal(ctx context.Context, service string, dry bool) (string, error) {
	if a.c.Healer == nil {
		return "", errNoHealer
	}
	return a.c.Healer.Heal(ctx, service, dry)
}

// Held implements native.Services.
func (a API) Held(ctx context.Context, hash string, discard bool) (string, error) {
	if a.c.Healer == nil {
		return "", errNoHealer
	}
	id, err := a.c.Healer.Held(ctx, hash, discard)
	return id, changed(err)
}

// RollBack implements native.Services.
func (a API) RollBack(ctx context.Context, id string) (string, error) {
	if a.c.Healer == nil {
		return "", errNoHealer
	}
	back, err := a.c.Healer.RollBack(ctx, id)
	return back, changed(err)
}

func changed(err error) error {
	if e, ok := errors.AsType[*healer.ChangedError](err); ok {
		return &tendpb.ChangedError{Text: e.Why, Paths: e.Paths}
	}
	return err
}

// CancelHeal implements native.Services.
func (a API) CancelHeal(ctx context.Context, id string) error {
	if a.c.Healer == nil {
		return errNoHealer
	}
	return a.c.Healer.Cancel(ctx, id)
}
