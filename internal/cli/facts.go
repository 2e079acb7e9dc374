package cli

import (
	"strconv"
	"time"

	"github.com/tend-run/tend/process"
)

// The types of this file are the JSON of the command line. They are API:
// fields are added, never changed or removed. Absent facts are null, not
// missing, unless omitempty says that most processes have none.

type processFacts struct {
	ID       process.ID        `json:"id"`
	PID      int               `json:"pid"`
	Name     string            `json:"name"`
	Tag      string            `json:"tag"`
	Command  string            `json:"command"`
	Argv     []string          `json:"argv,omitempty"`
	Shell    string            `json:"shell,omitempty"`
	Cwd      string            `json:"cwd"`
	User     string            `json:"user"`
	State    string            `json:"state"` // running, stopped, exited
	Started  time.Time         `json:"started"`
	Exit     *exitFacts        `json:"exit"` // null while it runs
	TreeGone bool              `json:"tree_gone"`
	Pinned   bool              `json:"pinned"`
	PTY      *sizeFacts        `json:"pty"`
	Stdin    stdinFacts        `json:"stdin"`
	Streams  []streamFacts     `json:"streams"`
	Labels   map[string]string `json:"labels,omitempty"`
	SpecCut  bool              `json:"spec_cut,omitempty"` // room was needed: command and labels are not whole
	Damaged  string            `json:"damaged,omitempty"`  // what is wrong with what is kept of it
}

type sizeFacts struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

type stdinFacts struct {
	Open     bool  `json:"open"`
	Accepted int64 `json:"accepted"` // bytes
}

type streamFacts struct {
	Stream string `json:"stream"`
	Base   int64  `json:"base"` // bytes before it were freed
	End    int64  `json:"end"`  // bytes written so far
	EOF    bool   `json:"eof"`
}

type exitFacts struct {
	Status        int       `json:"status"` // as a shell shows it: code, 128+signal, 124; -1 unknown
	Code          *int      `json:"code"`   // null unless it ended with a code
	Signal        *string   `json:"signal"` // "SIGKILL"; null unless one ended it
	CoreDumped    bool      `json:"core_dumped"`
	Cause         string    `json:"cause"`
	Time          time.Time `json:"time"`
	UserSeconds   float64   `json:"user_seconds"`
	SystemSeconds float64   `json:"system_seconds"`
	MaxRSS        int64     `json:"max_rss"` // bytes
}

type eventFacts struct {
	Event string     `json:"event"` // started, exited, tree_gone, removed
	ID    process.ID `json:"id"`
	Time  *time.Time `json:"time"` // null if not known
	PID   int        `json:"pid,omitempty"`
	// Command of a process that started, if it is still known.
	Command string     `json:"command,omitempty"`
	Exit    *exitFacts `json:"exit,omitempty"`
}

type killFacts struct {
	ID        process.ID `json:"id"`
	Verified  bool       `json:"verified"` // the kernel reported that no process is left
	Survivors []int      `json:"survivors"`
	// Strays run on, and nothing shows whether they were in the tree. Names are of
	// both, by pid.
	Strays []int          `json:"strays,omitempty"`
	Names  map[int]string `json:"names,omitempty"`
	// Exited: there was nothing left to kill.
	Exited bool `json:"exited"`
}

type waitFacts struct {
	ID        process.ID      `json:"id"`
	Until     string          `json:"until"` // as given
	Met       bool            `json:"met"`
	Exit      *exitFacts      `json:"exit"`
	Match     string          `json:"match,omitempty"`
	Stream    string          `json:"stream,omitempty"`
	Offset    *int64          `json:"offset,omitempty"`
	Listening []listenerFacts `json:"listening,omitempty"`
	Input     string          `json:"input,omitempty"` // likely, certain, password
}

type listenerFacts struct {
	Address string `json:"address"`
	PID     int    `json:"pid"`
}

func factsOf(info *process.Info) processFacts {
	return processFacts{
		ID: info.ID, PID: info.PID, Name: info.Spec.Name, Tag: info.Spec.Tag,
		Command: commandOf(&info.Spec), Argv: info.Spec.Argv, Shell: info.Spec.Shell,
		Cwd: info.Spec.Dir, User: info.Spec.User,
		State: info.State.String(), Started: info.Started.UTC(),
		Exit: exitFactsOf(info.Exit), TreeGone: info.TreeGone, Pinned: info.Pinned,
		PTY: (*sizeFacts)(info.Spec.PTY), Stdin: stdinFacts(info.Stdin), Streams: mapped(info.Streams, streamFactsOf),
		Labels: info.Spec.Labels, SpecCut: info.SpecCut, Damaged: info.Damaged,
	}
}

func streamFactsOf(s *process.StreamInfo) streamFacts {
	return streamFacts{Stream: s.Stream.String(), Base: s.Base, End: s.End, EOF: s.EOF}
}

func exitFactsOf(e *process.Exit) *exitFacts {
	if e == nil {
		return nil
	}
	f := &exitFacts{
		Status: e.ShellStatus(), CoreDumped: e.CoreDumped, Cause: e.Cause.String(), Time: e.Time.UTC(),
		UserSeconds: e.UserTime.Seconds(), SystemSeconds: e.SystemTime.Seconds(), MaxRSS: e.MaxRSS,
	}
	switch {
	case e.Lost():
	case e.Signal != 0:
		name := signalName(e.Signal)
		f.Signal = &name
	default:
		f.Code = &e.Code
	}
	return f
}

func eventFactsOf(ev process.Event, command string) eventFacts {
	return eventFacts{Event: ev.Kind.String(), ID: ev.ID, Time: timeOrNull(ev.Time), PID: ev.PID, Command: command, Exit: exitFactsOf(ev.Exit)}
}

func waitFactsOf(id process.ID, until string, r process.WaitResult) waitFacts {
	f := waitFacts{ID: id, Until: until, Met: r.Met, Exit: exitFactsOf(r.Exit),
		Listening: mapped(r.Listening, func(l *process.Listener) listenerFacts { return listenerFacts(*l) })}
	if r.Met && until == "input" {
		f.Input = r.Input.String()
	}
	if r.Met && r.Match != "" {
		f.Match, f.Stream, f.Offset = r.Match, r.Stream.String(), &r.Offset
	}
	return f
}

// signalName returns "SIGTERM" for 15, and "SIG64" for what has no name.
func signalName(sig int) string {
	if name := process.SignalName(sig); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(sig)
}
