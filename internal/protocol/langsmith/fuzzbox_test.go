package langsmith

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// paper is a driver of one box on paper: what a fuzzer asks for is checked as a
// real driver does, and neither a directory nor a process comes of it.
type paper struct{ t *testing.T }

const paperBox = "00000000-0000-4000-8000-000000000000"

func paperInfo() driver.Info {
	return driver.Info{ID: paperBox, Name: "box", State: driver.Ready, Dir: "/work"}
}

func (p paper) Create(_ context.Context, spec driver.Spec) (driver.Sandbox, error) {
	return sheet{paper: p}, spec.Validate()
}

func (p paper) Get(_ context.Context, key string) (driver.Sandbox, error) {
	if key != paperBox && key != "box" {
		return nil, driver.ErrNotFound
	}
	return sheet{paper: p}, nil
}

func (p paper) List(context.Context) ([]driver.Info, error) {
	return []driver.Info{paperInfo()}, nil
}

func (p paper) Capabilities() driver.Capabilities { return driver.Capabilities{Name: "paper"} }

// sheet is the box of paper.
type sheet struct {
	driver.Controller // none is called
	paper
	dial func(port int) // is told where a tunnel leads; it leads nowhere
}

func (s sheet) Info(context.Context) (driver.Info, error) { return paperInfo(), nil }

func (s sheet) Update(_ context.Context, c driver.Change) (driver.Info, error) {
	return paperInfo(), c.Validate()
}

func (s sheet) Processes() process.Manager { return ledger{t: s.t} }

func (s sheet) User(string) (files.User, error) { return files.User{Home: "/work"}, nil }

func (s sheet) Files(string, string) (driver.Files, error) {
	return files.FS{User: files.User{Home: "/work"}}, nil
}

func (s sheet) Dial(_ context.Context, port int) (net.Conn, error) {
	if s.dial != nil {
		s.dial(port)
	}
	return nil, errors.New("nobody listens")
}

// ledger is a manager with one command that has ended, "known". It starts
// nothing: what it refuses is what the runtime would.
type ledger struct {
	process.Manager
	t *testing.T
}

func (l ledger) Start(_ context.Context, spec process.Spec) (process.Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return nil, &process.StartError{Err: errors.New("nothing is started here")}
}

func (l ledger) Get(_ context.Context, sel process.Selector) (process.Process, error) {
	if sel.ID != processID(paperBox, "known") {
		return nil, fmt.Errorf("%w: %s", process.ErrNotFound, sel.ID)
	}
	return entry{t: l.t}, nil
}

// said is the output of the command on stdout.
const said = "one line\n"

type entry struct {
	process.Process // what is not below is not called
	t               *testing.T
	resized         func(process.Size)
}

func (e entry) ID() process.ID { return processID(paperBox, "known") }

func (e entry) Info(context.Context) (process.Info, error) {
	return process.Info{ID: e.ID(), PID: 7, State: process.Exited, Exit: &process.Exit{}, Streams: []process.StreamInfo{{Stream: process.Stdout, End: int64(len(said))}, {Stream: process.Stderr}}}, nil
}

func (e entry) Read(_ context.Context, opts process.ReadOptions) (process.Reader, error) {
	from := opts.From[process.Stdout]
	if from < 0 || from > int64(len(said)) || opts.From[process.Stderr] != 0 {
		e.t.Errorf("a reader was asked for from %v, and the output ends at %d and 0", opts.From, len(said))
		return nil, process.ErrOffset
	}
	return &script{[]process.Event{
		{Kind: process.EventOutput, Stream: process.Stdout, Offset: from, Data: []byte(said)[from:]},
		{Kind: process.EventEOF, Stream: process.Stdout, Offset: int64(len(said))},
		{Kind: process.EventExited, Exit: &process.Exit{}},
	}}, nil
}

func (e entry) Write(_ context.Context, in process.Input) (process.Accepted, error) {
	return process.Accepted{}, nil
}

func (e entry) Kill(context.Context) (process.KillResult, error) {
	return process.KillResult{}, process.ErrExited
}

func (e entry) Resize(_ context.Context, r process.Resize) (process.Size, error) {
	e.resized(r.To)
	return process.Size{}, nil
}

// script is a reader of events that are all there.
type script struct{ events []process.Event }

func (s *script) Next() (process.Event, bool, error) {
	if len(s.events) == 0 {
		return process.Event{}, false, io.EOF
	}
	ev := s.events[0]
	s.events = s.events[1:]
	return ev, true, nil
}

func (s *script) Ready() <-chan struct{} { return nil }
func (s *script) Close() error           { return nil }

// paperFace serves the box on paper; the fuzzer's calls go through the mux.
func paperFace(t *testing.T) (*Face, http.Handler) {
	f := proctest.Value(New(Config{Driver: paper{t}}))(t)
	t.Cleanup(func() { f.Close() })
	mux := http.NewServeMux()
	proctest.Must(t, module.Mount(mux, f, nil))
	return f, mux
}
