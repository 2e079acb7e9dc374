//go:build unix

package tend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

func TestOutputIsByteExactWhateverHappensToConnections(t *testing.T) {
	for name, kind := range map[string]faultKind{"they are closed": closes, "they are reset": resets, "they go silent": silent} {
		for version, http1 := range map[string]bool{"HTTP/2": false, "HTTP/1.1": true} {
			t.Run(name+", over "+version, func(t *testing.T) {
				t.Parallel()
				var faults []fault
				for i := range int64(64) {
					// Cuts inside headers, frames and messages. The first
					// connections carry the hello and the start, and on a
					// slow machine some are left before they are cut.
					faults = append(faults, fault{after: 20_000 + i%6*77_777, kind: kind})
				}
				srv := serve(t, testkeeper.New(t), nil, nil)
				px := newProxy(t, srv.Listener.Addr().String(), faults...)
				c := dial(t, px.url(), tend.Options{HTTP1: http1, Silence: 250 * time.Millisecond})
				cmd, want := numbered(300_000)
				got := proctest.Value(io.ReadAll(spawn(t, c, cmd).Stdout()))(t)
				if !bytes.Equal(got, want) {
					t.Fatalf("got %d bytes, want %d; they differ", len(got), len(want))
				}
				if px.breaks() < 3 {
					t.Fatalf("only %d connections were broken: the test proves nothing", px.breaks())
				}
			})
		}
	}
}

// A stream may be quiet for longer than a client has patience with a server that is not
// there: the server was there until the stream was cut.
func TestAQuietStreamThatIsCutGoesOn(t *testing.T) {
	srv := serveFace(t, native.Config{Manager: testkeeper.New(t), Heartbeat: time.Hour}, nil, nil)
	px := newProxy(t, srv.Listener.Addr().String())
	const patience = 2 * time.Second
	c := dial(t, px.url(), tend.Options{Patience: patience})
	p := spawn(t, c, piped(tend.Shell("echo one; read x; echo $x")))
	var cut *time.Timer
	written := make(chan error, 1)
	var text []byte
	for ev, err := range p.Events(t.Context(), process.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == process.EventOutput {
			if len(text) == 0 {
				cut = time.AfterFunc(patience+patience/2, func() {
					px.cutAll()
					_, err := p.Stdin().Write([]byte("two\n"))
					written <- err
				})
			}
			text = append(text, ev.Data...)
		}
	}
	if string(text) != "one\ntwo\n" || cut == nil {
		t.Fatalf("the stream had %q", text)
	}
	proctest.Must(t, <-written)
}

func TestEachFactIsToldOnceOverReconnects(t *testing.T) {
	srv := serve(t, testkeeper.New(t), nil, nil)
	px := newProxy(t, srv.Listener.Addr().String())
	c := dial(t, px.url(), tend.Options{})
	p := spawn(t, c, piped(tend.Shell("echo one; read x; echo $x")))
	var kinds []process.EventKind
	var text []byte
	for ev, err := range p.Events(t.Context(), process.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == process.EventOutput {
			if len(text) == 0 {
				// Lose the connection while the process waits for input.
				px.cutAll()
				proctest.Value(p.Stdin().WriteContext(t.Context(), []byte("two\n")))(t)
			}
			text = append(text, ev.Data...)
			continue
		}
		kinds = append(kinds, ev.Kind)
	}
	seen := map[process.EventKind]int{}
	for _, k := range kinds {
		seen[k]++
	}
	if string(text) != "one\ntwo\n" || seen[process.EventStarted] != 1 || seen[process.EventExited] != 1 {
		t.Fatalf("text %q, facts %v", text, kinds)
	}
}

// A reader that has everything needs no other connection to know the end: the
// sandbox may be gone.
func TestAReaderThatHasEverythingIsAtItsEnd(t *testing.T) {
	for name, opts := range map[string]process.ReadOptions{
		"both streams": {}, "one stream": {Streams: []process.Stream{process.Stdout}},
	} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Int32
			srv := serve(t, testkeeper.New(t), nil, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/tend.v1.ProcessService/Read" {
						if reads.Add(1) > 1 {
							panic(http.ErrAbortHandler)
						}
						w = endless{w}
					}
					next.ServeHTTP(w, r)
				})
			})
			c := dial(t, srv.URL, tend.Options{Retry: tend.Retry{First: time.Millisecond, Attempts: 3}})
			p := spawn(t, c, tend.Shell("echo one"))
			exits := 0
			for ev, err := range p.Events(t.Context(), opts) {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == process.EventExited {
					exits++
				}
			}
			if n := reads.Load(); n != 1 || exits != 1 {
				t.Errorf("opened %d times, and told of %d exits; want each once", n, exits)
			}
		})
	}
}

// endless breaks the connection in place of the message that ends a stream.
type endless struct{ http.ResponseWriter }

func (w endless) Write(b []byte) (int, error) {
	if len(b) > 0 && b[0] == 2 { // the flag of that message
		w.Flush() // all before it has been sent
		panic(http.ErrAbortHandler)
	}
	return w.ResponseWriter.Write(b)
}

func (w endless) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w endless) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func TestAClientGoesOnWithTheNextServer(t *testing.T) {
	mgr, stopping := testkeeper.New(t), make(chan struct{})
	first, second := serve(t, mgr, stopping, nil), serve(t, mgr, nil, nil)
	px := newProxy(t, first.Listener.Addr().String())
	// A second connection attempt after a pause would last an hour: only
	// coming back at once lets the test end.
	c := dial(t, px.url(), tend.Options{Retry: tend.Retry{First: time.Hour, Max: time.Hour}})
	p := spawn(t, c, piped(tend.Shell("echo one; read x; echo $x")))
	out := p.Stdout()
	buf := make([]byte, 4)
	proctest.Value(io.ReadFull(out, buf))(t)
	waited := make(chan tend.Result, 1)
	go func() {
		res, err := p.Wait(context.Background(), tend.WaitOptions{})
		if err != nil {
			t.Error(err)
		}
		waited <- res
	}()
	px.retarget(second.Listener.Addr().String())
	close(stopping)
	proctest.Value(p.Stdin().WriteContext(t.Context(), []byte("two\n")))(t)
	rest, err := io.ReadAll(out)
	if err != nil || string(rest) != "two\n" {
		t.Fatalf("after the restart: %q, %v", rest, err)
	}
	if res := <-waited; res.Stdout != "one\ntwo\n" || !res.Success {
		t.Fatalf("result %+v", res)
	}
}

func TestAKillIsSentOnce(t *testing.T) {
	var kills, reads atomic.Int32
	lost := losing("Kill", func(int32) bool { return true }, &kills)
	cut := losing("Read", func(int32) bool { return false }, &reads)
	srv := serve(t, testkeeper.New(t), nil, func(h http.Handler) http.Handler { return lost(cut(h)) })
	px := newProxy(t, srv.Listener.Addr().String())
	c := dial(t, px.url(), tend.Options{})
	p := spawn(t, c, tend.Shell("echo ready; exec sleep 1000"))
	r := proctest.Value(p.Raw().Read(t.Context(), process.ReadOptions{}))(t)
	defer r.Close()

	if _, err := p.Kill(t.Context()); !errors.Is(err, process.ErrUnavailable) {
		t.Fatalf("kill: %v, want that the answer was lost", err)
	}
	if n := kills.Load(); n != 1 {
		t.Fatalf("the kill was sent %d times", n)
	}
	px.cutAll()
	for ev, err := range process.Follow(t.Context(), r) {
		if err != nil && !errors.Is(err, process.ErrUnavailable) {
			t.Fatal(err)
		}
		_ = ev
	}
	if n := reads.Load(); n != 1 {
		t.Fatalf("the output was opened %d times; after a kill it must not be opened again", n)
	}
}

func TestInputIsTakenOnceWhenAnswersAreLost(t *testing.T) {
	var writes atomic.Int32
	srv := serve(t, testkeeper.New(t), nil, losing("Write", func(n int32) bool { return n%2 == 1 }, &writes))
	c := dial(t, srv.URL, tend.Options{})
	p := spawn(t, c, piped(tend.Command("cat")))
	_, want := numbered(20_000)
	read := make(chan []byte, 1)
	go func() {
		got, err := io.ReadAll(p.Stdout())
		if err != nil {
			t.Error(err)
		}
		read <- got
	}()
	in := p.Stdin()
	for rest := want; len(rest) > 0; {
		n := min(len(rest), 10_000)
		proctest.Value(in.Write(rest[:n]))(t)
		rest = rest[n:]
	}
	proctest.Must(t, in.Close())
	if got := <-read; !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d; they differ", len(got), len(want))
	}
	if n := writes.Load(); n < 20 {
		t.Fatalf("%d writes: none was repeated", n)
	}
}

// A write of several parts is given up while the process does not read. Others go on at
// once: they would wait for ten seconds for its rest.
func TestAWriteThatIsGivenUpHoldsNobodyUp(t *testing.T) {
	for version, http1 := range map[string]bool{"HTTP/2": false, "HTTP/1.1": true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, testkeeper.New(t), nil, nil)
			first := spawn(t, dial(t, srv.URL, tend.Options{HTTP1: http1}), piped(tend.Command("cat")))
			second := proctest.Value(dial(t, srv.URL, tend.Options{}).Attach(t.Context(), string(first.ID())))(t)
			proctest.Must(t, second.Signal(t.Context(), syscall.SIGSTOP))
			ctx, giveUp := context.WithCancel(t.Context())
			wrote := make(chan error, 1)
			go func() {
				_, err := first.Stdin().WriteContext(ctx, bytes.Repeat([]byte("a"), 8<<20))
				wrote <- err
			}()
			proctest.Eventually(t, "two parts are accepted", func() bool {
				return proctest.Value(second.Raw().Info(t.Context()))(t).Stdin.Accepted >= 2*process.MaxWhole
			})
			giveUp()
			if err := <-wrote; !errors.Is(err, context.Canceled) {
				t.Fatalf("the write that was given up: %v", err)
			}
			proctest.Must(t, second.Signal(t.Context(), syscall.SIGCONT))
			soon, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			if _, err := second.Stdin().WriteContext(soon, []byte("b")); err != nil {
				t.Errorf("another's write: %v", err)
			}
			proctest.Must(t, second.Stdin().Close())
			got := proctest.Value(io.ReadAll(second.Stdout()))(t)
			if rest := bytes.TrimLeft(got, "a"); string(rest) != "b" || (len(got)-1)%process.MaxWhole != 0 {
				t.Errorf("%d bytes, at the end %.20q; want whole parts of a, then b", len(got), rest)
			}
		})
	}
}

// Two handles write lines to one process, and the answers to half of all writes
// are lost; one falls silent until it is forgotten, and continues.
func TestWhatTwoClientsWriteArrivesWholeAndOnce(t *testing.T) {
	var writes atomic.Int32
	srv := serve(t, testkeeper.New(t), nil, losing("Write", func(n int32) bool { return n%2 == 1 }, &writes))
	first := spawn(t, dial(t, srv.URL, tend.Options{}), piped(tend.Command("cat")))
	second := proctest.Value(dial(t, srv.URL, tend.Options{}).Attach(t.Context(), string(first.ID())))(t)
	const lines = 50
	line := func(name string, i int) string {
		return fmt.Sprintf("%s %d %s\n", name, i, strings.Repeat(name, i*100))
	}
	var wg sync.WaitGroup
	for name, p := range map[string]*tend.Process{"a": first, "b": second} {
		wg.Go(func() {
			for i := range lines {
				if _, err := p.Stdin().Write([]byte(line(name, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	large := "c " + strings.Repeat("c", 3<<20) + "\n" // in parts
	proctest.Value(second.Stdin().Write([]byte(large)))(t)
	for i := range process.Writers + 1 {
		at := int64(0)
		proctest.Value(first.Raw().Write(t.Context(), process.Input{Writer: fmt.Sprint(i), Offset: &at, Data: []byte("d\n")}))(t)
	}
	for _, p := range []*tend.Process{second, first} {
		// Its answer is lost: then it says so, or writes it once.
		if _, err := p.Stdin().Write([]byte("e\n")); err != nil && !errors.Is(err, process.ErrWriterForgotten) {
			t.Fatal(err)
		}
		if _, err := p.Stdin().Write([]byte("f\n")); err != nil && !errors.Is(err, process.ErrWriterForgotten) {
			t.Fatal(err)
		}
	}
	proctest.Must(t, first.Stdin().Close())
	out := proctest.Value(io.ReadAll(first.Stdout()))(t)
	next := map[string]int{}
	for got := range strings.Lines(string(out)) {
		name := got[:1]
		switch want := line(name, next[name]); {
		case name == "a" || name == "b":
			if got != want {
				t.Fatalf("%.60q came for %.60q", got, want)
			}
		case name == "c" && got != large:
			t.Errorf("%d bytes of the large write are together", len(got))
		}
		next[name]++
	}
	if next["a"] != lines || next["b"] != lines || next["c"] != 1 || next["d"] != process.Writers+1 || next["e"] > 2 || next["f"] > 2 {
		t.Errorf("lines came %v times", next)
	}
}

func TestAStartWhoseAnswerIsLostStartsOnce(t *testing.T) {
	var starts atomic.Int32
	srv := serve(t, testkeeper.New(t), nil, losing("Start", func(n int32) bool { return n == 1 }, &starts))
	c := dial(t, srv.URL, tend.Options{})
	p := spawn(t, c, tend.Shell("echo once"))
	proctest.Value(p.Wait(t.Context(), tend.WaitOptions{}))(t)
	infos, err := c.List(t.Context(), process.Filter{})
	if err != nil || len(infos) != 1 || starts.Load() != 2 {
		t.Fatalf("%d processes after %d requests, %v", len(infos), starts.Load(), err)
	}
}

func TestTheLastAttemptEndsWithUnavailable(t *testing.T) {
	srv := serve(t, testkeeper.New(t), nil, nil)
	px := newProxy(t, srv.Listener.Addr().String())
	c := dial(t, px.url(), tend.Options{Retry: tend.Retry{First: time.Millisecond, Attempts: 3}})
	p := spawn(t, c, tend.Shell("exec sleep 1000"))
	r := proctest.Value(p.Raw().Read(t.Context(), process.ReadOptions{}))(t)
	px.close()
	var last error
	for _, err := range process.Follow(t.Context(), r) {
		last = err
	}
	if !errors.Is(last, process.ErrUnavailable) {
		t.Fatalf("the reader ended with %v", last)
	}
	if _, err := p.Exit(t.Context()); !errors.Is(err, process.ErrUnavailable) {
		t.Fatalf("a call ended with %v", err)
	}
}

// TestAnAnswerThatIsCutIsALostConnection: a server that dies while it greets is
// a server of ours all the same, and is worth another call.
func TestAnAnswerThatIsCutIsALostConnection(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		w.Header().Set("Content-Length", "100")
		w.Write([]byte{8})
		w.(http.Flusher).Flush()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	t.Cleanup(srv.Close)
	_, err := tend.Dial(t.Context(), srv.URL, tend.Options{HTTP1: true})
	if !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("dial: %v; want process.ErrUnavailable", err)
	}
}
