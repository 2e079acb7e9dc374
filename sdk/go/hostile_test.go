//go:build unix

package tend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// hostile is a server that says whatever a test wants.
type hostile struct {
	tendv1connect.UnimplementedProcessServiceHandler
	tendv1connect.UnimplementedViewServiceHandler
	tendv1connect.UnimplementedAdminServiceHandler
	info  *tendv1.Info
	list  func(n int) *tendv1.ListResponse
	reads []*tendv1.Event
	wait  *tendv1.WaitResult
	view  *tendv1.ViewResponse
	err   error
	calls int
	hello atomic.Pointer[tendv1.HelloResponse]
	found []*tendv1.GrepResponse
}

func (h *hostile) Hello(context.Context, *connect.Request[tendv1.HelloRequest]) (*connect.Response[tendv1.HelloResponse], error) {
	if m := h.hello.Load(); m != nil {
		return connect.NewResponse(m), nil
	}
	return connect.NewResponse(&tendv1.HelloResponse{}), nil
}

func (h *hostile) Grep(_ context.Context, _ *connect.Request[tendv1.GrepRequest], s *connect.ServerStream[tendv1.GrepResponse]) error {
	for _, m := range h.found {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (h *hostile) Get(context.Context, *connect.Request[tendv1.GetRequest]) (*connect.Response[tendv1.GetResponse], error) {
	return connect.NewResponse(&tendv1.GetResponse{Info: h.info}), h.err
}

func (h *hostile) Start(context.Context, *connect.Request[tendv1.StartRequest]) (*connect.Response[tendv1.StartResponse], error) {
	return connect.NewResponse(&tendv1.StartResponse{Info: h.info}), h.err
}

func (h *hostile) List(context.Context, *connect.Request[tendv1.ListRequest]) (*connect.Response[tendv1.ListResponse], error) {
	h.calls++
	return connect.NewResponse(h.list(h.calls)), h.err
}

func (h *hostile) Read(_ context.Context, _ *connect.Request[tendv1.ReadRequest], s *connect.ServerStream[tendv1.ReadResponse]) error {
	for _, ev := range h.reads {
		if err := s.Send(&tendv1.ReadResponse{Event: ev}); err != nil {
			return err
		}
	}
	return h.err
}

func (h *hostile) Events(_ context.Context, _ *connect.Request[tendv1.EventsRequest], s *connect.ServerStream[tendv1.EventsResponse]) error {
	for _, ev := range h.reads {
		if err := s.Send(&tendv1.EventsResponse{Event: ev}); err != nil {
			return err
		}
	}
	return h.err
}

func (h *hostile) Wait(_ context.Context, _ *connect.Request[tendv1.WaitRequest], s *connect.ServerStream[tendv1.WaitResponse]) error {
	return s.Send(&tendv1.WaitResponse{Answer: &tendv1.WaitResponse_Result{Result: h.wait}})
}

func (h *hostile) View(_ context.Context, _ *connect.Request[tendv1.ViewRequest], s *connect.ServerStream[tendv1.ViewResponse]) error {
	return s.Send(h.view)
}

func (h *hostile) serve(t *testing.T) *tend.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(tendv1connect.NewProcessServiceHandler(h))
	mux.Handle(tendv1connect.NewViewServiceHandler(h))
	mux.Handle(tendv1connect.NewAdminServiceHandler(h))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return dial(t, srv.URL, tend.Options{})
}

const (
	escape = "\x1b]0;owned\a\x1b[2J"
	id     = "a1"
)

func known(change func(*tendv1.Info)) *tendv1.Info {
	i := &tendv1.Info{Id: id, Pid: 7, Spec: &tendv1.Spec{Id: id, Argv: []string{"x"}}, Stdin: &tendv1.StdinInfo{}}
	change(i)
	return i
}

// wantStrange checks that the error is typed and that nothing in it is active.
func wantStrange(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*tend.ProtocolError](err); !ok {
		t.Fatalf("the error is %T %v; want a ProtocolError", err, err)
	}
	if strings.ContainsAny(err.Error(), "\x1b\a\r\u009b") || !utf8.ValidString(err.Error()) {
		t.Errorf("the error %q is active on a terminal", err)
	}
}

func TestAHostileServerTellsOfProcesses(t *testing.T) {
	for name, info := range map[string]*tendv1.Info{
		"an id with escapes":          known(func(i *tendv1.Info) { i.Id = escape }),
		"an id that a shell runs":     known(func(i *tendv1.Info) { i.Id = "$(touch /tmp/x)" }),
		"an id that is a path":        known(func(i *tendv1.Info) { i.Id = "../../etc/passwd" }),
		"an id of two lines":          known(func(i *tendv1.Info) { i.Id = "a1\na2" }),
		"a very long id":              known(func(i *tendv1.Info) { i.Id = strings.Repeat("a", 1000) }),
		"no id":                       known(func(i *tendv1.Info) { i.Id = "" }),
		"another process":             known(func(i *tendv1.Info) { i.Id = "a2" }),
		"no process at all":           nil,
		"a pid that no kernel has":    known(func(i *tendv1.Info) { i.Pid = 1<<32 - 1 }),
		"a stream that is none":       known(func(i *tendv1.Info) { i.Streams = []*tendv1.StreamInfo{{Stream: 9}} }),
		"a stream that ends early":    known(func(i *tendv1.Info) { i.Streams = []*tendv1.StreamInfo{{Stream: 1, Base: 5, End: 1}} }),
		"a negative stream":           known(func(i *tendv1.Info) { i.Streams = []*tendv1.StreamInfo{{Stream: 1, Base: -5}} }),
		"an absurd stream":            known(func(i *tendv1.Info) { i.Streams = []*tendv1.StreamInfo{{Stream: 1, End: 1<<63 - 1}} }),
		"a thousand streams":          known(func(i *tendv1.Info) { i.Streams = make([]*tendv1.StreamInfo, 1000) }),
		"negative input":              known(func(i *tendv1.Info) { i.Stdin.Accepted = -1 }),
		"an exit by signal -1":        known(func(i *tendv1.Info) { i.Exit = &tendv1.Exit{Signal: -1} }),
		"an exit by signal 1000":      known(func(i *tendv1.Info) { i.Exit = &tendv1.Exit{Signal: 1000} }),
		"an id with a direction mark": known(func(i *tendv1.Info) { i.Id = "a\u202e1" }),
	} {
		t.Run(name, func(t *testing.T) {
			h := &hostile{info: info}
			c := h.serve(t)
			_, err := c.Get(t.Context(), process.Selector{ID: id})
			wantStrange(t, err)
			_, err = c.Start(t.Context(), process.Spec{ID: id, Argv: []string{"x"}})
			wantStrange(t, err)
			h.list = func(int) *tendv1.ListResponse { return &tendv1.ListResponse{Processes: []*tendv1.Info{info}} }
			if _, err = c.List(t.Context(), process.Filter{}); info.GetId() != "a2" {
				wantStrange(t, err)
			}
		})
	}
}

func TestNamesOfAHostileServerAreNotActive(t *testing.T) {
	h := &hostile{info: known(func(i *tendv1.Info) {
		i.Spec.Name, i.Spec.Tag, i.Spec.User = "web"+escape, "tag\r\n"+escape, "root\u202e"
	})}
	p := proctest.Value(h.serve(t).Get(t.Context(), process.Selector{ID: id}))(t)
	info := proctest.Info(t, p)
	for _, text := range []string{info.Spec.Name, info.Spec.Tag, info.Spec.User} {
		if strings.ContainsAny(text, "\x1b\a\r\n\u202e") {
			t.Errorf("%q is active on a terminal", text)
		}
	}
	if !strings.HasPrefix(info.Spec.Name, "web") {
		t.Errorf("the name is %q", info.Spec.Name)
	}
}

func TestErrorsOfAHostileServerAreNotActive(t *testing.T) {
	for _, code := range []connect.Code{connect.CodeInternal, connect.CodeNotFound, connect.CodeUnknown, connect.CodeUnimplemented, connect.CodePermissionDenied, connect.CodeInvalidArgument} {
		for _, detail := range []*tendv1.ErrorDetail{nil,
			{Kind: tendv1.ErrorKind_ERROR_KIND_INVALID, Field: escape, Reason: escape},
			{Kind: tendv1.ErrorKind_ERROR_KIND_START, What: escape, SystemError: escape},
			{Kind: tendv1.ErrorKind_ERROR_KIND_NOT_FOUND},
		} {
			said := connect.NewError(code, errors.New("no\n"+escape+"\r"+strings.Repeat("x", 200<<10)))
			if detail != nil {
				d := proctest.Value(connect.NewErrorDetail(detail))(t)
				said.AddDetail(d)
			}
			h := &hostile{err: said}
			_, err := h.serve(t).Get(t.Context(), process.Selector{ID: id})
			if err == nil {
				t.Fatalf("%v is no error", code)
			}
			if text := err.Error(); strings.ContainsAny(text, "\x1b\a\r") || len(text) > 100<<10 {
				t.Errorf("%v: an error of %d bytes is active on a terminal: %.100q", code, len(text), text)
			}
		}
	}
}

func TestAHostileServerListsWithoutEnd(t *testing.T) {
	t.Parallel()
	one := []*tendv1.Info{known(func(*tendv1.Info) {})}
	for name, page := range map[string]func(n int) *tendv1.ListResponse{
		"empty pages":   func(n int) *tendv1.ListResponse { return &tendv1.ListResponse{Next: fmt.Sprint(n)} },
		"the same page": func(int) *tendv1.ListResponse { return &tendv1.ListResponse{Processes: one, Next: "1.a"} },
		"ever more pages": func(n int) *tendv1.ListResponse {
			many := make([]*tendv1.Info, 100)
			for i := range many {
				many[i] = one[0]
			}
			return &tendv1.ListResponse{Processes: many, Next: fmt.Sprint(n)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := (&hostile{list: page}).serve(t)
			c.LimitList(1000)
			_, err := c.List(t.Context(), process.Filter{})
			wantStrange(t, err)
		})
	}
}

func output(stream tendv1.Stream, at int64, data string) *tendv1.Event {
	return &tendv1.Event{ProcessId: id, Fact: &tendv1.Event_Output_{Output: &tendv1.Event_Output{Stream: stream, Offset: at, Data: []byte(data)}}}
}

func gap(from, to int64) *tendv1.Event {
	return &tendv1.Event{ProcessId: id, Fact: &tendv1.Event_Gap{Gap: &tendv1.Gap{Stream: 1, From: from, To: to}}}
}

func hello(from ...*tendv1.StreamOffset) *tendv1.Event {
	return &tendv1.Event{Fact: &tendv1.Event_Hello_{Hello: &tendv1.Event_Hello{From: from}}}
}

func TestAHostileServerStreams(t *testing.T) {
	start := hello(&tendv1.StreamOffset{Stream: 1}, &tendv1.StreamOffset{Stream: 2}, &tendv1.StreamOffset{Stream: 3})
	for name, events := range map[string][]*tendv1.Event{
		"an offset that goes back":        {start, output(1, 0, "abc"), output(1, 1, "xyz")},
		"an offset that repeats":          {start, output(1, 0, "abc"), output(1, 0, "abc")},
		"bytes left out":                  {start, output(1, 0, "abc"), output(1, 9, "xyz")},
		"a negative offset":               {start, output(1, -1, "abc")},
		"an absurd offset":                {start, output(1, 1<<62, "abc")},
		"output of stdin":                 {start, output(0, 0, "abc")},
		"output after its end":            {start, output(1, 0, "abc"), {Fact: &tendv1.Event_Eof{Eof: &tendv1.Event_StreamEnd{Stream: 1, Offset: 3}}}, output(1, 3, "x")},
		"a gap that goes back":            {start, output(1, 0, "abc"), gap(3, 1)},
		"a gap behind":                    {start, output(1, 0, "abc"), gap(0, 9)},
		"an endless gap":                  {start, gap(0, 1<<63-1)},
		"a beginning that was not wanted": {hello(&tendv1.StreamOffset{Stream: 1, Offset: 100})},
		"a beginning of no stream":        {hello(&tendv1.StreamOffset{Stream: 99})},
		"a negative beginning":            {hello(&tendv1.StreamOffset{Stream: 1, Offset: -7})},
		"output of another process":       {start, {ProcessId: "a2", Fact: output(1, 0, "abc").Fact}},
		"a process that is none":          {start, {ProcessId: escape, Fact: output(1, 0, "abc").Fact}},
		"an exit by signal 1000":          {start, {ProcessId: id, Fact: &tendv1.Event_Exited{Exited: &tendv1.Exit{Signal: 1000}}}},
		"8 MiB of output at once":         {start, output(1, 0, strings.Repeat("x", 8<<20))},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hostile{info: known(func(*tendv1.Info) {}), reads: events}
			c := h.serve(t)
			p := proctest.Value(c.Get(t.Context(), process.Selector{ID: id}))(t)
			wantStrange(t, drain(t, func() (process.Reader, error) { return p.Read(t.Context(), process.ReadOptions{}) }))
		})
	}
}

// drain reads to the end and returns why it ended.
func drain(t *testing.T, open func() (process.Reader, error)) error {
	t.Helper()
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	late := time.After(2 * time.Minute)
	for {
		_, ok, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if ok {
			continue
		}
		select {
		case <-r.Ready():
		case <-late:
			t.Fatal("the stream does not end")
		}
	}
}

func TestAHostileServerWatches(t *testing.T) {
	h := &hostile{reads: []*tendv1.Event{hello(), {ProcessId: "$(id)" + escape, Fact: &tendv1.Event_Removed{Removed: &tendv1.Event_Empty{}}}}}
	w := proctest.Value(h.serve(t).Watch(t.Context()))(t)
	defer w.Close()
	late := time.After(2 * time.Minute)
	for {
		ev, ok, err := w.Next()
		if err != nil {
			wantStrange(t, err)
			return
		}
		if ok {
			t.Fatalf("the event %+v was handed on", ev)
		}
		select {
		case <-w.Ready():
		case <-late:
			t.Fatal("the watch does not end")
		}
	}
}

func TestAHostileServerAnswersAWait(t *testing.T) {
	for name, res := range map[string]*tendv1.WaitResult{
		"an exit by signal -9":  {Exit: &tendv1.Exit{Signal: -9}},
		"a negative match":      {Offset: -1, Met: true},
		"a stream that is none": {Streams: []*tendv1.StreamInfo{{Stream: 77}}},
	} {
		h := &hostile{info: known(func(*tendv1.Info) {}), wait: res}
		p := proctest.Value(h.serve(t).Get(t.Context(), process.Selector{ID: id}))(t)
		_, err := p.Wait(t.Context(), process.Until{})
		if _, ok := errors.AsType[*tend.ProtocolError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := &hostile{view: &tendv1.ViewResponse{Stream: 1, From: 9, To: 3}}
	for it, err := range h.serve(t).View(t.Context(), process.Selector{ID: id}, view.Options{}) {
		wantStrange(t, err)
		if it.To != 0 {
			t.Errorf("%+v was handed on", it)
		}
	}
}

// TestTheTokenIsNotTakenAlong: the host that a server redirects to must not get
// the token.
func TestTheTokenIsNotTakenAlong(t *testing.T) {
	var reached atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached.Add(1) }))
	defer thief.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{thief.URL + "/x", "//" + strings.TrimPrefix(thief.URL, "http://"), "/elsewhere", escape} {
			for _, http1 := range []bool{true, false} {
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/elsewhere" {
						reached.Add(1)
					}
					w.Header()["Location"] = []string{to}
					w.WriteHeader(status)
				}))
				srv.Config.Protocols = new(http.Protocols)
				srv.Config.Protocols.SetHTTP1(true)
				srv.Config.Protocols.SetUnencryptedHTTP2(true)
				srv.Start()
				_, err := tend.Dial(t.Context(), srv.URL, tend.Options{Token: "s3cret", HTTP1: http1, Retry: quick})
				e, ok := errors.AsType[*tend.RedirectError](err)
				if to == escape {
					if err == nil || strings.ContainsAny(err.Error(), "\x1b\a") {
						t.Errorf("%d to an escape: %q", status, err)
					}
				} else if !ok || e.Location != to || e.URL != srv.URL {
					t.Errorf("%d to %s: %T %v", status, to, err, err)
				}
				srv.Close()
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests followed", n)
	}
}

// A server of a former version takes grep -v, -A, -B and -C for a plain grep: the
// client refuses them, until another server says that it knows them.
func TestSearchOptionsThatTheServerIgnoresAreRefused(t *testing.T) {
	h := &hostile{found: []*tendv1.GrepResponse{{Found: &tendv1.GrepResponse_Match_{Match: &tendv1.GrepResponse_Match{Stream: tendv1.Stream_STREAM_STDOUT, To: 1, Line: 1, Text: []byte("x")}}}}}
	c := h.serve(t)
	grep := func(o view.GrepOptions) (n int, err error) {
		o.Pattern = "x"
		for _, err := range c.Grep(t.Context(), process.Selector{ID: "a"}, o) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	for name, o := range map[string]view.GrepOptions{"invert": {Invert: true}, "before": {Before: 1}, "after": {After: 1}} {
		if n, err := grep(o); n != 0 || !errors.Is(err, process.ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %d matches, %v", name, n, err)
		}
	}
	if n, err := grep(view.GrepOptions{}); n != 1 || err != nil {
		t.Errorf("a plain one: %d matches, %v", n, err)
	}
	h.hello.Store(&tendv1.HelloResponse{GrepOptions: true})
	if n, err := grep(view.GrepOptions{Invert: true}); n != 1 || err != nil {
		t.Errorf("after an upgrade: %d matches, %v", n, err)
	}
}
