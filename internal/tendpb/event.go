package tendpb

import (
	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/process"
)

// Event converts to a message. The data is not copied: send the message before
// the reader's next call.
func Event(ev *process.Event) *tendv1.Event {
	m := &tendv1.Event{ProcessId: text(string(ev.ID)), Time: Time(ev.Time)}
	switch ev.Kind {
	case process.EventStarted:
		m.Fact = &tendv1.Event_Started_{Started: &tendv1.Event_Started{Pid: uint32(ev.PID)}}
	case process.EventOutput:
		m.Fact = &tendv1.Event_Output_{Output: &tendv1.Event_Output{Stream: tendv1.Stream(ev.Stream), Offset: ev.Offset, Data: ev.Data}}
	case process.EventGap:
		m.Fact = &tendv1.Event_Gap{Gap: Gap(ev.Gap)}
	case process.EventExited:
		m.Fact = &tendv1.Event_Exited{Exited: Exit(ev.Exit)}
	case process.EventEOF:
		m.Fact = &tendv1.Event_Eof{Eof: &tendv1.Event_StreamEnd{Stream: tendv1.Stream(ev.Stream), Offset: ev.Offset}}
	case process.EventResized:
		m.Fact = &tendv1.Event_Resized_{Resized: &tendv1.Event_Resized{Stream: tendv1.Stream(ev.Stream), Offset: ev.Offset, Size: Size(ev.Size)}}
	case process.EventTreeGone:
		m.Fact = &tendv1.Event_TreeGone{TreeGone: &tendv1.Event_Empty{}}
	case process.EventRemoved:
		m.Fact = &tendv1.Event_Removed{Removed: &tendv1.Event_Empty{}}
	}
	return m
}

// ToEvent converts from a message. ok is false for words of the server itself
// (hello, heartbeat, going away) and for facts that a newer server knows.
func ToEvent(m *tendv1.Event) (ev process.Event, ok bool) {
	ev = process.Event{ID: process.ID(m.GetProcessId()), Time: ToTime(m.GetTime())}
	switch f := m.GetFact().(type) {
	case *tendv1.Event_Started_:
		ev.Kind, ev.PID = process.EventStarted, int(f.Started.GetPid())
	case *tendv1.Event_Output_:
		ev.Kind, ev.Stream, ev.Offset, ev.Data = process.EventOutput, process.Stream(f.Output.GetStream()), f.Output.GetOffset(),
			f.Output.GetData()
	case *tendv1.Event_Gap:
		ev.Kind, ev.Gap = process.EventGap, ToGap(f.Gap)
		ev.Stream, ev.Offset = ev.Gap.Stream, ev.Gap.From
	case *tendv1.Event_Exited:
		ev.Kind, ev.Exit = process.EventExited, ToExit(f.Exited)
	case *tendv1.Event_Eof:
		ev.Kind, ev.Stream, ev.Offset = process.EventEOF, process.Stream(f.Eof.GetStream()), f.Eof.GetOffset()
	case *tendv1.Event_Resized_:
		var err error
		ev.Kind, ev.Stream, ev.Offset = process.EventResized, process.Stream(f.Resized.GetStream()), f.Resized.GetOffset()
		if ev.Size, err = ToSize("size", f.Resized.GetSize()); err != nil {
			return ev, false
		}
	case *tendv1.Event_TreeGone:
		ev.Kind = process.EventTreeGone
	case *tendv1.Event_Removed:
		ev.Kind = process.EventRemoved
	default:
		return ev, false
	}
	// A stream is an index to arrays of four.
	return ev, ev.Stream <= process.PTY
}

// Gap converts to a message.
func Gap(g process.Gap) *tendv1.Gap {
	return &tendv1.Gap{Stream: tendv1.Stream(g.Stream), From: g.From, To: g.To}
}

// ToGap converts from a message.
func ToGap(m *tendv1.Gap) process.Gap {
	return process.Gap{Stream: process.Stream(m.GetStream()), From: m.GetFrom(), To: m.GetTo()}
}
