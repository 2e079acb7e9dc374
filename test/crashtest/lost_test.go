//go:build linux

package crashtest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/cli/torture"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// finishedBytes is the length of each stream of a process that ends before the
// crash, and runningBytes of one that runs then.
const (
	finishedBytes = 1<<20 + 3
	runningBytes  = 64 << 20
)

// beforeTheCrash is what runs, or has run, in a daemon that dies as a whole.
type beforeTheCrash struct {
	finished, writer, tree, terminal process.Process
	pids                             []int // of what ran
}

func runBefore(ctx context.Context, t *testing.T, c *tend.Client) *beforeTheCrash {
	t.Helper()
	start := func(s process.Spec) process.Process {
		p := proctest.Start(t, c, s)
		return p
	}
	engine := func(args ...string) []string { return append([]string{self, workArgument}, args...) }
	b := &beforeTheCrash{
		finished: start(process.Spec{Argv: engine("write", strconv.Itoa(finishedBytes), "0s", "7")}),
		writer:   start(process.Spec{Argv: engine("write", strconv.Itoa(runningBytes), "20s", "0")}),
		tree:     start(process.Spec{Shell: "setsid sleep 100000 & echo $!; trap '' HUP TERM; wait"}),
		terminal: start(process.Spec{Argv: []string{"cat"}, PTY: &process.Size{Cols: 80, Rows: 24}}),
	}
	proctest.Value(b.finished.Wait(ctx, process.Until{EOF: true}))(t)
	r := proctest.Wait(t, b.tree, process.Until{Match: "[0-9]+"})
	child := proctest.Value(strconv.Atoi(strings.TrimSpace(r.Match)))(t)
	b.pids = []int{child}
	for _, p := range []process.Process{b.writer, b.tree, b.terminal} {
		info := proctest.Info(t, p)
		b.pids = append(b.pids, info.PID)
	}
	// All that the writer has written before its first pause. Nothing yet is quiet, too.
	proctest.Eventually(t, "the writer has begun", func() bool { return proctest.Info(t, b.writer).Streams[0].End > 0 })
	proctest.Value(b.writer.Wait(ctx, process.Until{Quiet: 200 * time.Millisecond}))(t)
	return b
}

// outputOf checks what is kept of a process's stdout and returns how much it is.
func outputOf(ctx context.Context, t *testing.T, p process.Process) (n int64, exit *process.Exit) {
	t.Helper()
	for ev, err := range process.Events(ctx, p, process.ReadOptions{Streams: []process.Stream{process.Stdout}}) {
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case process.EventGap:
			t.Errorf("gap from %d to %d", ev.Gap.From, ev.Gap.To)
		case process.EventOutput:
			if err := torture.Check(ev.Data, ev.Offset); err != nil || ev.Offset != n {
				t.Fatalf("at byte %d, told as %d: %v", n, ev.Offset, err)
			}
			n += int64(len(ev.Data))
		case process.EventExited:
			exit = ev.Exit
		}
	}
	return n, exit
}

func wantLost(t *testing.T, what string, e *process.Exit) {
	t.Helper()
	if e == nil || !e.Lost() || e.Cause != process.CauseShutdown || e.ShellStatus() != -1 {
		t.Errorf("%s: %+v; want that it was lost, with cause shutdown", what, e)
	}
}

func exitOf(ctx context.Context, t *testing.T, p process.Process) *process.Exit {
	t.Helper()
	info := proctest.Info(t, p)
	return info.Exit
}

// All roles die at one instant, the launcher too. The next daemon has the output
// and exit of each finished process, reports those that ran as lost, and kills
// what still runs of them.
func TestAfterTheDeathOfAllRolesWhatRanIsLostWithCauseShutdown(t *testing.T) {
	t.Parallel()
	ctx, d, c := begin(t, 2*time.Minute)
	b := runBefore(ctx, t, c)
	proctest.Must(t, d.KillAll())
	proctest.Must(t, d.ServeAgain())

	if n, e := outputOf(ctx, t, b.finished); n != finishedBytes || e == nil || e.Code != 7 || e.Cause != process.CauseExited {
		t.Errorf("the finished process: %d bytes, %+v; want %d and code 7", n, e, finishedBytes)
	}
	n, e := outputOf(ctx, t, b.writer)
	if n == 0 {
		t.Error("nothing is left of what the running process had written")
	}
	wantLost(t, "the writer", e)
	wantLost(t, "the tree", exitOf(ctx, t, b.tree))
	wantLost(t, "the terminal", exitOf(ctx, t, b.terminal))

	_, got := d.Post(t, "/tend.v1.ProcessService/Get", `{"process":{"id":"`+string(b.writer.ID())+`"}}`)
	var native struct {
		Info struct {
			Exit struct {
				Code  int
				Cause string
				Lost  bool
			}
		}
	}
	if err := json.Unmarshal([]byte(got), &native); err != nil || !native.Info.Exit.Lost || native.Info.Exit.Cause != "CAUSE_SHUTDOWN" || native.Info.Exit.Code != -1 {
		t.Errorf("native API: %s, %v", got, err)
	}

	st := proctest.Value(c.Status(ctx))(t)
	if st.Promises["kill_reaches_tree"].Kept {
		for _, pid := range b.pids {
			gone(t, pid)
		}
	}
}

// A loss of power also tears files: journals and indexes end at any byte, and
// garbage may follow.
func TestTornFilesAreRepairedAfterTheDeathOfAllRoles(t *testing.T) {
	t.Parallel()
	ctx, d, c := begin(t, 2*time.Minute)
	rnd := rand.New(rand.NewPCG(seed(t), 0))
	for round := range 4 {
		b := runBefore(ctx, t, c)
		proctest.Must(t, d.KillAll())
		for _, p := range []process.Process{b.finished, b.writer, b.tree, b.terminal} {
			dir := filepath.Join(d.StateDir(), "spool", string(p.ID()))
			tear(t, rnd, filepath.Join(dir, "index"), 0)
			if p != b.finished || round%2 == 0 {
				tear(t, rnd, filepath.Join(dir, "journal"), specEnd(t, dir))
			}
		}
		proctest.Must(t, d.ServeAgain())
		n, e := outputOf(ctx, t, b.finished)
		if n != finishedBytes || e == nil || !e.Lost() && (e.Code != 7 || e.Cause != process.CauseExited) {
			t.Errorf("the finished process: %d bytes, %+v; want %d and code 7, or lost if its journal was torn", n, e, finishedBytes)
		}
		if round%2 != 0 && (e == nil || e.Code != 7) {
			t.Errorf("the finished process, with its journal whole: %+v; want code 7", e)
		}
		n, e = outputOf(ctx, t, b.writer)
		if n == 0 {
			t.Error("nothing is left of what the running process had written")
		}
		wantLost(t, "the writer", e)
		wantLost(t, "the tree", exitOf(ctx, t, b.tree))
		wantLost(t, "the terminal", exitOf(ctx, t, b.terminal))
	}
}

// specEnd is how much of a journal is its first record: without it nobody knows
// what the process was.
func specEnd(t *testing.T, dir string) int64 {
	t.Helper()
	b := proctest.Value(os.ReadFile(filepath.Join(dir, "journal")))(t)
	if len(b) < 4 {
		t.Fatalf("a journal of %d bytes", len(b))
	}
	return int64(binary.LittleEndian.Uint32(b)) // package spool: the record's length
}

// tear cuts a file at a random byte, not before least, and sometimes puts
// garbage behind.
func tear(t *testing.T, rnd *rand.Rand, path string, least int64) {
	t.Helper()
	fi, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	at := least + rnd.Int64N(fi.Size()-least+1)
	proctest.Must(t, os.Truncate(path, at))
	if rnd.IntN(2) == 0 {
		return
	}
	f := proctest.Value(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0))(t)
	defer f.Close()
	garbage := make([]byte, rnd.IntN(100))
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	proctest.Value(f.Write(garbage))(t)
}

// gone waits for the end of a process that is nobody's child here.
func gone(t *testing.T, pid int) {
	t.Helper()
	proctest.Eventually(t, "the end of "+strconv.Itoa(pid), func() bool {
		stat, ok := procfs.ReadStat(pid)
		return !ok || stat.Dead()
	})
}
