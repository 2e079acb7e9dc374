package tend

import (
	"fmt"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// ProtocolError is returned when a server sends data that no tend sends, because it is
// broken or hostile. None of that data is passed on.
type ProtocolError struct {
	What string // "the pid -1"
}

func (e *ProtocolError) Error() string {
	return "the server sent " + tendpb.CleanText(e.What) + "; it is damaged, or no tend server"
}

func strange(format string, args ...any) error {
	return &ProtocolError{fmt.Sprintf(format, args...)}
}

// RedirectError is returned when a server answers with another address. It is
// not followed: the token would go to that address, too.
type RedirectError struct {
	URL      string // that was called
	Location string // where the server points to
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s sends its callers to %s; that is not followed, as the token would go along: give that URL instead, if it is meant",
		e.URL, tendpb.CleanName(e.Location))
}

// Bounds of what a server may send. They are far above what one does.
const (
	maxResponse  = 32 << 20 // bytes of one message
	maxListed    = 1 << 20  // processes of one list, in Client.listed
	maxData      = 4 << 20  // bytes of one output event
	maxSurvivors = 1 << 20
	maxOffset    = int64(1) << 60
)

// toInfo reads and checks what the server reports about a process; want, if it is
// set, is its id.
func toInfo(m *tendv1.Info, want process.ID) (process.Info, error) {
	i, err := tendpb.ToInfo(m)
	if err != nil {
		return i, err
	}
	if err := i.ID.Validate(); err != nil {
		return process.Info{}, strange("a process whose %v", err)
	}
	if want != "" && i.ID != want {
		return process.Info{}, strange("the process %s when it was asked for %s", i.ID, want)
	}
	if i.PID < 0 || i.PID > 1<<31-1 {
		return process.Info{}, strange("the pid %d", i.PID)
	}
	if i.Stdin.Accepted < 0 || i.Stdin.Accepted > maxOffset {
		return process.Info{}, strange("%d as the bytes of input", i.Stdin.Accepted)
	}
	if err := checkExit(i.Exit); err != nil {
		return process.Info{}, err
	}
	if err := checkStreams(i.Streams); err != nil {
		return process.Info{}, err
	}
	// Names are shown on one line, and are no data of the process.
	i.Spec.ID = process.ID(tendpb.CleanName(string(i.Spec.ID)))
	i.Spec.Name, i.Spec.Tag, i.Spec.User = tendpb.CleanName(i.Spec.Name), tendpb.CleanName(i.Spec.Tag), tendpb.CleanName(i.Spec.User)
	return i, nil
}

func checkStreams(all []process.StreamInfo) error {
	if len(all) > 3 {
		return strange("a process with %d streams", len(all))
	}
	for _, s := range all {
		if s.Stream < process.Stdout || s.Stream > process.PTY || s.Base < 0 || s.End < s.Base || s.End > maxOffset {
			return strange("a stream %d that goes from %d to %d", s.Stream, s.Base, s.End)
		}
	}
	return nil
}

func checkExit(e *process.Exit) error {
	if e != nil && (e.Code < -1<<31 || e.Code > 1<<31-1 || e.Signal < 0 || e.Signal > 127) {
		return strange("an exit with code %d and signal %d", e.Code, e.Signal)
	}
	return nil
}

// checkEvent checks what holds for each event by itself.
func checkEvent(ev *process.Event) error {
	if ev.ID != "" {
		if err := ev.ID.Validate(); err != nil {
			return strange("an event whose %v", err)
		}
	}
	switch {
	case ev.PID < 0 || ev.PID > 1<<31-1:
		return strange("the pid %d", ev.PID)
	case ev.Offset < 0 || ev.Offset > maxOffset:
		return strange("the offset %d", ev.Offset)
	case len(ev.Data) > maxData:
		return strange("%d bytes of output at once", len(ev.Data))
	case ev.Kind == process.EventOutput && ev.Stream == process.Stdin:
		return strange("output of stdin")
	case ev.Kind == process.EventGap && (ev.Gap.From < 0 || ev.Gap.To <= ev.Gap.From || ev.Gap.To > maxOffset):
		return strange("a gap from %d to %d", ev.Gap.From, ev.Gap.To)
	}
	return checkExit(ev.Exit)
}

// checkRange checks where something that is shown lies in a stream.
func checkRange(s process.Stream, from, to int64) error {
	if s > process.PTY || from < 0 || to < from || to > maxOffset {
		return strange("something of stream %d that goes from %d to %d", s, from, to)
	}
	return nil
}

func checkWait(r *process.WaitResult) error {
	if len(r.Listening) > maxSurvivors {
		return strange("%d listening sockets", len(r.Listening))
	}
	for i := range r.Listening {
		r.Listening[i].Address = tendpb.CleanName(r.Listening[i].Address)
	}
	if r.Offset < 0 || r.Offset > maxOffset || r.Stream > process.PTY {
		return strange("a match at %d of stream %d", r.Offset, r.Stream)
	}
	if err := checkStreams(r.Streams); err != nil {
		return err
	}
	return checkExit(r.Exit)
}

func checkKill(r process.KillResult) error {
	if len(r.Survivors) > maxSurvivors {
		return strange("%d survivors of a kill", len(r.Survivors))
	}
	return nil
}
