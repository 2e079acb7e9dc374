//go:build linux

package raw

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/tend-run/tend/internal/gen/envd/process"

	"github.com/tend-run/tend/internal/support/proctest"
)

func basic(name string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"))
}

func TestEndsOfCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	proctest.Must(t, os.WriteFile(plain, []byte("text"), 0o600))
	for name, tc := range map[string]struct {
		req    *pb.StartRequest
		code   int32
		exited bool
		status string
		err    string
		stderr string
	}{
		"success has no error":                 {sh("true"), 0, true, "exit status 0", "", ""},
		"a failure has the status as error":    {sh("exit 42"), 42, true, "exit status 42", "exit status 42", ""},
		"SIGKILL is -1 and not exited":         {sh("kill -KILL $$"), -1, false, "signal: killed", "signal: killed", ""},
		"SIGTERM is -1 and not exited":         {sh("kill -TERM $$"), -1, false, "signal: terminated", "signal: terminated", ""},
		"a missing command is 127, no error":   {&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "no-such-command"}}, 127, true, "exit status 127", "exit status 127", "No such file or directory"},
		"no command is 127, too":               {&pb.StartRequest{Process: &pb.ProcessConfig{}}, 127, true, "exit status 127", "exit status 127", ""},
		"no process is 127, too":               {&pb.StartRequest{}, 127, true, "exit status 127", "exit status 127", ""},
		"what is not executable is 126":        {&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: plain}}, 126, true, "exit status 126", "exit status 126", "Permission denied"},
		"the shell does not parse the command": {&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "true; exit 3"}}, 127, true, "exit status 127", "exit status 127", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared.open(t, inJSON, "Start", tc.req).started(t).finish(t)
			e := s.end
			if e.GetExitCode() != tc.code || e.GetExited() != tc.exited || e.GetStatus() != tc.status || e.GetError() != tc.err {
				t.Errorf("end is %v", e)
			}
			if (e.Error == nil) != (tc.err == "") {
				t.Errorf("error is %v; absent and empty differ", e.Error)
			}
			if !strings.Contains(string(s.stderr), tc.stderr) {
				t.Errorf("stderr is %q", s.stderr)
			}
		})
	}
}

func TestStartsThatAreRefused(t *testing.T) {
	t.Parallel()
	in := func(cwd string) *pb.StartRequest {
		req := sh("pwd")
		req.Process.Cwd = &cwd
		return req
	}
	env := func(k, v string) *pb.StartRequest {
		req := sh("true")
		req.Process.Envs = map[string]string{k: v}
		return req
	}
	argv := func(cmd, arg string) *pb.StartRequest {
		return &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: cmd, Args: []string{arg}}}
	}
	many := sh("true")
	many.Process.Envs = make(map[string]string)
	for i := range 100_000 {
		many.Process.Envs["VARIABLE_WITH_A_LONG_NAME_"+strconv.Itoa(i)] = strings.Repeat("x", 80)
	}
	for name, tc := range map[string]struct {
		req    *pb.StartRequest
		header []string
		code   string
		text   string
	}{
		"an unknown user":                {sh("true"), []string{"Authorization", basic("nobody-here")}, "unauthenticated", "invalid username: 'nobody-here'"},
		"a missing cwd":                  {in("/nope"), nil, "invalid_argument", "cwd '/nope' does not exist"},
		"a file as cwd":                  {in("/etc/passwd"), nil, "invalid_argument", "not a directory"},
		"another's home as cwd":          {in("~root/x"), nil, "invalid_argument", "cannot expand user-specific home dir"},
		"a malformed timeout":            {sh("true"), []string{"Connect-Timeout-Ms", "soon"}, "invalid_argument", "timeout"},
		"a negative timeout":             {sh("true"), []string{"Connect-Timeout-Ms", "-1"}, "invalid_argument", "timeout"},
		"a NUL byte in an argument":      {argv("/bin/echo", "a\x00b"), nil, "invalid_argument", ""},
		"a NUL byte in the command":      {argv("/bin/ec\x00ho", "a"), nil, "invalid_argument", ""},
		"a NUL byte in a variable":       {env("A", "b\x00c"), nil, "invalid_argument", ""},
		"an = in the name of a variable": {env("A=B", "c"), nil, "invalid_argument", ""},
		"10 MB of arguments":             {argv("/bin/echo", strings.Repeat("x", 10_000_000)), nil, "", ""},
		"100,000 variables":              {many, nil, "", ""},
		"an unknown scope of kills":      {sh("true"), []string{"Tend-Kill-Scope", "galaxy"}, "invalid_argument", "Tend-Kill-Scope"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			codecs(t, func(t *testing.T, c codec) {
				f := shared.open(t, c, "Start", tc.req, tc.header...).refused(t)
				if tc.code != "" && f.Code != tc.code || !strings.Contains(f.Message, tc.text) {
					t.Errorf("refused with %v, want %s: …%s…", f, tc.code, tc.text)
				}
				if f.Code == "internal" || f.Code == "unknown" || f.Message == "" {
					t.Errorf("refused with %v, which blames nobody", f)
				}
			})
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	me := proctest.Value(user.Current())(t)
	req := &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "env", Envs: map[string]string{"MINE": "a=b", "HOME": "/mine", "E2B_SANDBOX": "no"}}}
	s := shared.open(t, inProto, "Start", req).started(t).finish(t)
	got := make(map[string]string)
	for line := range strings.Lines(string(s.stdout)) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[k] = v
	}
	for k, want := range map[string]string{"MINE": "a=b", "HOME": "/mine", "USER": me.Username, "LOGNAME": me.Username, "E2B_SANDBOX": "no", "PATH": os.Getenv("PATH")} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
		delete(got, k)
	}
	delete(got, "PWD")
	if len(got) > 0 {
		t.Errorf("the process inherits %v, too", got)
	}
}

func TestStdinIsAPipeUnlessRefused(t *testing.T) {
	t.Parallel()
	off, on := false, true
	for name, tc := range map[string]struct {
		stdin *bool
		want  string
	}{
		"absent": {nil, "pipe:"}, "true": {&on, "pipe:"}, "false": {&off, "/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared.open(t, inProto, "Start", &pb.StartRequest{
				Process: &pb.ProcessConfig{Cmd: "readlink", Args: []string{"/proc/self/fd/0"}}, Stdin: tc.stdin,
			}).started(t).finish(t)
			if !strings.HasPrefix(string(s.stdout), tc.want) {
				t.Errorf("stdin is %q, want %s", s.stdout, tc.want)
			}
		})
	}
}

// TestTheProcessHasCleanSignalsAndDescriptors also on a daemon that a script
// started in the background, with signals ignored.
func TestTheProcessHasCleanSignalsAndDescriptors(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*daemon{
		"as usual":                     shared,
		"by a shell that ignores some": own(t, "/bin/sh", "-c", `trap "" HUP INT QUIT PIPE USR1; exec "$0" "$@"`),
	} {
		s := d.start(t, `grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd`).finish(t)
		// ls has the directory open as 3.
		none := strings.Repeat("0", 16)
		want := "SigBlk:\t" + none + "\nSigIgn:\t" + none + "\n0\n1\n2\n3\n"
		if got := string(s.stdout); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestListTellsWhatWasAsked(t *testing.T) {
	t.Parallel()
	cwd := "/tmp"
	req := withTag(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "sleep", Args: []string{"60"}, Envs: map[string]string{"A": "b"}, Cwd: &cwd}}, "tag of the list test")
	s := shared.open(t, inProto, "Start", req).started(t)
	p := shared.listed(t, s.pid)
	if p.GetTag() != "tag of the list test" || p.GetConfig().GetCmd() != "sleep" || !slices.Equal(p.GetConfig().GetArgs(), []string{"60"}) ||
		p.GetConfig().GetEnvs()["A"] != "b" || p.GetConfig().GetCwd() != "/tmp" {
		t.Errorf("listed as %v", p)
	}
	shared.kill(t, s.pid)
	s.finish(t)
	proctest.Eventually(t, "the process to leave the list", func() bool { return shared.listed(t, s.pid) == nil })
}

func TestTheTimeoutOfStartIsTheLifetime(t *testing.T) {
	t.Parallel()
	t.Run("the stream ends as the process does", func(t *testing.T) {
		t.Parallel()
		s := shared.start(t, "echo begun; exec sleep 60", "Connect-Timeout-Ms", "700")
		if f := s.refused(t); f.Code != "deadline_exceeded" {
			t.Errorf("ends with %v", f)
		}
		proctest.Eventually(t, "the process to end", func() bool { return !alive(s.pid) })
		late := shared.connect(t, byPID(s.pid)).started(t).finish(t)
		if late.end.GetStatus() != "signal: killed" {
			t.Errorf("a late connection is told %v", late.end)
		}
	})
	t.Run("also when the client has left", func(t *testing.T) {
		t.Parallel()
		s := shared.start(t, "exec sleep 60", "Connect-Timeout-Ms", "700")
		s.res.Body.Close()
		proctest.Eventually(t, "the process to end", func() bool { return !alive(s.pid) })
	})
	t.Run("the leader alone ends, unless the tree is asked for", func(t *testing.T) {
		t.Parallel()
		for scope, survives := range map[string]bool{"leader": true, "tree": false} {
			path := filepath.Join(t.TempDir(), "pid")
			s := shared.start(t, fmt.Sprintf("sleep 300 >/dev/null 2>&1 & echo $! > %s; wait", path), "Connect-Timeout-Ms", "700", "Tend-Kill-Scope", scope)
			s.refused(t)
			proctest.Eventually(t, "the leader to end", func() bool { return !alive(s.pid) })
			child := proctest.Value(strconv.Atoi(file(t, path)))(t)
			if survives {
				if !alive(child) {
					t.Errorf("scope %s: the child is gone", scope)
				}
				if p, err := os.FindProcess(child); err == nil {
					p.Kill()
				}
				continue
			}
			proctest.Eventually(t, "the child to end", func() bool { return !alive(child) })
		}
	})
	t.Run("on Connect it ends the stream alone", func(t *testing.T) {
		t.Parallel()
		s := shared.start(t, "exec sleep 60")
		if f := shared.connect(t, byPID(s.pid), "Connect-Timeout-Ms", "300").started(t).refused(t); f.Code != "deadline_exceeded" {
			t.Errorf("ends with %v", f)
		}
		if !alive(s.pid) {
			t.Error("the process is gone")
		}
		shared.kill(t, s.pid)
	})
}

func TestStartIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	id := "repeat-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	first := shared.start(t, "echo once; echo $$", "Tend-Id", id).finish(t)
	again := shared.start(t, "echo once; echo $$", "Tend-Id", id).finish(t)
	if first.pid != again.pid || string(first.stdout) != string(again.stdout) {
		t.Errorf("first %d %q, then %d %q", first.pid, first.stdout, again.pid, again.stdout)
	}
	if f := shared.open(t, inJSON, "Start", sh("echo another"), "Tend-Id", id).refused(t); f.Code != "already_exists" {
		t.Errorf("another command under the same id: %v", f)
	}
}
