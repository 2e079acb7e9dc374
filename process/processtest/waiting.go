//go:build unix

package processtest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tend-run/tend/process"
)

// waiting is about the conditions of Wait.
var waiting = []test{
	{"a wait for the exit returns the exit, before and after it", func(t *T) {
		p := t.shIn("read x; exit 3")
		got := t.waitLater(p, process.Until{})
		t.write(p, "\n")
		for _, res := range []process.WaitResult{<-got, t.wait(p, process.Until{})} {
			if !res.Met || res.Exit == nil || res.Exit.Code != 3 {
				t.Errorf("got %+v; want it met, with code 3", res)
			}
		}
	}},
	{"a wait returns how much output there was", func(t *T) {
		p := t.sh("echo four; echo 12 >&2")
		want := []process.StreamInfo{{Stream: process.Stdout, End: 5, EOF: true}, {Stream: process.Stderr, End: 3, EOF: true}}
		if res := t.wait(p, process.Until{EOF: true}); !slices.Equal(res.Streams, want) {
			t.Errorf("got %+v; want %+v", res.Streams, want)
		}
	}},
	{"a wait for quiet is met while the process says nothing", func(t *T) {
		p := t.shIn("echo once; read x")
		if res := t.wait(p, process.Until{Quiet: 10 * time.Millisecond}); !res.Met || res.Exit != nil {
			t.Errorf("got %+v; want it met without an exit", res)
		}
	}},
	{"a condition that cannot hold any more ends with the exit, not met", func(t *T) {
		for _, u := range []process.Until{{Quiet: time.Hour}, {Match: "never"}, {Port: 1}} {
			p := t.shIn("read x; exit 4")
			got := t.waitLater(p, u)
			t.write(p, "\n")
			if res := <-got; res.Met || res.Exit == nil || res.Exit.Code != 4 {
				t.Errorf("%+v: got %+v; want it not met, with exit 4", u, res)
			}
		}
	}},
	{"a match is found in what was written before and in what comes", func(t *T) {
		p := t.shIn("echo early; read x; echo late >&2; read x")
		t.wantMatch(p, process.Until{Match: "^e.*y$"}, process.Stdout, 0, "early")
		got := t.waitLater(p, process.Until{Match: "l.t"})
		t.write(p, "\n")
		if res := <-got; !res.Met || res.Match != "lat" || res.Stream != process.Stderr || res.Offset != 0 {
			t.Errorf("got %+v; want \"lat\" at 0 of stderr", res)
		}
	}},
	{"a match that is written in two pieces is found whole", func(t *T) {
		p := t.shIn("echo first; printf list; read x; echo ening on 80; read x")
		t.stdoutOf(p, 10)
		got := t.waitLater(p, process.Until{Match: `listening on \d+`})
		t.write(p, "\n")
		if res := <-got; !res.Met || res.Match != "listening on 80" || res.Offset != 6 {
			t.Errorf("got %+v; want the whole of it at 6", res)
		}
	}},
	{"a match does not reach over the end of a line", func(t *T) {
		if res := t.wait(t.sh("echo a; echo b"), process.Until{Match: `a\s*b`}); res.Met || res.Exit == nil {
			t.Errorf("got %+v; want it not met", res)
		}
	}},
	{"a match is searched from an offset on", func(t *T) {
		p := t.shIn("echo go; echo go; read x")
		t.wantMatch(p, process.Until{Match: "go"}, process.Stdout, 0, "go")
		t.wantMatch(p, process.Until{Match: "go", From: [4]int64{process.Stdout: 3}}, process.Stdout, 3, "go")
		got := t.waitLater(p, process.Until{Match: "go", From: [4]int64{process.Stdout: 6}})
		t.closeInput(p)
		if res := <-got; res.Met {
			t.Errorf("got %+v; want nothing after 6", res)
		}
	}},
	{"a prompt without a line end is matched", func(t *T) {
		p := t.shIn("printf 'name? '; read x")
		t.wantMatch(p, process.Until{Match: `\? $`}, process.Stdout, 4, "? ")
	}},
	{"the output of a finished process is searched", func(t *T) {
		p := t.sh("echo one; printf tail")
		t.exit(p)
		t.wantMatch(p, process.Until{Match: "il$"}, process.Stdout, 6, "il")
	}},
	{"a listening port is found with its address", func(t *T) {
		spec := t.play("listen")
		spec.Stdin = process.StdinPipe
		p := t.start(spec)
		res := t.wait(p, process.Until{Match: `^\d+$`})
		port, err := strconv.Atoi(res.Match)
		if err != nil {
			t.Fatalf("no port was told: %+v", res)
		}
		res = t.wait(p, process.Until{Port: port})
		if !res.Met || len(res.Listening) != 1 || res.Listening[0].PID != t.info(p).PID {
			t.Fatalf("got %+v; want one listener of the process itself", res)
		}
		if a, err := netip.ParseAddrPort(res.Listening[0].Address); err != nil || int(a.Port()) != port || !a.Addr().IsLoopback() {
			t.Errorf("it listens on %q, %v; want port %d of loopback", res.Listening[0].Address, err, port)
		}
	}},
	{"a port of a descendant in a session of its own is found", func(t *T) {
		words := []string{"role=listen"}
		if !t.suite.lacks(Orphans) {
			words = []string{"-", "role=listen"} // then even one that lost its parent
		}
		spec := t.play("session", words...)
		spec.Argv = append([]string{"/bin/sh", "-c", `"$@"; read x`, "sh"}, spec.Argv...)
		spec.Stdin = process.StdinPipe
		p := t.start(spec)
		port, err := strconv.Atoi(t.wait(p, process.Until{Match: `^\d+$`}).Match)
		t.check(err)
		if res := t.wait(p, process.Until{Port: port}); !res.Met || len(res.Listening) != 1 || res.Listening[0].PID == t.info(p).PID {
			t.Errorf("got %+v; want one listener, the descendant", res)
		}
	}},
	{"a process that reads its stdin waits for input, certainly", func(t *T) {
		t.wantInput(t.shIn("printf 'name: '; read x"), process.InputCertain)
		t.wantInput(t.shIn("cat; true"), process.InputCertain)
	}},
	{"a process that reads its terminal waits for input, certainly", func(t *T) {
		t.wantInput(t.start(process.Spec{Shell: "read x", PTY: &process.Size{Cols: 80, Rows: 24}}), process.InputCertain)
	}},
	{"a terminal that does not echo asks for a password", func(t *T) {
		t.wantInput(t.start(process.Spec{Shell: "stty -echo; printf 'Password: '; read x", PTY: &process.Size{Cols: 80, Rows: 24}}),
			process.InputPassword)
	}},
	{"input ends the waiting for input", func(t *T) {
		p := t.shIn("read x; echo $x; exec 0</dev/null; exec sleep 100000")
		t.wantInput(p, process.InputCertain)
		t.write(p, "word\n")
		t.wantMatch(p, process.Until{Match: "word"}, process.Stdout, 0, "word")
		got := t.waitLater(p, process.Until{Input: true})
		t.signal(p, syscall.SIGKILL, process.ScopeLeader)
		if res := <-got; res.Met || res.Exit == nil {
			t.Errorf("got %+v; want it not met, as nobody reads", res)
		}
	}},
	{"the tree is gone when the last descendant is", func(t *T) {
		p := t.sh("sleep 100000 & exit 5")
		t.exit(p)
		if in := t.info(p); in.TreeGone {
			t.Error("the tree is told gone while a descendant lives")
		}
		got := t.waitLater(p, process.Until{TreeGone: true})
		t.kill(p)
		if res := <-got; !res.Met || res.Exit == nil || res.Exit.Code != 5 {
			t.Errorf("got %+v; want it met, with exit 5", res)
		}
		if in := t.info(p); !in.TreeGone {
			t.Error("the tree is not told gone")
		}
	}},
	{"the end of the streams is met after the exit, when the last holder is gone", func(t *T) {
		gate := t.gate()
		p := t.sh("{ cat " + quote(gate.path) + " >/dev/null; echo late; } & exit 6")
		t.exit(p)
		got := t.waitLater(p, process.Until{EOF: true})
		gate.open(t)
		if res := <-got; !res.Met || res.Exit == nil || res.Exit.Code != 6 {
			t.Errorf("got %+v; want it met, with exit 6", res)
		}
		in := t.info(p)
		if si, ok := in.Stream(process.Stdout); !ok || !si.EOF || si.End != 5 {
			t.Errorf("stdout is %+v; want its end at 5", si)
		}
	}},
	{"a wait that is wrong is refused with the name of the field", func(t *T) {
		p := t.shIn("read x")
		for field, u := range map[string]process.Until{"match": {Match: "("}, "port": {Port: 65536}, "quiet": {Quiet: -1}} {
			_, err := p.Wait(t.ctx, u)
			t.wantInvalid(err, field)
		}
		_, err := p.Wait(t.ctx, process.Until{Match: "x", From: [4]int64{process.Stdout: 1 << 40}})
		t.wantError("an offset past the end", err, process.ErrOffset)
	}},
	{"a context ends the wait and not the process", func(t *T) {
		p := t.shIn("read x; exit 9")
		for _, u := range []process.Until{{}, {Quiet: time.Hour}, {Match: "x"}, {Port: 1}, {TreeGone: true}, {EOF: true}} {
			ctx, cancel := context.WithCancel(t.ctx)
			done := later(func() error {
				_, err := p.Wait(ctx, u)
				return err
			})
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("%+v: got %v; want the context's error", u, err)
			}
		}
		t.write(p, "\n")
		t.wantCode(p, 9)
	}},
}

// wait waits for a condition.
func (t *T) wait(p process.Process, u process.Until) process.WaitResult {
	t.Helper()
	res, err := p.Wait(t.ctx, u)
	if err != nil {
		t.Fatalf("wait for %+v: %v", u, err)
	}
	return res
}

// waitLater waits in the background. The result is the zero value after an
// error.
func (t *T) waitLater(p process.Process, u process.Until) <-chan process.WaitResult {
	got := make(chan process.WaitResult, 1)
	go func() {
		res, err := p.Wait(t.ctx, u)
		if err != nil {
			t.Errorf("wait for %+v: %v", u, err)
		}
		got <- res
	}()
	return got
}

func (t *T) wantMatch(p process.Process, u process.Until, s process.Stream, at int64, text string) {
	t.Helper()
	if res := t.wait(p, u); !res.Met || res.Match != text || res.Stream != s || res.Offset != at {
		t.Errorf("match %q: got %+v; want %q at %d of %s", u.Match, res, text, at, s)
	}
}

func (t *T) wantInput(p process.Process, want process.InputState) {
	t.Helper()
	if res := t.wait(p, process.Until{Input: true}); !res.Met || res.Input != want {
		t.Errorf("got %+v; want input %s", res, want)
	}
}
