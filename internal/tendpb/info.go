package tendpb

import (
	"strings"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// Info converts to a message.
func Info(i *process.Info) *tendv1.Info {
	return &tendv1.Info{
		Id: text(string(i.ID)), Pid: uint32(i.PID), Spec: Spec(&i.Spec), State: tendv1.State(i.State),
		Started: Time(i.Started), Exit: Exit(i.Exit), TreeGone: i.TreeGone, Pinned: i.Pinned, SpecCut: i.SpecCut,
		Damaged: text(i.Damaged), Session: uint32(i.Session),
		Stdin: &tendv1.StdinInfo{Open: i.Stdin.Open, Accepted: i.Stdin.Accepted}, Streams: streams(i.Streams),
	}
}

func streams(all []process.StreamInfo) (m []*tendv1.StreamInfo) {
	for _, s := range all {
		m = append(m, &tendv1.StreamInfo{Stream: tendv1.Stream(s.Stream), Base: s.Base, End: s.End, Eof: s.EOF})
	}
	return m
}

func toStreams(m []*tendv1.StreamInfo) (all []process.StreamInfo) {
	for _, s := range m {
		all = append(all, process.StreamInfo{Stream: process.Stream(s.GetStream()), Base: s.GetBase(), End: s.GetEnd(), EOF: s.GetEof()})
	}
	return all
}

// ToInfo converts from a message.
func ToInfo(m *tendv1.Info) (process.Info, error) {
	spec, err := ToSpec(m.GetSpec())
	if err != nil {
		return process.Info{}, err
	}
	return process.Info{
		ID: process.ID(m.GetId()), PID: int(m.GetPid()), Spec: spec, State: process.State(m.GetState()),
		Started: ToTime(m.GetStarted()), Exit: ToExit(m.GetExit()), TreeGone: m.GetTreeGone(), Pinned: m.GetPinned(),
		SpecCut: m.GetSpecCut(), Damaged: m.GetDamaged(), Session: int(m.GetSession()),
		Stdin: process.StdinInfo{Open: m.GetStdin().GetOpen(), Accepted: m.GetStdin().GetAccepted()}, Streams: toStreams(m.GetStreams()),
	}, nil
}

// Exit converts to a message; nil stays nil.
func Exit(e *process.Exit) *tendv1.Exit {
	if e == nil {
		return nil
	}
	return &tendv1.Exit{
		Code: int32(e.Code), Signal: int32(e.Signal), CoreDumped: e.CoreDumped, Cause: tendv1.Cause(e.Cause),
		Time: Time(e.Time), UserTime: duration(e.UserTime), SystemTime: duration(e.SystemTime), MaxRss: e.MaxRSS,
		Lost: e.Lost(),
	}
}

// ToExit converts from a message; nil stays nil.
func ToExit(m *tendv1.Exit) *process.Exit {
	if m == nil {
		return nil
	}
	return &process.Exit{
		Code: int(m.GetCode()), Signal: int(m.GetSignal()), CoreDumped: m.GetCoreDumped(), Cause: process.Cause(m.GetCause()),
		Time: ToTime(m.GetTime()), UserTime: m.GetUserTime().AsDuration(), SystemTime: m.GetSystemTime().AsDuration(), MaxRSS: m.GetMaxRss(),
	}
}

// Selector converts to a message.
func Selector(s process.Selector) *tendv1.Selector {
	switch {
	case s.ID != "":
		return &tendv1.Selector{By: &tendv1.Selector_Id{Id: text(string(s.ID))}}
	case s.PID > 0:
		return &tendv1.Selector{By: &tendv1.Selector_Pid{Pid: uint32(s.PID)}}
	case s.Tag != "":
		return &tendv1.Selector{By: &tendv1.Selector_Tag{Tag: text(s.Tag)}}
	case s.Name != "":
		return &tendv1.Selector{By: &tendv1.Selector_Name{Name: text(s.Name)}}
	case s.Any != "":
		return &tendv1.Selector{By: &tendv1.Selector_Any{Any: text(s.Any)}}
	}
	return &tendv1.Selector{}
}

// ToSelector converts from a message. A selector that names nothing is wrong.
func ToSelector(m *tendv1.Selector) (process.Selector, error) {
	var s process.Selector
	switch by := m.GetBy().(type) {
	case *tendv1.Selector_Id:
		s.ID = process.ID(by.Id)
	case *tendv1.Selector_Pid:
		if by.Pid > 1<<31-1 {
			return s, invalid("process.pid", "is %d; no kernel has such a pid", by.Pid)
		}
		s.PID = int(by.Pid)
	case *tendv1.Selector_Tag:
		s.Tag = by.Tag
	case *tendv1.Selector_Name:
		s.Name = by.Name
	case *tendv1.Selector_Any:
		s.Any = by.Any
	}
	if s == (process.Selector{}) {
		return s, invalid("selector", "names no process; give an id, pid, tag or name")
	}
	if n := len(s.ID) + len(s.Tag) + len(s.Name) + len(s.Any); n > process.MaxTagLen {
		return s, invalid("process", "has a selector of %d bytes; the limit is %d", n, process.MaxTagLen)
	}
	return s, nil
}

// Filter converts to a message.
func Filter(f process.Filter) *tendv1.ListRequest {
	return &tendv1.ListRequest{Live: f.Live, Tag: text(f.Tag), Labels: textMap(f.Labels)}
}

// ToFilter converts from a message.
func ToFilter(m *tendv1.ListRequest) (process.Filter, error) {
	if n := len(m.GetLabels()); n > process.MaxLabels {
		return process.Filter{}, invalid("labels", "has %d entries; the limit is %d", n, process.MaxLabels)
	}
	return process.Filter{Live: m.GetLive(), Tag: m.GetTag(), Labels: m.GetLabels()}, nil
}

// KillResult converts to a message.
func KillResult(r process.KillResult) *tendv1.KillResponse {
	m := &tendv1.KillResponse{Verified: r.Verified, Survivors: numbers[uint32](r.Survivors), Strays: numbers[uint32](r.Strays)}
	for pid, name := range r.Names {
		if m.Names == nil {
			m.Names = map[uint32]string{}
		}
		m.Names[uint32(pid)] = strings.ToValidUTF8(name, "?")
	}
	return m
}

// ToKillResult converts from a message.
func ToKillResult(m *tendv1.KillResponse) process.KillResult {
	r := process.KillResult{Verified: m.GetVerified(), Survivors: numbers[int](m.GetSurvivors()), Strays: numbers[int](m.GetStrays())}
	for pid, name := range m.GetNames() {
		if r.Names == nil {
			r.Names = map[int]string{}
		}
		r.Names[int(pid)] = name
	}
	return r
}

func numbers[T, F int | uint32](from []F) (to []T) {
	for _, n := range from {
		to = append(to, T(n))
	}
	return to
}

// MaxPattern bounds the regular expression of a wait, in bytes.
const MaxPattern = 4 << 10

// Until converts to a message.
func Until(u process.Until) *tendv1.WaitRequest {
	m := &tendv1.WaitRequest{}
	switch {
	case u.Quiet != 0:
		m.Until = &tendv1.WaitRequest_Quiet{Quiet: duration(u.Quiet)}
	case u.Match != "":
		m.Until = &tendv1.WaitRequest_Match_{Match: &tendv1.WaitRequest_Match{Pattern: text(u.Match), From: Offsets(u.From)}}
	case u.Port != 0:
		m.Until = &tendv1.WaitRequest_Port{Port: uint32(u.Port)}
	case u.Input:
		m.Until = &tendv1.WaitRequest_Input{Input: true}
	case u.TreeGone:
		m.Until = &tendv1.WaitRequest_TreeGone{TreeGone: true}
	case u.EOF:
		m.Until = &tendv1.WaitRequest_Eof{Eof: true}
	}
	return m
}

// ToUntil converts from a message.
func ToUntil(m *tendv1.WaitRequest) (process.Until, error) {
	var u process.Until
	switch until := m.GetUntil().(type) {
	case *tendv1.WaitRequest_Quiet:
		d, err := ToDuration("quiet", until.Quiet)
		if err != nil {
			return u, err
		}
		if d <= 0 || d > process.MaxTimeout {
			return u, invalid("quiet", "is %v; more than 0 and at most %v are allowed", d, process.MaxTimeout)
		}
		u.Quiet = d
	case *tendv1.WaitRequest_Match_:
		u.Match = until.Match.GetPattern()
		if u.Match == "" || len(u.Match) > MaxPattern {
			return u, invalid("match", "has %d bytes; 1 to %d are allowed", len(u.Match), MaxPattern)
		}
		var err error
		if u.From, err = ToOffsets("match.from", until.Match.GetFrom()); err != nil {
			return u, err
		}
	case *tendv1.WaitRequest_Port:
		if until.Port == 0 || until.Port > 65535 {
			return u, invalid("port", "is %d; 1 to 65535 are allowed", until.Port)
		}
		u.Port = int(until.Port)
	case *tendv1.WaitRequest_Input:
		u.Input = until.Input
	case *tendv1.WaitRequest_TreeGone:
		u.TreeGone = until.TreeGone
	case *tendv1.WaitRequest_Eof:
		u.EOF = until.Eof
	}
	return u, nil
}

// WaitResult converts to a message.
func WaitResult(r *process.WaitResult) *tendv1.WaitResult {
	m := &tendv1.WaitResult{Exit: Exit(r.Exit), Met: r.Met, Match: []byte(r.Match), Stream: tendv1.Stream(r.Stream),
		Offset: r.Offset, Input: tendv1.InputState(r.Input), Streams: streams(r.Streams)}
	for _, l := range r.Listening {
		m.Listening = append(m.Listening, &tendv1.Listener{Address: l.Address, Pid: uint32(l.PID)})
	}
	return m
}

// ToWaitResult converts from a message.
func ToWaitResult(m *tendv1.WaitResult) process.WaitResult {
	r := process.WaitResult{Exit: ToExit(m.GetExit()), Met: m.GetMet(), Match: string(m.GetMatch()), Stream: process.Stream(m.GetStream()),
		Offset: m.GetOffset(), Input: process.InputState(m.GetInput()), Streams: toStreams(m.GetStreams())}
	for _, l := range m.GetListening() {
		r.Listening = append(r.Listening, process.Listener{Address: l.GetAddress(), PID: int(l.GetPid())})
	}
	return r
}

// MaxChunk bounds the data of one output event, in bytes.
const MaxChunk = 1 << 20

// ReadOptions converts to a message.
func ReadOptions(o process.ReadOptions) *tendv1.ReadRequest {
	return &tendv1.ReadRequest{Streams: streamNames(o.Streams), From: Offsets(o.From), NoFollow: o.NoFollow, Unordered: o.Unordered,
		Drain: duration(o.Drain), MaxChunk: uint32(max(0, o.MaxChunk)), ExactTimes: o.ExactTimes, Sizes: o.Sizes}
}

// ToReadOptions converts from a message.
func ToReadOptions(m *tendv1.ReadRequest) (o process.ReadOptions, err error) {
	o = process.ReadOptions{NoFollow: m.GetNoFollow(), Unordered: m.GetUnordered(), MaxChunk: int(m.GetMaxChunk()),
		ExactTimes: m.GetExactTimes(), Sizes: m.GetSizes()}
	if m.GetMaxChunk() > MaxChunk {
		return o, invalid("max_chunk", "is %d bytes; 1 to %d are allowed, 0 for the default", m.GetMaxChunk(), MaxChunk)
	}
	if o.Streams, err = toStreamNames(m.GetStreams()); err != nil {
		return o, err
	}
	if o.Drain, err = ToDuration("drain", m.GetDrain()); err != nil {
		return o, err
	}
	o.Drain = min(o.Drain, process.MaxTimeout)
	o.From, err = ToOffsets("from", m.GetFrom())
	return o, err
}

func streamNames(list []process.Stream) (out []tendv1.Stream) {
	for _, s := range list {
		out = append(out, tendv1.Stream(s))
	}
	return out
}

// toStreamNames converts a choice of output streams.
func toStreamNames(list []tendv1.Stream) (out []process.Stream, err error) {
	if len(list) > 3 {
		return nil, invalid("streams", "has %d entries; there are 3 streams of output", len(list))
	}
	for _, s := range list {
		st, err := Stream("streams", s)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// Offsets converts to messages; streams at 0 are left out.
func Offsets(from [4]int64) (out []*tendv1.StreamOffset) {
	for s, at := range from {
		if at != 0 {
			out = append(out, &tendv1.StreamOffset{Stream: tendv1.Stream(s), Offset: at})
		}
	}
	return out
}

// ToOffsets converts from messages.
func ToOffsets(field string, from []*tendv1.StreamOffset) (out [4]int64, err error) {
	for _, f := range from {
		s, err := Stream(field+".stream", f.GetStream())
		if err != nil {
			return out, err
		}
		if f.GetOffset() < process.FromNow {
			return out, invalid(field, "of %s is %d; an offset is 0 or more, or -1 for the end", s, f.GetOffset())
		}
		out[s] = f.GetOffset()
	}
	return out, nil
}

// Heartbeat is the longest silence of a stream of the native API. A client
// that hears nothing for three of them treats the connection as dead.
const Heartbeat = 15 * time.Second
