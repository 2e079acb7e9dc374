//go:build linux

package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// keepOfTest is what is kept of a stream in these tests: all else is freed behind
// the readers, 64 MiB behind them and 32 MiB at a time.
const keepOfTest = 1 << 20

func base(t *testing.T, p process.Process) process.StreamInfo {
	t.Helper()
	return proctest.Info(t, p).Streams[0]
}

// readTo reads until a stream has come to an offset, and fails at a gap.
func readTo(t *testing.T, r process.Reader, to int64) {
	t.Helper()
	for at := int64(0); at < to; {
		ev, ok, err := r.Next()
		switch {
		case err != nil:
			t.Fatal(err)
		case !ok:
			<-r.Ready()
		case ev.Kind == process.EventGap:
			t.Fatalf("a gap: %+v", ev.Gap)
		case ev.Kind == process.EventOutput:
			if ev.Offset != at && at != 0 {
				t.Fatalf("output at %d after %d", ev.Offset, at)
			}
			at = ev.Offset + int64(len(ev.Data))
		}
	}
}

// A long stream is freed behind the reader that is furthest behind, and none that
// reads on meets a gap; where it was is held for one that comes back.
func TestALongStreamIsFreedBehindItsReaders(t *testing.T) {
	const size = 400 << 20
	m, _ := nextServer(t, testkeeper.Start(t), client.Config{Keep: keepOfTest})
	p := proctest.Start(t, m, process.Spec{Shell: fmt.Sprintf("head -c %d /dev/zero; read x; head -c %d /dev/zero; read x", size, size), Stdin: process.StdinPipe})
	read := func(from int64) process.Reader {
		t.Helper()
		r := proctest.Value(p.Read(t.Context(), process.ReadOptions{From: [4]int64{process.Stdout: from}}))(t)
		return r
	}
	slow, fast := read(0), read(0)
	defer fast.Close()
	readTo(t, fast, size)
	if b := base(t, p); b.Base != 0 || b.End != size {
		t.Fatalf("with a reader that has read nothing it is %+v", b)
	}
	readTo(t, slow, 200<<20) // no gap
	slow.Close()             // as if it had been cut
	proctest.Write(t, p, "\n")
	readTo(t, fast, 2*size)
	proctest.Eventually(t, "what all have passed is freed", func() bool { return base(t, p).Base > 0 })
	if b := base(t, p); b.Base > 136<<20 {
		t.Fatalf("the place of a reader that was cut is not held: %+v", b)
	}
	back := read(200<<20 - 1000)
	readTo(t, back, 2*size)
	proctest.Write(t, p, "\n")
	if b := base(t, p); b.Base > 2*size-64<<20 {
		t.Errorf("more is freed than its readers have passed: %+v", b)
	}
	back.Close()
}

// A process that says what is to be kept of it is left alone.
func TestALimitThatIsGivenIsKept(t *testing.T) {
	const size = 200 << 20
	m, _ := nextServer(t, testkeeper.Start(t), client.Config{Keep: keepOfTest})
	p := proctest.Start(t, m, process.Spec{Shell: fmt.Sprintf("head -c %d /dev/zero", size), Retention: process.Retention{Limit: size + 2<<20}})
	r := proctest.Read(t, p, process.ReadOptions{})
	readTo(t, r, size)
	if b := base(t, p); b.Base != 0 || b.End != size {
		t.Errorf("it is %+v", b)
	}
}

// What nobody has read is kept longer than what its readers have passed; whoever
// only waits for a condition has read nothing.
func TestWhatNobodyHasReadIsKeptLonger(t *testing.T) {
	const size = 200 << 20
	m, _ := nextServer(t, testkeeper.Start(t), client.Config{Budget: 8 << 30})
	client.SetKeep(m, keepOfTest, size)
	p := proctest.Start(t, m, process.Spec{Shell: fmt.Sprintf("head -c %d /dev/zero; read x; echo; read x", size-keepOfTest), Stdin: process.StdinPipe})
	client.ForgetPlaces(p)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := p.Wait(ctx, process.Until{Match: "never"})
		waited <- err
	}()
	proctest.Eventually(t, "all is written", func() bool { return base(t, p).End == size-keepOfTest })
	if b := base(t, p); b.Base != 0 {
		t.Errorf("nobody has read it, and it is %+v", b)
	}
	cancel()
	<-waited
	client.ForgetPlaces(p)
	r := proctest.Read(t, p, process.ReadOptions{})
	readTo(t, r, size-keepOfTest)
	proctest.Write(t, p, "\n")
	readTo(t, r, size-keepOfTest+1)
	if _, _, err := r.Next(); err != nil { // it says that it has passed the last
		t.Fatal(err)
	}
	proctest.Eventually(t, "what its reader has passed is freed", func() bool {
		client.LookAgain(p)
		return base(t, p).Base > 0
	})
}
