//go:build unix

package processtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/process"
)

// environment is about what a process finds when it starts.
var environment = []test{
	{"an environment that inherits nothing holds what the spec says", func(t *T) {
		spec := process.Spec{Argv: []string{"/usr/bin/env"}, Inherit: process.InheritNone,
			Env: map[string]string{"A": "1", "EMPTY": "", "SPACES": "  x  ", "BYTES": "\xff\x01é="}}
		lines := strings.Split(strings.TrimSuffix(t.all(t.start(spec)).stdout(), "\n"), "\n")
		slices.Sort(lines)
		want := []string{"A=1", "BYTES=\xff\x01é=", "EMPTY=", "SPACES=  x  "}
		if !slices.Equal(lines, want) {
			t.Errorf("got %q; want %q", lines, want)
		}
	}},
	{"an environment that inherits the user's has PATH, HOME, USER and LOGNAME", func(t *T) {
		got := variables(t.all(t.start(process.Spec{Argv: []string{"/usr/bin/env"}, Env: map[string]string{"A": "1"}})).stdout())
		me, err := user.Current()
		t.check(err)
		if got["HOME"] != me.HomeDir || got["USER"] != me.Username || got["LOGNAME"] != me.Username || got["PATH"] == "" ||
			got["A"] != "1" || len(got) != 5 {
			t.Errorf("got %v; want those of %s (%s), and A", got, me.Username, me.HomeDir)
		}
	}},
	{"an environment that inherits the daemon's has more", func(t *T) {
		spec := process.Spec{Argv: []string{"/usr/bin/env"}, Inherit: process.InheritDaemon, Env: map[string]string{"A": "1", "HOME": "/mine"}}
		got := variables(t.all(t.start(spec)).stdout())
		if got["A"] != "1" || got["HOME"] != "/mine" || got["PATH"] == "" || got["USER"] == "" {
			t.Errorf("got %v", got)
		}
	}},
	{"what the spec says wins over what is inherited, once", func(t *T) {
		spec := process.Spec{Argv: []string{"/usr/bin/env"}, Inherit: process.InheritUser, Env: map[string]string{"PATH": "/only", "HOME": "/h"}}
		out := t.all(t.start(spec)).stdout()
		if strings.Count("\n"+out, "\nPATH=") != 1 || strings.Count("\n"+out, "\nHOME=") != 1 || variables(out)["PATH"] != "/only" ||
			variables(out)["HOME"] != "/h" {
			t.Errorf("got %q", out)
		}
	}},
	{"a program without a slash is found in the PATH of its own environment", func(t *T) {
		dir := t.TempDir()
		t.check(os.WriteFile(filepath.Join(dir, "tend-own-program"), []byte("#!/bin/sh\necho mine \"$0\"\n"), 0o755))
		spec := process.Spec{Argv: []string{"tend-own-program"}, Env: map[string]string{"PATH": "/nowhere:" + dir}}
		t.wantStdout(t.all(t.start(spec)), "mine "+dir+"/tend-own-program\n")
	}},
	{"the words of argv arrive as they are", func(t *T) {
		words := []string{"", " ", "$HOME", "a b", "*", "'", "\"", "\\", "\n", "\xff\xfe", "-n", "é"}
		spec := process.Spec{Argv: append([]string{"/usr/bin/env", "printf", "%s\\0"}, words...)}
		t.wantStdout(t.all(t.start(spec)), strings.Join(words, "\x00")+"\x00")
	}},
	{"the working directory is the one asked for", func(t *T) {
		dir := t.TempDir()
		real, err := filepath.EvalSymlinks(dir)
		t.check(err)
		t.wantStdout(t.all(t.start(process.Spec{Argv: []string{"pwd", "-P"}, Dir: dir})), real+"\n")
	}},
	{"a user given by number is the one the process runs as", func(t *T) {
		asked := [][2]int{{os.Getuid(), os.Getgid()}}
		if os.Getuid() == 0 {
			asked = [][2]int{{65534, 65533}, {0, 65533}}
		}
		for _, want := range asked {
			p := t.start(process.Spec{Shell: "id -u; id -g", User: fmt.Sprintf("%d:%d", want[0], want[1]), Dir: "/"})
			if tr := t.all(p); tr.stdout() != fmt.Sprintf("%d\n%d\n", want[0], want[1]) {
				t.Errorf("got %q, %q; want %d and %d", tr.stdout(), tr.stderr(), want[0], want[1])
			}
		}
	}},
	{"a process is in a session and a group of its own, leads neither, and has no terminal", func(t *T) {
		// Fields of /proc/PID/stat: pid (comm) state ppid pgrp session tty_nr.
		p := t.start(process.Spec{Argv: []string{"cat", "/proc/self/stat"}})
		f := strings.Fields(t.all(p).stdout())
		pid := strconv.Itoa(t.info(p).PID)
		if len(f) < 7 || f[0] != pid || f[4] == pid || f[5] != f[4] || f[4] == "0" || f[6] != "0" {
			t.Errorf("pid %s sees itself as %v", pid, f)
		}
		waiting := t.shIn("cut -d' ' -f6 /proc/$$/stat; read x")
		if in, l := t.info(waiting), t.read(waiting, toTheEnd); in.PID > 0 {
			l.until("it has said its session", func() bool { return strings.HasSuffix(l.stdout(), "\n") })
			if l.stdout() != fmt.Sprintln(in.Session) {
				t.Errorf("its session is told as %d, and is %s", in.Session, l.stdout())
			}
		}
		t.write(waiting, "\n")
		other := strings.Fields(t.all(t.start(process.Spec{Argv: []string{"cat", "/proc/self/stat"}})).stdout())
		own, err := os.ReadFile("/proc/self/stat")
		t.check(err)
		if mine := strings.Fields(string(own)); len(other) < 7 || other[4] == f[4] || mine[4] == f[4] {
			t.Errorf("groups of others: %v, %v", other, mine)
		}
	}},
	{"setsid as the command runs its program in place", func(t *T) {
		p := t.start(process.Spec{Argv: []string{"setsid", "sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat; sleep 2; echo late; exit 3"}})
		pid := strconv.Itoa(t.info(p).PID)
		if tr := t.all(p); tr.stdout() != pid+" "+pid+" "+pid+"\nlate\n" || tr.exit.Code != 3 {
			t.Errorf("pid %s: got %q, %+v", pid, tr.stdout(), tr.exit)
		}
	}},
	{"no signal is blocked or ignored at the start", func(t *T) {
		tr := t.all(t.start(process.Spec{Argv: []string{"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"}}))
		for row := range strings.Lines(tr.stdout()) {
			name, mask, _ := strings.Cut(strings.TrimSpace(row), ":")
			if n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64); name != "SigCgt" && (err != nil || n != 0) {
				t.Errorf("%s is %s; want none", name, mask)
			}
		}
		if strings.Count(tr.stdout(), "\n") != 3 {
			t.Errorf("got %q, %q", tr.stdout(), tr.stderr())
		}
	}},
	{"a process has no descriptors but 0, 1 and 2", func(t *T) {
		for _, spec := range []process.Spec{{}, {Stdin: process.StdinPipe}, {PTY: &process.Size{Cols: 80, Rows: 24}}} {
			spec.Argv = []string{"ls", "/proc/self/fd"} // and 3, which ls has opened to look
			tr := t.all(t.start(spec))
			if got := strings.Fields(tr.stdout() + tr.pty()); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
				t.Errorf("got descriptors %v", got)
			}
		}
	}},
	{"limits are set before the program runs", func(t *T) {
		spec := process.Spec{Shell: "ulimit -Sn; ulimit -Hn; nice; cat /proc/self/oom_score_adj", Dir: "/", Limits: process.Limits{
			Rlimits: []process.Rlimit{{Resource: 7, Soft: 60, Hard: 61}}, Nice: 5, OOMScoreAdj: 100,
		}}
		t.wantStdout(t.all(t.start(spec)), "60\n61\n5\n100\n")
	}},
	{"a limit that this machine cannot enforce is an error", func(t *T) {
		p, err := t.m.Start(t.ctx, process.Spec{Shell: "exit 3", Dir: "/", Limits: process.Limits{MemoryMax: 1 << 30, PidsMax: 100}})
		if err != nil {
			if !errors.Is(err, process.ErrUnsupported) {
				t.Errorf("got error %v; want the process, or %q", err, process.ErrUnsupported)
			}
			return
		}
		t.wantCode(p, 3)
	}},
}

// variables reads the output of env.
func variables(out string) map[string]string {
	m := map[string]string{}
	for row := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "=")
		m[k] = v
	}
	return m
}
