package drivertest

import (
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// Programs in a sandbox: what they inherit, and their sessions and groups.

func inherited(t *testing.T, d driver.Driver) {
	s, info := create(t, d, driver.Spec{Run: driver.RunConfig{Env: map[string]string{"FROM": "sandbox", "A": "1"}}})
	out, status := sh(t, s, `pwd -P; echo "$FROM $A"; exit 3`)
	p, err := s.Processes().Start(t.Context(), process.Spec{Argv: []string{"/bin/sh", "-c", `cd "$0" && pwd -P`, info.Dir}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSuffix(proctest.Output(t, p, process.Stdout), "\n")
	if want := dir + "\nsandbox 1\n"; out != want || status != 3 {
		t.Errorf("got %q and status %d, want %q and 3", out, status, want)
	}
	// Spec.Env stays over the configuration when that is changed.
	s, _ = create(t, d, driver.Spec{Run: driver.RunConfig{Env: map[string]string{"FROM": "run", "A": "run", "B": "run"}},
		Env: map[string]string{"FROM": "sandbox", "A": "1"}})
	if _, err := s.Update(t.Context(), driver.Change{Run: &driver.RunConfig{Env: map[string]string{"FROM": "changed",
		"B": "changed"}}}); err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, s, `echo "$FROM $A $B"`); out != "sandbox 1 changed\n" {
		t.Errorf("the layers give %q", out)
	}
	p, err = s.Processes().Start(t.Context(), process.Spec{Shell: `test "$FROM $A" = "process 1" && test "$PWD" = /`, Dir: "/",
		Env: map[string]string{"FROM": "process"}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit.Code != 0 {
		t.Errorf("what the process says does not win: %+v, %v", res.Exit, err)
	}
}

// ownGroup: the first start in a sandbox takes another way than those after it.
func ownGroup(t *testing.T, d driver.Driver) {
	s, _ := create(t, d, driver.Spec{})
	group := "$(cut -d' ' -f5 /proc/$$/stat)"
	for _, c := range []struct {
		line string
		exit process.Exit
		out  string
	}{
		{"exec setsid sh -c 'sleep 2; echo late; exit 3'", process.Exit{Code: 3}, "late\n"},
		{"exec setsid sh -c 'sleep 0.1; echo late; exit 3'", process.Exit{Code: 3}, "late\n"},
		{"[ " + group + " -gt 0 ] && [ " + group + " != $$ ] && [ " + group + " = $(cut -d' ' -f6 /proc/$$/stat) ] && echo member",
			process.Exit{}, "member\n"},
		{"sleep 600 & kill 0; wait", process.Exit{Signal: 15}, ""},
		{"sleep 600 & kill -KILL -" + group + "; wait", process.Exit{Signal: 9}, ""},
	} {
		p := proctest.Start(t, s.Processes(), process.Spec{Shell: c.line})
		got := proctest.Wait(t, p, process.Until{EOF: true, TreeGone: true}).Exit
		if out := proctest.Output(t, p, process.Stdout); got.Code != c.exit.Code || got.Signal != c.exit.Signal || out != c.out {
			t.Errorf("%s: %+v, %q; want %+v, %q", c.line, got, out, c.exit, c.out)
		}
	}
	// The program of a terminal leads its session, and its shell controls jobs: one in the foreground has the terminal.
	p := proctest.Start(t, s.Processes(), process.Spec{PTY: &process.Size{Cols: 80, Rows: 24}, Shell: `set -m
[ "$$ $$ $$" = "$(cut -d' ' -f5,6,8 /proc/$$/stat)" ] || exit 1
sleep 600 & kill %1; wait %1; [ $? = 143 ] || exit 2
sh -c 'set -- $(cut -d" " -f5,8 /proc/$$/stat); [ $1 = $2 ] && [ $1 != '$$' ]' || exit 3
exit 5`})
	proctest.WantExit(t, p, 5)
}
