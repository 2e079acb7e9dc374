package exits

import (
	"strconv"
	"time"

	"github.com/tend-run/tend/process"
)

// facts of an exit, as a message has them. They are API.
type facts struct {
	ID   process.ID `json:"id"`
	Name string     `json:"name"`
	// Sequence grows with the time of the exit: a process with a smaller number ended
	// earlier.
	Sequence int64 `json:"sequence"`
	// Status as a shell shows it: code, 128+signal, 124 after a timeout; -1: not known.
	Status  int              `json:"status"`
	Code    int              `json:"code"`
	Signal  string           `json:"signal"` // "SIGKILL"; "": none
	Cause   string           `json:"cause"`
	Time    time.Time        `json:"time"`
	Offsets map[string]int64 `json:"offsets"` // ends of the streams of output, in bytes
}

func factsOf(in *process.Info) facts {
	e := in.Exit
	f := facts{
		ID: in.ID, Name: in.Spec.Name, Sequence: e.Time.UnixMilli(), Status: e.ShellStatus(), Code: e.Code, Cause: e.Cause.String(),
		Time:    e.Time.UTC(),
		Offsets: map[string]int64{},
	}
	if e.Signal != 0 {
		if f.Signal = process.SignalName(e.Signal); f.Signal == "" {
			f.Signal = "SIG" + strconv.Itoa(e.Signal)
		}
	}
	for _, s := range in.Streams {
		f.Offsets[s.Stream.String()] = s.End
	}
	return f
}

// environment is what a command gets beside the process's own.
func (f *facts) environment() map[string]string {
	env := map[string]string{
		"TEND_EXIT_ID": string(f.ID), "TEND_EXIT_NAME": f.Name, "TEND_EXIT_STATUS": strconv.Itoa(f.Status),
		"TEND_EXIT_CODE":   strconv.Itoa(f.Code),
		"TEND_EXIT_SIGNAL": f.Signal, "TEND_EXIT_CAUSE": f.Cause, "TEND_EXIT_TIME": f.Time.Format(time.RFC3339Nano),
	}
	for name, end := range f.Offsets {
		env["TEND_EXIT_OFFSET_"+upper(name)] = strconv.FormatInt(end, 10)
	}
	return env
}

func upper(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}
