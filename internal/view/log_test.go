package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// logged renders a log, and holds it to the order of time.
func logged(t *testing.T, m process.Manager, o view.LogOptions) (text []string, all []view.LogEntry) {
	t.Helper()
	all = proctest.Value(view.Log(t.Context(), m, process.Filter{}, o))(t)
	for i, e := range all {
		if i > 0 {
			if c := e.Time.Compare(all[i-1].Time); c != 0 && (c < 0) != o.Backward {
				t.Fatalf("%v follows %v", e, all[i-1])
			}
		}
		switch e.Kind {
		case view.LogBegan:
			text = append(text, "+ "+e.Text)
		case view.LogEnded:
			text = append(text, "- "+e.Text)
		case view.LogLine:
			text = append(text, e.Text)
		default:
			text = append(text, "! "+e.Text)
		}
	}
	return text, all
}

func wantLog(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("it is\n%q, not\n%q", got, want)
	}
}

// What several processes have done is one log by time, from either end.
func TestALogIsInTheOrderOfTime(t *testing.T) {
	m := testkeeper.New(t)
	var began []string
	run := func(line string) {
		spec := process.Spec{Argv: []string{"sh", "-c", line}}
		began = append(began, "+ "+spec.Command())
		p := proctest.Value(m.Start(t.Context(), spec))(t)
		proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
		time.Sleep(150 * time.Millisecond) // what the time of a line is good for
	}
	run(`printf 'one\n\ntwo\r\nno end'`)
	run(`printf '\n\n'; exit 3`)
	want := []string{began[0], "one", "", "two", "no end", "- exit status 0", began[1], "", "", "- exit status 3"}
	sorted := func(all []string) []string { // the end of a process may be known before its last line
		all = slices.Clone(all)
		slices.Sort(all[:6])
		slices.Sort(all[6:])
		return all
	}
	got, all := logged(t, m, view.LogOptions{})
	if len(got) != len(want) {
		t.Fatalf("it is %q", got)
	}
	wantLog(t, sorted(got), sorted(want)...)
	back, _ := logged(t, m, view.LogOptions{Backward: true})
	if len(back) != len(want) {
		t.Fatalf("backward it is %q", back)
	}
	slices.Reverse(back)
	wantLog(t, sorted(back), sorted(want)...)
	if lines := slices.DeleteFunc(slices.Clone(back), func(s string) bool { return s != "" && strings.ContainsAny(s[:1], "+-") }); !slices.Equal(lines, []string{"one", "", "two", "no end", "", ""}) {
		t.Errorf("backward the lines are %q", lines)
	}
	got, _ = logged(t, m, view.LogOptions{From: all[6].Time})
	wantLog(t, got[:1], want[6])
	got, _ = logged(t, m, view.LogOptions{Backward: true, From: all[5].Time, Limit: 6})
	slices.Reverse(got)
	slices.Sort(got)
	first := slices.Clone(want[:6])
	slices.Sort(first)
	wantLog(t, got, first...)
	got, _ = logged(t, m, view.LogOptions{Match: func(e *view.LogEntry) bool { return strings.Contains(e.Text, "t") && e.Kind == view.LogLine }})
	wantLog(t, got, "two")
	if _, err := view.Log(t.Context(), m, process.Filter{}, view.LogOptions{Limit: -1}); err == nil {
		t.Error("a limit below 0 is taken")
	}
}

// Lines are whole over the borders of what is read at a time, from both ends, and long ones
// are several entries of which none is missing.
func TestALogHasEachLineOnce(t *testing.T) {
	m := testkeeper.New(t)
	const n = 30000
	p := proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", fmt.Sprintf(`seq -f 'line %%06g' %d; head -c 100000 /dev/zero | tr '\0' x; echo; echo last`, n)}}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("line %06d", i+1))
	}
	read := func(backward bool) (all []string) {
		match := func(e *view.LogEntry) bool {
			if e.Kind == view.LogLine {
				all = append(all, e.Text)
			}
			return false
		}
		if got, _ := logged(t, m, view.LogOptions{Backward: backward, Match: match}); len(got) != 0 {
			t.Fatalf("%q", got)
		}
		if backward {
			slices.Reverse(all)
		}
		return all
	}
	for _, backward := range []bool{false, true} {
		all := read(backward)
		if len(all) < n+2 || !slices.Equal(all[:n], lines) || all[len(all)-1] != "last" {
			t.Fatalf("backward %v: %d lines, the last %.20q", backward, len(all), all[len(all)-1])
		}
		if long := strings.Join(all[n:len(all)-1], ""); long != strings.Repeat("x", 100000) {
			t.Errorf("backward %v: the long line has %d bytes", backward, len(long))
		}
	}
}

// A log of much is read from the time on that is asked for, and one in which nothing is
// found says how far it came.
func TestALogOfMuchIsNotReadWhole(t *testing.T) {
	m := testkeeper.New(t)
	p := proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", "line=$(head -c 1000 /dev/zero | tr '\\0' x); yes $line | head -c 40000000; echo; sleep 0.3; echo between; sleep 0.3; yes $line | head -c 40000000; echo; echo end"}}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	find := func(text string) func(*view.LogEntry) bool {
		return func(e *view.LogEntry) bool { return e.Kind == view.LogLine && e.Text == text }
	}
	back, all := logged(t, m, view.LogOptions{Backward: true, Limit: 1, Match: find("end")})
	wantLog(t, back, "end")
	// Each answer that finds nothing leads on.
	o, found := view.LogOptions{Match: find("between"), Limit: 1}, false
	for range 20 {
		_, all = logged(t, m, o)
		if len(all) != 1 {
			t.Fatalf("%d entries", len(all))
		}
		if found = all[0].Kind == view.LogLine; found {
			break
		}
		if all[0].Kind != view.LogMore || !all[0].Time.After(o.From) {
			t.Fatalf("after %v it is %+v", o.From, all[0])
		}
		o.From = all[0].Time
	}
	if !found {
		t.Fatal("the line is not found")
	}
	at := all[0].Time
	for _, backward := range []bool{false, true} {
		got, _ := logged(t, m, view.LogOptions{From: at, Backward: backward, Limit: 1})
		wantLog(t, got, "between")
	}
}

// A line without an end is read on from any time on: it is several entries, and none is lost.
func TestALogGoesOnInALineWithoutAnEnd(t *testing.T) {
	m := testkeeper.New(t)
	p := proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", "head -c 300000 /dev/zero | tr '\\0' a; sleep 0.5; head -c 300000 /dev/zero | tr '\\0' b"}}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	_, all := logged(t, m, view.LogOptions{})
	var from time.Time
	for _, e := range all {
		if e.Kind == view.LogLine && strings.HasPrefix(e.Text, "b") {
			from = e.Time
			break
		}
	}
	got, _ := logged(t, m, view.LogOptions{From: from})
	if text := strings.Join(got, ""); strings.Count(text, "b") != 300000 {
		t.Errorf("%d of 300000 bytes are left", strings.Count(text, "b"))
	}
}

// Each answer of a search through many processes leads on, from either end.
func TestALogOfManyProcessesComesToAnEnd(t *testing.T) {
	m := testkeeper.New(t)
	line := "yes | head -c 70000; echo $0 done"
	const n = 40
	for i := range n {
		p := proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", line, fmt.Sprint(i)}}))(t)
		proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	}
	for _, backward := range []bool{false, true} {
		found := map[string]bool{}
		o := view.LogOptions{Backward: backward, Match: func(e *view.LogEntry) bool {
			if strings.HasSuffix(e.Text, " done") && e.Kind == view.LogLine {
				found[e.Text] = true
			}
			return false
		}}
		for asked := 1; ; asked++ {
			_, all := logged(t, m, o)
			if len(all) == 0 {
				break
			}
			if at := all[0].Time; asked > n || !o.From.IsZero() && !backward && !at.After(o.From) || !o.From.IsZero() && backward && !at.Before(o.From) {
				t.Fatalf("backward %v: after %v it is %+v, and %d are found", backward, o.From, all[0], len(found))
			}
			o.From = all[0].Time
		}
		if len(found) != n {
			t.Errorf("backward %v: %d are found", backward, len(found))
		}
	}
}

// A line has the same time from wherever the log is read: who continues from the last time of
// an answer gets each line.
func TestALogInPartsHasEachLine(t *testing.T) {
	m := testkeeper.New(t)
	const n = 300
	p := proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", fmt.Sprintf("line=$(head -c 1000 /dev/zero | tr '\\0' x); for i in $(seq %d); do echo $i $line; sleep 0.01; done", n)}}))(t)
	proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
	for _, backward := range []bool{false, true} {
		found := map[string]bool{}
		for o := (view.LogOptions{Backward: backward, Limit: 40}); ; {
			_, all := logged(t, m, o)
			for _, e := range all {
				if e.Kind == view.LogLine {
					found[e.Text] = true
				}
			}
			last := all[len(all)-1].Time
			if len(all) < o.Limit {
				break
			}
			if last.Equal(o.From) {
				t.Fatalf("backward %v: it stays at %v", backward, last)
			}
			o.From = last
		}
		if len(found) != n {
			t.Errorf("backward %v: %d of %d lines are found", backward, len(found), n)
		}
	}
}

// What was freed has its place in the order, too.
func TestALogOfWhatWasFreedIsInOrder(t *testing.T) {
	m := testkeeper.New(t)
	for range 2 {
		p := proctest.Value(m.Start(t.Context(), process.Spec{Argv: []string{"sh", "-c", "echo line; sleep 0.2"}}))(t)
		proctest.Value(p.Wait(t.Context(), process.Until{EOF: true}))(t)
		proctest.Must(t, p.Trim(t.Context(), process.Stdout, 5))
	}
	got, _ := logged(t, m, view.LogOptions{Backward: true})
	if len(got) != 6 || !strings.HasPrefix(got[0], "-") || !strings.HasPrefix(got[3], "-") {
		t.Errorf("it is %q", got)
	}
}
