package tendpb

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func invalid(field, format string, args ...any) error {
	return &process.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// CheckText reports the first text of the spec that the wire cannot carry, or that
// our own face does not take: names, tags, users and labels are text, and names and
// tags, which lists show on one line, have no control characters. Arguments,
// environment and directories may be any bytes. Other faces take the tags that
// their protocols take.
func CheckText(s *process.Spec) error {
	for _, f := range []struct{ name, v string }{{"id", string(s.ID)}, {"name", s.Name}, {"tag", s.Tag}, {"user", s.User}} {
		if !utf8.ValidString(f.v) {
			return invalid(f.name, "is not valid UTF-8")
		}
	}
	for _, f := range []struct{ name, v string }{{"name", s.Name}, {"tag", s.Tag}} {
		if i := strings.IndexFunc(f.v, unicode.IsControl); i >= 0 {
			r, _ := utf8.DecodeRuneInString(f.v[i:])
			return invalid(f.name, "has the control character %U at byte %d", r, i)
		}
	}
	for k, v := range s.Labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("labels", "has the entry %.100q=%.100q, which is not valid UTF-8", k, v)
		}
	}
	return nil
}

// text makes a string fit for a proto string field.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func textMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[text(k)] = text(v)
	}
	return out
}

// Spec converts to a message.
func Spec(s *process.Spec) *tendv1.Spec {
	m := &tendv1.Spec{
		Id: text(string(s.ID)), Name: text(s.Name), Tag: text(s.Tag), User: text(s.User),
		Inherit: tendv1.Inherit(s.Inherit), Stdin: tendv1.StdinMode(s.Stdin),
		Timeout: duration(s.Timeout), TimeoutScope: tendv1.Scope(s.TimeoutScope),
		KillWithoutReaders: duration(s.KillWithoutReaders), Labels: textMap(s.Labels), HiddenEnv: s.HiddenEnv,
	}
	if m.Argv = s.Argv; slices.ContainsFunc(s.Argv, func(a string) bool { return !utf8.ValidString(a) }) {
		m.Argv = nil
		for _, a := range s.Argv {
			m.RawArgv = append(m.RawArgv, []byte(a))
		}
	}
	if utf8.ValidString(s.Shell) {
		m.Shell = s.Shell
	} else {
		m.RawShell = []byte(s.Shell)
	}
	if utf8.ValidString(s.Dir) {
		m.Dir = s.Dir
	} else {
		m.RawDir = []byte(s.Dir)
	}
	for k, v := range s.Env {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			m.RawEnv = append(m.RawEnv, &tendv1.Spec_RawVariable{Name: []byte(k), Value: []byte(v)})
			continue
		}
		if m.Env == nil {
			m.Env = make(map[string]string, len(s.Env))
		}
		m.Env[k] = v
	}
	if s.PTY != nil {
		m.Pty = Size(*s.PTY)
	}
	l := &s.Limits
	if len(l.Rlimits) > 0 || l.Nice != 0 || l.OOMScoreAdj != 0 || l.MemoryMax != 0 || l.PidsMax != 0 || l.CPUWeight != 0 || l.CPUs != 0 {
		m.Limits = &tendv1.Limits{Nice: int32(l.Nice), OomScoreAdj: int32(l.OOMScoreAdj), MemoryMax: l.MemoryMax, PidsMax: l.PidsMax,
			CpuWeight: l.CPUWeight, Cpus: l.CPUs}
		for _, r := range l.Rlimits {
			m.Limits.Rlimits = append(m.Limits.Rlimits, &tendv1.Rlimit{Resource: uint32(r.Resource), Soft: r.Soft, Hard: r.Hard})
		}
	}
	if s.Retention != (process.Retention{}) {
		m.Retention = &tendv1.Retention{Limit: s.Retention.Limit, Policy: tendv1.RetentionPolicy(s.Retention.Policy),
			Ttl: duration(s.Retention.TTL), Sync: tendv1.Sync(s.Retention.Sync), Pin: s.Retention.Pin}
	}
	return m
}

// ToSpec converts from a message. [process.Spec.Validate] decides whether the spec
// makes sense.
func ToSpec(m *tendv1.Spec) (process.Spec, error) {
	s := process.Spec{
		ID: process.ID(m.GetId()), Name: m.GetName(), Tag: m.GetTag(), User: m.GetUser(),
		Argv: m.GetArgv(), Shell: m.GetShell(), Dir: m.GetDir(), Env: m.GetEnv(), Labels: m.GetLabels(), HiddenEnv: m.GetHiddenEnv(),
	}
	if raw := m.GetRawArgv(); len(raw) > 0 {
		s.Argv = nil
		for _, a := range raw {
			s.Argv = append(s.Argv, string(a))
		}
	}
	if raw := m.GetRawShell(); len(raw) > 0 {
		s.Shell = string(raw)
	}
	if raw := m.GetRawDir(); len(raw) > 0 {
		s.Dir = string(raw)
	}
	for _, v := range m.GetRawEnv() {
		if s.Env == nil {
			s.Env = make(map[string]string)
		}
		s.Env[string(v.GetName())] = string(v.GetValue())
	}
	var err error
	s.Inherit, err = enum[process.Inherit](err, "inherit", m.GetInherit(), process.InheritNone)
	s.Stdin, err = enum[process.StdinMode](err, "stdin", m.GetStdin(), process.StdinPipe)
	s.TimeoutScope, err = enum[process.Scope](err, "timeout_scope", m.GetTimeoutScope(), process.ScopeGroup)
	s.Retention.Policy, err = enum[process.RetentionPolicy](err, "retention.policy", m.GetRetention().GetPolicy(), process.Block)
	s.Retention.Sync, err = enum[process.Sync](err, "retention.sync", m.GetRetention().GetSync(), process.SyncInterval)
	if err != nil {
		return s, err
	}
	for _, f := range []struct {
		field string
		from  *durationpb.Duration
		to    *time.Duration
	}{
		{"timeout", m.GetTimeout(), &s.Timeout},
		{"kill_without_readers", m.GetKillWithoutReaders(), &s.KillWithoutReaders},
		{"retention.ttl", m.GetRetention().GetTtl(), &s.Retention.TTL},
	} {
		if *f.to, err = ToDuration(f.field, f.from); err != nil {
			return s, err
		}
	}
	s.Retention.Limit = m.GetRetention().GetLimit()
	s.Retention.Pin = m.GetRetention().GetPin()
	if m.GetPty() != nil {
		size, err := ToSize("pty", m.GetPty())
		if err != nil {
			return s, err
		}
		s.PTY = &size
	}
	l := m.GetLimits()
	s.Limits = process.Limits{Nice: int(l.GetNice()), OOMScoreAdj: int(l.GetOomScoreAdj()), MemoryMax: l.GetMemoryMax(),
		PidsMax: l.GetPidsMax(), CPUWeight: l.GetCpuWeight(), CPUs: l.GetCpus()}
	for i, r := range l.GetRlimits() {
		if r.GetResource() > math.MaxInt32 {
			return s, invalid(fmt.Sprintf("limits.rlimits[%d].resource", i), "is %d; 0 to 15 are allowed", r.GetResource())
		}
		s.Limits.Rlimits = append(s.Limits.Rlimits, process.Rlimit{Resource: int(r.GetResource()), Soft: r.GetSoft(), Hard: r.GetHard()})
	}
	return s, nil
}

// enum converts a number of the wire, unless an earlier one was wrong.
func enum[T ~uint8, M ~int32](err error, field string, v M, max T) (T, error) {
	if err != nil {
		return 0, err
	}
	if v < 0 || int64(v) > int64(max) {
		return 0, invalid(field, "has the unknown value %d; the largest is %d", v, max)
	}
	return T(v), nil
}

// Scope converts a scope from the wire.
func Scope(v tendv1.Scope) (process.Scope, error) {
	return enum[process.Scope](nil, "scope", v, process.ScopeGroup)
}

// Stream converts a stream of output from the wire.
func Stream(field string, v tendv1.Stream) (process.Stream, error) {
	if v < tendv1.Stream(process.Stdout) || v > tendv1.Stream(process.PTY) {
		return 0, invalid(field, "is %d; stdout (1), stderr (2) and pty (3) can be read", v)
	}
	return process.Stream(v), nil
}

// Size converts to a message.
func Size(s process.Size) *tendv1.Size {
	return &tendv1.Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}
}

// ToSize converts from a message.
func ToSize(field string, m *tendv1.Size) (process.Size, error) {
	if m.GetCols() > process.MaxTermSide || m.GetRows() > process.MaxTermSide {
		return process.Size{}, invalid(field, "is %dx%d; at most %d columns and rows are allowed", m.GetCols(), m.GetRows(), process.MaxTermSide)
	}
	return process.Size{Cols: uint16(m.GetCols()), Rows: uint16(m.GetRows())}, nil
}

// ToDuration converts from a message; absent is 0.
func ToDuration(field string, m *durationpb.Duration) (time.Duration, error) {
	if m == nil {
		return 0, nil
	}
	// AsDuration saturates where 64 bits of nanoseconds end, after 292 years.
	if err := m.CheckValid(); err != nil {
		return 0, invalid(field, "is no valid duration: %v", err)
	}
	return m.AsDuration(), nil
}

func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Time converts to a message; the zero time is absent.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ToTime converts from a message; absent is the zero time.
func ToTime(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}
