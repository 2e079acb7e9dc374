//go:build unix

package processtest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/process"
)

// starts are about starts that fail.
var starts = []test{
	{"a start that cannot be says why", func(t *T) {
		dir := t.TempDir()
		file := func(name, text string, mode os.FileMode) string {
			path := filepath.Join(dir, name)
			t.check(os.WriteFile(path, []byte(text), mode))
			return path
		}
		t.check(os.Chmod(dir, 0o755))
		plain, garbage := file("plain", "#!/bin/sh\n", 0o644), file("garbage", "\x01\x02\x03\x04garbage", 0o755)
		lost := file("lost", "#!/does/not/exist\n", 0o755)
		for _, tt := range []struct {
			name   string
			spec   process.Spec
			reason process.StartReason
			what   string
		}{
			{"no such path", process.Spec{Argv: []string{"/does/not/exist", "x"}}, process.StartNotFound, "/does/not/exist"},
			{"no such name in PATH", process.Spec{Argv: []string{"does-not-exist-anywhere"}}, process.StartNotFound, "does-not-exist-anywhere"},
			{"not in the PATH of its own environment", process.Spec{Argv: []string{"true"}, Env: map[string]string{"PATH": dir}},
				process.StartNotFound, "true"},
			{"an interpreter that does not exist", process.Spec{Argv: []string{lost}}, process.StartNotFound, lost},
			{"a file that is not executable", process.Spec{Argv: []string{plain}}, process.StartPermission, plain},
			{"a directory", process.Spec{Argv: []string{dir}}, process.StartPermission, dir},
			{"a file that is no program", process.Spec{Argv: []string{garbage}}, process.StartFormat, garbage},
			{"a directory that does not exist", process.Spec{Argv: []string{"true"}, Dir: "/does/not/exist"}, process.StartBadDir,
				"/does/not/exist"},
			{"a directory that is a file", process.Spec{Argv: []string{"true"}, Dir: plain}, process.StartBadDir, plain},
			{"a user who does not exist", process.Spec{Argv: []string{"true"}, User: "no-such-user"}, process.StartBadUser, "no-such-user"},
			{"a path longer than the kernel allows", process.Spec{Argv: []string{"/" + strings.Repeat("x/", 2500)}}, process.StartTooLong,
				"/" + strings.Repeat("x/", 2500)},
			{"a name in a path longer than the kernel allows", process.Spec{Argv: []string{"./" + strings.Repeat("x", 256)}},
				process.StartTooLong, "./" + strings.Repeat("x", 256)},
			{"a working directory longer than the kernel allows", process.Spec{Argv: []string{"true"}, Dir: "/" + strings.Repeat("x/", 2500)},
				process.StartBadDir, "/" + strings.Repeat("x/", 2500)},
			{"a name longer than any program's", process.Spec{Argv: []string{strings.Repeat("x", 5000)}}, process.StartNotFound, ""},
			{"a word longer than the kernel allows", process.Spec{Argv: []string{"/bin/sh", "-c", ":", strings.Repeat("x", 200<<10)}},
				process.StartTooLong, ""},
			{"a variable longer than the kernel allows", process.Spec{Argv: []string{"/bin/sh", "-c", ":"},
				Env: map[string]string{"X": strings.Repeat("x", 200<<10)}}, process.StartTooLong, ""},
		} {
			tt.spec.ID = process.NewID()
			if tt.spec.Dir == "" {
				tt.spec.Dir = "/"
			}
			_, err := t.m.Start(t.ctx, tt.spec)
			var start *process.StartError
			if !errors.As(err, &start) {
				t.Errorf("%s: got error %v; want a *StartError", tt.name, err)
				continue
			}
			if start.Reason != tt.reason || tt.what != "" && start.What != tt.what {
				t.Errorf("%s: got reason %s about %q (%v); want %s about %q", tt.name, start.Reason, start.What, err, tt.reason, tt.what)
			}
			if _, err := t.m.Get(t.ctx, process.Selector{ID: tt.spec.ID}); !errors.Is(err, process.ErrNotFound) {
				t.Errorf("%s: a trace is left: %v", tt.name, err)
			}
		}
	}},
	{"a directory whose way is closed to the user is named", func(t *T) {
		if os.Geteuid() != 0 {
			return // nobody else can become another user
		}
		dir := t.TempDir() // its parent is closed to all but root
		open := filepath.Join(dir, "closed", "open")
		t.check(errors.Join(os.MkdirAll(open, 0o777), os.Chmod(open, 0o777), os.Chmod(filepath.Dir(open), 0o700)))
		_, err := t.m.Start(t.ctx, process.Spec{Argv: []string{"/bin/sh", "-c", ":"}, Dir: open, User: "nobody"})
		var start *process.StartError
		if !errors.As(err, &start) || start.Reason != process.StartBadDir || start.What != open {
			t.Errorf("got %v; want the directory named", err)
		}
	}},
	{"a spec that is wrong is refused with the name of the field", func(t *T) {
		word := []string{"true"}
		for _, tt := range []struct {
			spec  process.Spec
			field string
		}{
			{process.Spec{}, "argv"},
			{process.Spec{Argv: word, Shell: "true"}, "argv"},
			{process.Spec{Argv: []string{""}}, "argv[0]"},
			{process.Spec{Argv: []string{"echo", "a\x00b"}}, "argv[1]"},
			{process.Spec{Argv: slices.Repeat(word, process.MaxArgs+1)}, "argv"},
			{process.Spec{Shell: "a\x00b"}, "shell"},
			{process.Spec{Argv: word, Env: map[string]string{"A=B": "c"}}, "env"},
			{process.Spec{Argv: word, Env: map[string]string{"": "c"}}, "env"},
			{process.Spec{Argv: word, Env: map[string]string{"A": "b\x00c"}}, "env[A]"},
			{process.Spec{Argv: []string{"true", strings.Repeat("x", process.MaxSpecBytes)}}, "argv and env"},
			{process.Spec{Argv: word, Dir: "relative"}, "dir"},
			{process.Spec{Argv: word, ID: "../x"}, "id"},
			{process.Spec{Argv: word, ID: process.ID(strings.Repeat("x", process.MaxIDLen+1))}, "id"},
			{process.Spec{Argv: word, Name: strings.Repeat("x", process.MaxNameLen+1)}, "name"},
			{process.Spec{Argv: word, Tag: strings.Repeat("x", process.MaxTagLen+1)}, "tag"},
			{process.Spec{Argv: word, User: strings.Repeat("x", process.MaxTagLen+1)}, "user"},
			{process.Spec{Argv: word, Labels: map[string]string{"a": strings.Repeat("x", process.MaxLabelsLen)}}, "labels"},
			{process.Spec{Argv: word, Timeout: -1}, "timeout"},
			{process.Spec{Argv: word, KillWithoutReaders: -1}, "kill_without_readers"},
			{process.Spec{Argv: word, Retention: process.Retention{Limit: 1}}, "retention.limit"},
			{process.Spec{Argv: word, Limits: process.Limits{Nice: 20}}, "limits.nice"},
			{process.Spec{Argv: word, Limits: process.Limits{Rlimits: make([]process.Rlimit, process.MaxRlimits+1)}}, "limits.rlimits"},
		} {
			_, err := t.m.Start(t.ctx, tt.spec)
			t.wantInvalid(err, tt.field)
		}
	}},
	{"an id whose start failed can be used again", func(t *T) {
		id := process.NewID()
		if _, err := t.m.Start(t.ctx, process.Spec{ID: id, Argv: []string{"/does/not/exist"}, Dir: "/"}); err == nil {
			t.Fatal("a program that does not exist was started")
		}
		p := t.start(process.Spec{ID: id, Shell: "exit 8"})
		if e := t.exit(p); p.ID() != id || e.Code != 8 {
			t.Errorf("%s ended with %+v", p.ID(), e)
		}
	}},
	{"a command line of a megabyte arrives whole", func(t *T) {
		argv := []string{"/bin/sh", "-c", "echo $#; for last; do :; done; echo ${#last}", "sh"}
		word := strings.Repeat("x", 100<<10)
		for range 10 {
			argv = append(argv, word)
		}
		if tr := t.all(t.start(process.Spec{Argv: argv})); tr.stdout() != "10\n102400\n" {
			t.Errorf("the process saw %q of it", tr.stdout())
		}
	}},
}
