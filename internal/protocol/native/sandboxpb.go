package native

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
)

// The driver checks the limits of what these make; an enum that is out of its range
// would lose bits before, so it is clamped to one that the driver refuses.
func small[M ~int32](v M) uint8 { return uint8(min(uint32(v), 255)) }

// fromNow is the time a duration from now; absent is nil, and 0 the zero time.
func fromNow(field string, m *durationpb.Duration) (*time.Time, error) {
	if m == nil {
		return nil, nil
	}
	d, err := duration(field, m)
	if err != nil || d == 0 {
		return new(time.Time), err
	}
	t := time.Now().Add(d)
	return &t, nil
}

// duration is one that drivers can take.
func duration(field string, m *durationpb.Duration) (time.Duration, error) {
	d, err := tendpb.ToDuration(field, m)
	if err == nil && (d < 0 || d > driver.MaxTTL) {
		err = &driver.InvalidError{Field: field, Reason: "is " + d.String() + "; 0 (never) to " + driver.MaxTTL.String() + " are allowed"}
	}
	return d, err
}

func toSandboxSpec(m *tendv1.SandboxSpec) (driver.Spec, error) {
	s := driver.Spec{
		Name: m.GetName(), Snapshot: m.GetSnapshot(), Template: m.GetTemplate(), Image: m.GetImage(),
		Isolation: driver.Isolation(small(m.GetIsolation())),
		Run:       toRun(m.GetRun()), Disposable: m.GetDisposable(), AtDeadline: driver.Action(small(m.GetAtTimeout())), Wake: m.GetWake(),
		Network: toNetwork(m.GetNetwork()), Metadata: m.GetMetadata(),
		Size: driver.Size{CPUs: m.GetSize().GetCpus(), Memory: m.GetSize().GetMemory(), Disk: m.GetSize().GetDisk(),
			Tasks: m.GetSize().GetTasks()},
	}
	for _, v := range m.GetShares() {
		s.Shares = append(s.Shares, driver.Share{Source: v.GetSource(), Target: v.GetTarget(), ReadOnly: v.GetReadOnly(), Copy: v.GetCopy()})
	}
	var err error
	if s.IdleTTL, err = duration("idle_ttl", m.GetIdleTtl()); err != nil {
		return s, err
	}
	if s.DeleteAfterStop, err = duration("delete_after_stop", m.GetDeleteAfterStop()); err != nil {
		return s, err
	}
	deadline, err := fromNow("timeout", m.GetTimeout())
	if deadline != nil {
		s.Deadline = *deadline
	}
	return s, err
}

func toChange(m *tendv1.UpdateSandboxRequest) (driver.Change, error) {
	c := driver.Change{Name: m.Name, Metadata: m.GetMetadata()}
	for _, v := range []struct {
		field string
		m     *durationpb.Duration
		to    **time.Duration
	}{{"idle_ttl", m.GetIdleTtl(), &c.IdleTTL}, {"delete_after_stop", m.GetDeleteAfterStop(), &c.DeleteAfterStop}} {
		if v.m == nil {
			continue
		}
		d, err := duration(v.field, v.m)
		if err != nil {
			return c, err
		}
		*v.to = &d
	}
	var err error
	if c.Deadline, err = fromNow("timeout", m.GetTimeout()); err != nil {
		return c, err
	}
	if c.Extend, err = fromNow("extend", m.GetExtend()); err != nil {
		return c, err
	}
	if m.AtTimeout != nil {
		a := driver.Action(small(m.GetAtTimeout()))
		c.AtDeadline = &a
	}
	if m.GetNetwork() != nil {
		n := toNetwork(m.GetNetwork())
		c.Network = &n
	}
	if m.GetRun() != nil {
		r := toRun(m.GetRun())
		c.Run = &r
	}
	return c, nil
}

func toRun(m *tendv1.SandboxRun) driver.RunConfig {
	return driver.RunConfig{User: m.GetUser(), Dir: m.GetDir(), Env: m.GetEnv()}
}

func toNetwork(m *tendv1.SandboxNetwork) driver.Network {
	return driver.Network{Mode: driver.NetworkMode(small(m.GetMode())), Allow: m.GetAllow(), Deny: m.GetDeny(), Public: m.GetPublic()}
}

// sandbox converts to a message. Notes are not for callers, and Env is part of what
// another face was given.
func sandbox(i *driver.Info) *tendv1.Sandbox {
	m := &tendv1.Sandbox{
		Id: string(i.ID), Name: text(i.Name), State: tendv1.SandboxState(i.State), Reason: text(i.Reason),
		Run: &tendv1.SandboxRun{User: text(i.Run.User), Dir: text(i.Run.Dir), Env: texts(i.Run.Env)},
		Dir: text(cmp.Or(i.Run.Dir, i.Dir)), Disposable: i.Disposable,
		Snapshot: text(i.Snapshot), Template: text(i.Template), Image: text(i.Image), Isolation: tendv1.SandboxIsolation(i.Isolation),
		IdleTtl: durationpb.New(i.IdleTTL), DeleteAfterStop: durationpb.New(i.DeleteAfterStop), Deadline: tendpb.Time(i.Deadline),
		AtTimeout: tendv1.SandboxAction(i.AtDeadline), Wake: i.Wake,
		Size: &tendv1.SandboxSize{Cpus: i.Size.CPUs, Memory: i.Size.Memory, Disk: i.Size.Disk, Tasks: i.Size.Tasks},
		Network: &tendv1.SandboxNetwork{Mode: tendv1.SandboxNetworkMode(i.Network.Mode), Allow: i.Network.Allow, Deny: i.Network.Deny,
			Public: i.Network.Public},
		Metadata: texts(i.Metadata), Created: tendpb.Time(i.Created), Updated: tendpb.Time(i.Updated), Stopped: tendpb.Time(i.StoppedAt),
		Paused: tendpb.Time(i.PausedAt), Copied: i.Copied, ToCopy: i.ToCopy,
	}
	for _, v := range i.Shares {
		m.Shares = append(m.Shares, &tendv1.SandboxShare{Source: text(v.Source), Target: text(v.Target), ReadOnly: v.ReadOnly, Copy: v.Copy})
	}
	return m
}

func snapshot(s *driver.Snapshot) *tendv1.SandboxSnapshot {
	return &tendv1.SandboxSnapshot{
		Id: string(s.ID), Name: text(s.Name), State: tendv1.SandboxState(s.State), Reason: text(s.Reason),
		Sandbox: string(s.Sandbox), Bytes: s.Bytes, Created: tendpb.Time(s.Created),
	}
}

// text is what a message can hold: other faces may have taken bytes that are no text.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func texts(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[text(k)] = text(v)
	}
	return out
}
