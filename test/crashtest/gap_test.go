//go:build linux

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// What a process writes in these tests. The first part is less than is kept, and
// more than the sockets, pipes and programs on the way hold: its reader stalls in
// the middle of it. The second part is so long that nothing of the first is left.
const (
	kept    = 24 << 20
	overrun = 4 * kept
	written = kept + overrun + int64(len("end\n"))
)

// letGo is a little longer than the envd face keeps a frame for a reader that
// has stalled.
const letGo = 1100 * time.Millisecond

// twice is a shell line that writes the first part when it gets a line of
// input, and the rest when it gets another.
var twice = fmt.Sprintf("read x; head -c %d /dev/zero; read x; head -c %d /dev/zero; echo end", kept, overrun)

// lateReader is a client of one face that reads late.
type lateReader struct {
	name string
	// stall is how long it stalls before it is overtaken.
	stall time.Duration
	// spec changes how the process is started.
	spec func(*process.Spec)
	// open begins to read the output of a process from its first byte. The
	// returned function reads to the end and returns what the face says of the gap.
	open func(t *testing.T, d *daemon, p process.Process, pid int) (rest func() (told string, err error))
	// spawn starts the process in place of the test, and opens it.
	spawn func(t *testing.T, c *tend.Client, spec process.Spec) (p process.Process, rest func() (told string, err error))
	want  string // a pattern of what it says, with the gap as two groups
}

// A reader that falls behind retention learns from every face which bytes it lacks,
// in that face's words. Each reader stalls while its process writes a thousand
// times what is kept.
func TestAReaderBehindRetentionIsToldTheGapOnEveryFace(t *testing.T) {
	t.Parallel()
	d := serve(t)
	c := d.Connect(t)
	for _, r := range []lateReader{
		{name: "the Go SDK, as an event", open: sdkEvents, want: `^gap (\d+) (\d+)$`},
		{name: "the Go SDK, as an error of Read", open: sdkOutput, want: `^bytes (\d+) to (\d+) of stdout were freed by retention before they were read$`},
		{name: "the Go SDK, as an error of Wait", spawn: sdkWait, want: `^bytes (\d+) to (\d+) of stdout were freed by retention before they were read$`},
		{name: "the Go SDK, as a call of OnGap", spawn: sdkOnGap, want: `^gap (\d+) (\d+)$`},
		{name: "the native API in JSON", open: nativeJSON, want: `^\{"stream":"STREAM_STDOUT","from":"(\d+)","to":"(\d+)"\}$`},
		{stall: letGo, name: "envd in JSON", open: envdIn("application/connect+json"), want: `^data_loss: bytes (\d+) to (\d+) of stdout were freed`},
		{stall: letGo, name: "envd in binary", open: envdIn("application/connect+proto"), want: `^data_loss: bytes (\d+) to (\d+) of stdout were freed`},
		{stall: letGo, name: "envd in lines", open: envdLines, want: `^data_loss: bytes (\d+) to (\d+) of stdout were freed`},
		{name: "tend logs -f", open: logsFollow(), want: `^(?:tend: \d+ bytes of stdout \((\d+) to (\d+)\) were freed by retention before they were read(?:\n|$))+$`}, // several, where it only seemed to stall
		{name: "tend logs -f --json", open: logsFollow("--json"), want: `"stream":"stdout","offset":(\d+),.*"gap_to":(\d+)\}$`},
		{name: "distant in lines", open: distantLines, spec: func(s *process.Spec) { s.Tag = "distant-77" },
			want: `^unexpected_eof: bytes (\d+) to (\d+) of proc_stdout of process 77 were freed by retention`},
	} {
		t.Run(r.name, func(t *testing.T) {
			spec := process.Spec{Shell: twice, Stdin: process.StdinPipe, Retention: process.Retention{Limit: kept + kept/4}}
			if r.spec != nil {
				r.spec(&spec)
			}
			if r.spawn == nil {
				r.spawn = func(t *testing.T, c *tend.Client, spec process.Spec) (process.Process, func() (string, error)) {
					p := proctest.Start(t, c, spec)
					info := proctest.Info(t, p)
					return p, r.open(t, d, p, info.PID)
				}
			}
			p, rest := r.spawn(t, c, spec)
			t.Cleanup(func() { p.Kill(context.WithoutCancel(t.Context())) })
			d.overtake(t, p, r.stall)
			told, err := rest()
			checkGap(t, r.want, told, err)
		})
	}
	t.Run("LangSmith", func(t *testing.T) { langsmithGap(t, d, c) })
}

// overtake lets the process write, waits until its reader has stalled, which
// is seen in the metrics, and lets it write the rest.
func (d *daemon) overtake(t *testing.T, p process.Process, stall time.Duration) {
	t.Helper()
	ctx := t.Context()
	write := func() {
		t.Helper()
		proctest.Value(p.Write(ctx, process.Input{Data: []byte("go\n")}))(t)
	}
	write()
	was := d.awaitStall(t, p, kept, stall)
	write()
	proctest.Value(p.Wait(ctx, process.Until{EOF: true}))(t)
	if lag := d.readerLag(t); lag <= was {
		t.Errorf("the metrics say that the reader is %d bytes behind; it was %d before %d more were written", lag, was, overrun)
	}
}

// awaitStall waits until a process has written what it is to and its reader has
// not moved for a while, and returns how far that is behind.
func (d *daemon) awaitStall(t *testing.T, p process.Process, written int64, stall time.Duration) (lag int64) {
	t.Helper()
	was, since := int64(0), time.Now()
	for end := since.Add(3 * time.Minute); time.Since(since) < 200*time.Millisecond+stall; time.Sleep(20 * time.Millisecond) {
		info := proctest.Info(t, p)
		if time.Now().After(end) {
			t.Fatalf("the reader does not stall: it is %d bytes behind, of %d that are to be %d", was, info.Streams[0].End, written)
		}
		lag := d.readerLag(t)
		if lag != was || lag == 0 || info.Streams[0].End < written {
			was, since = lag, time.Now()
		}
	}
	return was
}

var readerLag = regexp.MustCompile(`(?m)^tend_reader_lag_bytes (\S+)$`)

// readerLag is how far the reader that is furthest behind is.
func (d *daemon) readerLag(t *testing.T) int64 {
	t.Helper()
	_, text := d.Ask(t, http.MethodGet, "/-/metrics", "")
	m := readerLag.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no lag in the metrics:\n%s", text)
	}
	return int64(proctest.Value(strconv.ParseFloat(m[1], 64))(t))
}

func checkGap(t *testing.T, want, told string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("the stream broke: %v (told: %q)", err, told)
	}
	m := regexp.MustCompile(want).FindStringSubmatch(told)
	if m == nil {
		t.Fatalf("the gap was told as %.300q; want %s", told, want)
	}
	var from, to int64
	fmt.Sscan(m[1]+" "+m[2], &from, &to)
	if from < 0 || to <= from || to > written {
		t.Errorf("the gap is %d to %d of %d", from, to, written)
	}
}

func sdkEvents(t *testing.T, _ *daemon, p process.Process, _ int) func() (string, error) {
	r := proctest.Value(p.Read(t.Context(), process.ReadOptions{}))(t)
	return func() (told string, err error) {
		at := int64(0)
		for ev, err := range process.Follow(t.Context(), r) {
			switch {
			case err != nil:
				return told, err
			case ev.Kind == process.EventGap:
				told = fmt.Sprintf("gap %d %d", ev.Gap.From, ev.Gap.To)
				if ev.Gap.From != at {
					return told, fmt.Errorf("the gap begins at %d, after byte %d", ev.Gap.From, at)
				}
				at = ev.Gap.To
			case ev.Kind == process.EventOutput:
				if ev.Offset != at {
					return told, fmt.Errorf("byte %d comes after byte %d", ev.Offset, at)
				}
				at += int64(len(ev.Data))
			}
		}
		if at != written {
			err = fmt.Errorf("it ended at byte %d", at)
		}
		return told, err
	}
}

func sdkOutput(t *testing.T, d *daemon, p process.Process, _ int) func() (string, error) {
	h := proctest.Value(d.Connect(t).Attach(t.Context(), string(p.ID())))(t)
	t.Cleanup(func() { h.Close() })
	// The stream opens with the first byte that is asked for.
	first := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(h.Stdout(), make([]byte, 1))
		first <- err
	}()
	return func() (told string, err error) {
		if err := <-first; err != nil {
			return "", err
		}
		for at := int64(1); ; {
			n, err := io.Copy(io.Discard, h.Stdout())
			at += n
			gap, ok := errors.AsType[*process.GapError](err)
			switch {
			case !ok && err == nil && at != written:
				return told, fmt.Errorf("it ended at byte %d of %d", at, written)
			case !ok:
				return told, err
			case gap.From != at:
				return told, fmt.Errorf("the gap begins at %d, after byte %d", gap.From, at)
			}
			told, at = gap.Error(), gap.To
		}
	}
}

func sdkWait(t *testing.T, c *tend.Client, spec process.Spec) (process.Process, func() (string, error)) {
	return sdkWriter(t, c, spec, nil)
}

func sdkOnGap(t *testing.T, c *tend.Client, spec process.Spec) (process.Process, func() (string, error)) {
	var gap process.Gap
	p, rest := sdkWriter(t, c, spec, func(g process.Gap) { gap = g })
	return p, func() (string, error) {
		if told, err := rest(); told != "" || err != nil {
			return told, err
		}
		return fmt.Sprintf("gap %d %d", gap.From, gap.To), nil
	}
}

// sdkWriter stalls in the first Write.
func sdkWriter(t *testing.T, c *tend.Client, spec process.Spec, onGap func(process.Gap)) (process.Process, func() (string, error)) {
	stalled := make(stalling)
	goOn := sync.OnceFunc(func() { close(stalled) })
	h := proctest.Value(c.Spawn(t.Context(), tend.Cmd{Spec: spec, Stdout: stalled, OnGap: onGap}))(t)
	t.Cleanup(func() {
		goOn() // Close waits for the writer
		h.Close()
	})
	return h.Raw(), func() (string, error) {
		goOn()
		res, err := h.Wait(t.Context(), tend.WaitOptions{})
		if !res.Success || !strings.HasSuffix(res.Stdout, "end\n") {
			err = fmt.Errorf("the result is not whole: %v %w", &res.Exit, err)
		}
		if gap, ok := errors.AsType[*process.GapError](err); ok {
			return gap.Error(), nil
		}
		return "", err
	}
}

// stalling is a writer that waits until it is closed.
type stalling chan struct{}

func (s stalling) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}
