package healer_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/supervisor"
)

func TestWhenARestartIsNotEnough(t *testing.T) {
	type seen struct {
		n     supervisor.Notice
		after time.Duration
	}
	exit, ready, start := supervisor.NoticeExit, supervisor.NoticeReady, supervisor.NoticeStarted
	for name, c := range map[string]struct {
		seen []seen
		want string
	}{
		"one crash":                      {[]seen{{start, 0}, {ready, 1}, {exit, 9}, {start, 0}, {ready, 1}}, ""},
		"a crash at each start":          {[]seen{{start, 0}, {exit, 1}, {start, 0}, {exit, 1}}, "exit"},
		"slow flaps":                     {[]seen{{ready, 1}, {exit, 5}, {start, 0}, {ready, 1}, {exit, 5}}, "flap"},
		"well for days, and then never":  {[]seen{{start, 0}, {ready, 1}, {exit, 9}, {start, 0}, {exit, 1}}, "exit"},
		"a crash each hour":              {[]seen{{ready, 1}, {exit, 3600}, {ready, 1}, {exit, 3600}, {ready, 1}, {exit, 3600}}, ""},
		"deaf once":                      {[]seen{{ready, 1}, {supervisor.NoticeUnhealthy, 9}, {start, 0}, {ready, 1}}, ""},
		"deaf after its restart":         {[]seen{{ready, 1}, {supervisor.NoticeUnhealthy, 9}, {start, 0}, {ready, 1}, {supervisor.NoticeUnhealthy, 9}}, "health"},
		"serves elsewhere":               {[]seen{{start, 0}, {supervisor.NoticeElsewhere, 10}}, "health"},
		"given up":                       {[]seen{{supervisor.NoticeFailed, 1}}, "exit"},
		"stuck: the restart is all":      {[]seen{{ready, 1}, {supervisor.NoticeStuck, 20}, {start, 0}, {ready, 1}}, ""},
		"it stood still":                 {[]seen{{ready, 1}, {supervisor.NoticeResumed, 3600}, {supervisor.NoticeResumed, 3600}}, ""},
		"completed, and run once more":   {[]seen{{exit, 1}, {supervisor.NoticeCompleted, 0}, {start, 9}, {exit, 1}}, ""},
		"flapping, as the window counts": {[]seen{{supervisor.NoticeFlapping, 1}}, "flap"},
	} {
		var s healer.Sense
		got, at := "", t0
		for _, one := range c.seen {
			at = at.Add(one.after * time.Second)
			if signal := s.Saw(&supervisor.Effect{Notice: one.n, Run: 1}, at); signal != nil {
				got = signal.Kind
			}
		}
		if got != c.want {
			t.Errorf("%s: signal %q; %q is wanted", name, got, c.want)
		}
	}
}

// Whoever crashes each 75 s is well for longer than faults are remembered, each time.
func TestEqualFaultsOfAnHourCountTogether(t *testing.T) {
	for name, c := range map[string]struct {
		each   time.Duration
		exit   func(n int) supervisor.Effect
		wanted int // the fault that opens an episode; 0: none
	}{
		"each 75 s":       {75 * time.Second, func(int) supervisor.Effect { return supervisor.Effect{Text: "exit status 1"} }, 3},
		"each 21 min":     {21 * time.Minute, func(int) supervisor.Effect { return supervisor.Effect{Text: "exit status 1"} }, 3},
		"each 31 min":     {31 * time.Minute, func(int) supervisor.Effect { return supervisor.Effect{Text: "exit status 1"} }, 0},
		"never alike":     {75 * time.Second, func(n int) supervisor.Effect { return supervisor.Effect{Text: fmt.Sprint("exit status ", n)} }, 0},
		"ends by design":  {75 * time.Second, func(int) supervisor.Effect { return supervisor.Effect{Text: "exit status 0", Meant: true} }, 0},
		"a deaf one":      {75 * time.Second, func(int) supervisor.Effect { return supervisor.Effect{Notice: supervisor.NoticeUnhealthy} }, 3},
		"short of memory": {75 * time.Second, func(int) supervisor.Effect { return supervisor.Effect{Notice: supervisor.NoticePressure} }, 0},
	} {
		var s healer.Sense
		at, opened := t0, 0
		for n := 1; n <= 6 && opened == 0; n++ {
			s.Saw(&supervisor.Effect{Notice: supervisor.NoticeStarted}, at)
			s.Saw(&supervisor.Effect{Notice: supervisor.NoticeReady}, at)
			at = at.Add(c.each)
			e := c.exit(n)
			e.Notice = cmp.Or(e.Notice, supervisor.NoticeExit)
			if signal := s.Saw(&e, at); signal != nil {
				opened = n
			}
		}
		if opened != c.wanted {
			t.Errorf("%s: fault %d opened an episode; %d is wanted", name, opened, c.wanted)
		}
	}
}

// A person reads what is wrong, why nothing helped, and what the model thought of it.
func TestTheReasonOfAnEndHasItsCause(t *testing.T) {
	s := healer.State{Why: "nothing that was tried has helped", Cause: "TypeError: x is undefined", Tries: []healer.Try{
		{Remedy: healer.Remedy{Kind: healer.Model}, Text: "x is\nmissing"}, {Remedy: healer.Remedy{Kind: healer.Book}, Text: "npm ci"},
	}}
	if got := s.Reason(); got != "TypeError: x is undefined; nothing that was tried has helped; the model: x is missing" {
		t.Errorf("got %q", got)
	}
	s.Tries[0].Text = strings.Repeat("é", 1000)
	if got := s.Reason(); len(got) > 500 || !strings.HasSuffix(got, "é…") {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}

func TestTheBreaker(t *testing.T) {
	var b healer.Breaker
	at := t0
	for range 4 {
		if why := b.Allows(at, 20, false); why != "" {
			t.Fatal(why)
		}
		b.Begin(at)
		at = at.Add(time.Minute)
		b.End(at, healer.Ready, "")
	}
	if why := b.Allows(at, 20, false); !strings.Contains(why, "in a row") {
		t.Errorf("a repair that does not last: %q", why)
	}
	if why := b.Allows(at, 20, true); why != "" {
		t.Errorf("asked for: %q", why)
	}
	if why := b.Allows(at, 4, true); !strings.Contains(why, "per_day") {
		t.Errorf("the bound of a day: %q", why)
	}
	if why := b.Allows(at.Add(24*time.Hour), 4, false); why != "" {
		t.Errorf("a day later: %q", why)
	}
	at = at.Add(time.Hour)
	b.Begin(at)
	b.End(at, healer.Broken, "nothing helped")
	if why := b.Allows(at.Add(23*time.Hour), 20, false); !strings.Contains(why, "nothing helped") {
		t.Errorf("broken: %q", why)
	}
	b.Rearm(true)
	if why := b.Allows(at.Add(time.Hour), 20, false); why != "" {
		t.Errorf("armed again: %q", why)
	}
	// A repair that was taken back is not made again by itself, for a day or until something changes.
	b = healer.Breaker{}
	b.Decline(t0, "e")
	for _, c := range []struct {
		at    time.Time
		asked bool
		why   bool
	}{{t0.Add(time.Hour), false, true}, {t0.Add(time.Hour), true, false}, {t0.Add(25 * time.Hour), false, false}} {
		if got := b.Allows(c.at, 20, c.asked); (got != "") != c.why {
			t.Errorf("after %v, asked %v: %q", c.at.Sub(t0), c.asked, got)
		}
	}
	if b.Rearm(false); b.Allows(t0, 20, false) != "" {
		t.Error("a change does not help")
	}
	b.Decline(t0, "e")
	if b.Begin(t0); b.Allows(t0, 20, false) != "" {
		t.Error("a repair that was asked for does not help")
	}
}
