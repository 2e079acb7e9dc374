// Package protocoltest is the conformance suite for faces. It tests the life cycle of a
// process: spawn, stream, drop, resume, signal, exit. A face runs it through a small
// adapter that speaks its wire protocol as a client:
//
//	protocoltest.Run(t, func(t *testing.T) protocoltest.Client { … })
package protocoltest

import (
	"strings"
	"testing"
)

// Client speaks one face's protocol to a server of its own. Each method fails
// the test when the protocol is broken.
type Client interface {
	// Start runs a /bin/sh line with stdin open and returns when the face
	// says that it runs.
	Start(t *testing.T, line string) Stream
	// Resume reads the process of an earlier stream from byte from of its
	// stdout on.
	Resume(t *testing.T, s Stream, from int64) Stream
	// Input feeds stdin; EOF closes it.
	Input(t *testing.T, s Stream, text string)
	EOF(t *testing.T, s Stream)
	// Signal signals the process.
	Signal(t *testing.T, s Stream, sig int)
}

// Stream is the output of one process as one client sees it.
type Stream interface {
	// Next waits for the next event. ok is false at the end of the stream.
	Next(t *testing.T) (ev Event, ok bool)
	// Drop cuts the connection without a word.
	Drop()
}

// Event is output, or the end of the process.
type Event struct {
	Stdout, Stderr []byte
	Exit           *Exit
}

// Exit is how a process ended, in the words of the kernel.
type Exit struct{ Code, Signal int }

// Run runs the suite. open returns a client of a fresh server.
func Run(t *testing.T, open func(t *testing.T) Client) {
	for _, tc := range []struct {
		name string
		run  func(*testing.T, Client)
	}{
		{"the output of both streams comes before the exit code", outputAndExit},
		{"a process outlives its client, which resumes without loss or repeat", dropAndResume},
		{"a signal ends a process and is told", signalled},
		{"input arrives in order and ends", input},
		{"a reader that never reads holds nobody up", stalled},
		{"setsid as the command runs its program in place", inPlace},
		{"kill 0 and a kill of the group reach the process's own group", ownGroup},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, open(t)) })
	}
}

func outputAndExit(t *testing.T, c Client) {
	got := rest(t, c.Start(t, "printf out; printf err >&2; exit 7"))
	want(t, got, "out", "err", Exit{Code: 7})
}

func dropAndResume(t *testing.T, c Client) {
	s := c.Start(t, "printf 'one '; read x; printf 'two '; read x; printf three")
	first := until(t, s, "one ")
	s.Drop()
	c.Input(t, s, "\n")
	again := c.Resume(t, s, int64(len(first)))
	second := until(t, again, "two ")
	again.Drop()
	c.Input(t, s, "\n")
	got := rest(t, c.Resume(t, s, int64(len(first)+len(second))))
	got.stdout = first + second + got.stdout
	want(t, got, "one two three", "", Exit{})
}

func signalled(t *testing.T, c Client) {
	s := c.Start(t, "printf ready; exec sleep 600")
	until(t, s, "ready")
	c.Signal(t, s, 15)
	want(t, rest(t, s), "", "", Exit{Signal: 15})
}

func input(t *testing.T, c Client) {
	s := c.Start(t, "exec cat")
	text := strings.Repeat("0123456789abcdef", 8<<10)
	for _, part := range []string{text[:1], text[1:1000], text[1000:]} {
		c.Input(t, s, part)
	}
	c.EOF(t, s)
	want(t, rest(t, s), text, "", Exit{})
}

// inPlace: clients wrap commands in setsid(1), which forks if it leads its group, and ends at
// once.
func inPlace(t *testing.T, c Client) {
	got := rest(t, c.Start(t, "exec setsid sh -c 'sleep 2; echo late; exit 3'"))
	want(t, got, "late\n", "", Exit{Code: 3})
}

func ownGroup(t *testing.T, c Client) {
	other := c.Start(t, "read x; exit 4")
	group := "$(cut -d' ' -f5 /proc/$$/stat)"
	got := rest(t, c.Start(t, `[ `+group+` != $$ ] && [ `+group+` = $(cut -d' ' -f6 /proc/$$/stat) ] && printf member`))
	want(t, got, "member", "", Exit{})
	for line, sig := range map[string]int{"sleep 600 & kill 0; wait": 15, "sleep 600 & kill -KILL -" + group + "; wait": 9} {
		want(t, rest(t, c.Start(t, line)), "", "", Exit{Signal: sig})
	}
	c.Input(t, other, "\n")
	want(t, rest(t, other), "", "", Exit{Code: 4})
}

func stalled(t *testing.T, c Client) {
	const size = 12 << 20
	// Tabs are two bytes of text in each protocol of JSON.
	s := c.Start(t, `read x; head -c 12582912 /dev/zero | tr '\000' '\t'; exit 1`)
	lazy := c.Resume(t, s, 0)
	c.Input(t, s, "\n")
	got := rest(t, s)
	if len(got.stdout) != size || got.exit == nil || got.exit.Code != 1 {
		t.Errorf("got %d bytes and exit %v beside a reader that does not read, want %d and code 1", len(got.stdout), got.exit, size)
	}
	lazy.Drop()
}

type outcome struct {
	stdout, stderr string
	exit           *Exit
}

func rest(t *testing.T, s Stream) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	var exit *Exit
	for {
		ev, ok := s.Next(t)
		if !ok {
			return outcome{stdout.String(), stderr.String(), exit}
		}
		if exit != nil && len(ev.Stdout)+len(ev.Stderr) > 0 {
			t.Error("output came after the exit")
		}
		stdout.Write(ev.Stdout)
		stderr.Write(ev.Stderr)
		if ev.Exit != nil {
			exit = ev.Exit
		}
	}
}

// until reads stdout until it ends with text, and returns it.
func until(t *testing.T, s Stream, text string) string {
	t.Helper()
	var got string
	for !strings.HasSuffix(got, text) {
		ev, ok := s.Next(t)
		if !ok || ev.Exit != nil {
			t.Fatalf("the stream ended after %q, before %q came", got, text)
		}
		got += string(ev.Stdout)
	}
	return got
}

func want(t *testing.T, got outcome, stdout, stderr string, exit Exit) {
	t.Helper()
	if got.stdout != stdout {
		t.Errorf("stdout is %q, want %q", cut(got.stdout), cut(stdout))
	}
	if got.stderr != stderr {
		t.Errorf("stderr is %q, want %q", cut(got.stderr), cut(stderr))
	}
	switch {
	case got.exit == nil:
		t.Error("the stream ended without an exit")
	case *got.exit != exit:
		t.Errorf("exit is %+v, want %+v", *got.exit, exit)
	}
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
