package envd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/protocol/envd"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain.txt")
	script := filepath.Join(dir, "script")
	for name, mode := range map[string]os.FileMode{plain: 0o644, script: 0o755} {
		proctest.Must(t, os.WriteFile(name, []byte("echo script $1\n"), mode))
	}
	for _, tc := range []struct {
		name, body string
		headers    []string
		want       result
	}{
		{"exit 0 has an end without exit code and error", sh("true"), nil, result{End: exitEnd(0)}},
		{"exit 3 has the status as error, too", sh("exit 3"), nil, result{End: exitEnd(3)}},
		{"output of both streams comes before the end", sh("printf out; printf err >&2"), nil, result{Stdout: "out", Stderr: "err", End: exitEnd(0)}},
		{"a death by signal has code -1 and is not exited", sh("kill -9 $$"), nil, result{End: signalEnd("killed")}},
		{"SIGTERM is told by Go's name", sh("kill -15 $$"), nil, result{End: signalEnd("terminated")}},
		{"a missing command is a process that ends with 127", `{"process":{"cmd":"nope-such","args":["a"]}}`, nil,
			result{Stderr: "/usr/bin/nice: 'nope-such': No such file or directory\n", End: exitEnd(127)}},
		{"a file that may not be executed ends with 126", `{"process":{"cmd":"` + plain + `"}}`, nil,
			result{Stderr: "/usr/bin/nice: '" + plain + "': Permission denied\n", End: exitEnd(126)}},
		{"an empty command ends with 127", `{"process":{"cmd":""}}`, nil, result{Stderr: "/usr/bin/nice: '': No such file or directory\n", End: exitEnd(127)}},
		{"no process at all ends with 127", `{}`, nil, result{Stderr: "/usr/bin/nice: '': No such file or directory\n", End: exitEnd(127)}},
		{"a script without #! is run by sh", `{"process":{"cmd":"` + script + `","args":["x"]}}`, nil, result{Stdout: "script x\n", End: exitEnd(0)}},
		{"a script without #! is found in the request's PATH", `{"process":{"cmd":"script","args":["y"],"envs":{"PATH":"` + dir + `:/usr/bin:/bin"}}}`, nil, result{Stdout: "script y\n", End: exitEnd(0)}},
		{"unknown fields are ignored", `{"process":{"cmd":"/bin/true","bogus":[1]},"other":{}}`, nil, result{End: exitEnd(0)}},
		{"request variables win over all others", `{"process":{"cmd":"/bin/sh","args":["-c","printf $HOME,$E2B_SANDBOX,$X"],"envs":{"HOME":"/h","E2B_SANDBOX":"no","X":"1"}}}`, nil,
			result{Stdout: "/h,no,1", End: exitEnd(0)}},
		{"E2B_SANDBOX is set", sh("printf $E2B_SANDBOX"), nil, result{Stdout: "true", End: exitEnd(0)}},
		{"stdin false reads end of file", sh("cat; printf end", `"stdin":false`), nil, result{Stdout: "end", End: exitEnd(0)}},
		{"a terminal has the size that was asked for", sh("stty size", `"pty":{"size":{"cols":81,"rows":25}}`), nil, result{PTY: "25 81\r\n", End: exitEnd(0)}},
		{"a terminal without a size has 0×0", sh("stty size", `"pty":{}`), nil, result{PTY: "0 0\r\n", End: exitEnd(0)}},
		{"a size is cut to 16 bits", sh("stty size", `"pty":{"size":{"cols":4294967295,"rows":65537}}`), nil, result{PTY: "1 65535\r\n", End: exitEnd(0)}},
		{"a background child that holds the pipe does not delay the end", sh("sleep 600 & printf $!>" + dir + "/child; exit 5"), nil, result{End: exitEnd(5)}},
		{"keepalive 0 is clamped", sh("true"), []string{"Keepalive-Ping-Interval: 0"}, result{End: exitEnd(0)}},
		{"keepalive -1 is clamped", sh("true"), []string{"Keepalive-Ping-Interval: -1"}, result{End: exitEnd(0)}},
		{"keepalive 10^18 is clamped", sh("true"), []string{"Keepalive-Ping-Interval: 1000000000000000000"}, result{End: exitEnd(0)}},
		{"keepalive garbage means the default", sh("true"), []string{"Keepalive-Ping-Interval: soon"}, result{End: exitEnd(0)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, nil)
			got := s.stream("Start", tc.body, tc.headers...).started().rest()
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
	kill(t, filepath.Join(dir, "child"))
}

// kill ends the process whose pid a test's command wrote to a file.
func kill(t *testing.T, file string) {
	t.Helper()
	text := proctest.Value(os.ReadFile(file))(t)
	var pid int
	proctest.Value(fmt.Sscan(string(text), &pid))(t)
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func TestStartRefusals(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	proctest.Must(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		name, body string
		headers    []string
		change     func(*envd.Config)
		want       string // prefix of "code: message"
	}{
		{"a missing cwd", `{"process":{"cmd":"true","cwd":"/nope"}}`, nil, nil, "invalid_argument: cwd '/nope' does not exist"},
		{"a cwd that is a file", `{"process":{"cmd":"true","args":["-x"],"cwd":"` + file + `"}}`, nil, nil, "invalid_argument: error starting process 'true -x': fork/exec /bin/sh: not a directory"},
		{"a cwd in another's home", `{"process":{"cmd":"true","cwd":"~daemon"}}`, nil, nil, "invalid_argument: failed to expand path '~daemon'"},
		{"an unknown user", `{}`, []string{"Authorization: Basic " + b64("who-is-this:")}, nil, "unauthenticated: invalid username: 'who-is-this'"},
		{"an unknown default user", `{}`, nil, func(c *envd.Config) { c.DefaultUser = "who-is-this" }, "unauthenticated: invalid default user: 'who-is-this'"},
		{"a malformed timeout", sh("true"), []string{"Connect-Timeout-Ms: soon"}, nil, "invalid_argument: parse timeout: "},
		{"a negative timeout", sh("true"), []string{"Connect-Timeout-Ms: -5"}, nil, "invalid_argument: parse timeout: "},
		{"a NUL byte in an argument", `{"process":{"cmd":"true","args":["a\u0000b"]}}`, nil, nil, "invalid_argument: argv[1] has a NUL byte"},
		{"a tag of 70,000 bytes", sh("true", `"tag":"`+strings.Repeat("x", 70000)+`"`), nil, nil, "invalid_argument: tag has 70000 bytes"},
		{"10 MB of arguments", sh("true " + strings.Repeat("x", 10<<20)), nil, nil, "invalid_argument: "},
		{"invalid UTF-8", "{\"process\":{\"cmd\":\"\xff\"}}", nil, nil, "invalid_argument: "},
		{"a message that is no JSON", `{"process"`, nil, nil, "invalid_argument: "},
		{"a message of 17 MiB", `{"x":"` + strings.Repeat("x", 17<<20) + `"}`, nil, nil, "resource_exhausted: message size"},
		{"an unknown kill scope", sh("true"), []string{"Tend-Kill-Scope: all"}, nil, "invalid_argument: Tend-Kill-Scope is \"all\""},
		{"an ID that is no ID", sh("true"), []string{"Tend-Id: ../x"}, nil, "invalid_argument: id has the byte"},
	} {
		t.Run(tc.name+" is refused in the end frame", func(t *testing.T) {
			s := serve(t, tc.change)
			got := s.stream("Start", tc.body, tc.headers...).rest()
			if !strings.HasPrefix(got.Err, tc.want) || got.End != nil {
				t.Errorf("got %q, want %q…", got.Err, tc.want)
			}
		})
	}
}

func TestWorkingDirectory(t *testing.T) {
	t.Parallel()
	home := proctest.Value(os.UserHomeDir())(t)
	def := t.TempDir()
	sub := proctest.Value(os.MkdirTemp(home, "tend-envd-test"))(t)
	t.Cleanup(func() { os.Remove(sub) })
	for _, tc := range []struct{ name, cwd, want string }{
		{"none is the default directory", "", def},
		{"~ is the home", "~", home},
		{"~/x is in the home", "~/" + filepath.Base(sub), sub},
		{"a relative path starts at the home", filepath.Base(sub), sub},
		{"an absolute path is cleaned", "/usr/../usr/./bin", "/usr/bin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, func(c *envd.Config) { c.DefaultWorkdir = def })
			got := s.stream("Start", `{"process":{"cmd":"/bin/sh","args":["-c","printf $PWD"],"cwd":"`+tc.cwd+`"}}`).started().rest()
			if got.Stdout != tc.want {
				t.Errorf("got %q, want %q", got.Stdout, tc.want)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	st := s.stream("Start", sh("printf before; sleep 600"), "Connect-Timeout-Ms: 300").started()
	pid := st.pid
	if d := cmp.Diff(result{Stdout: "before", Err: "deadline_exceeded: context deadline exceeded"}, st.rest()); d != "" {
		t.Errorf("the stream, -want +got:\n%s", d)
	}
	late := s.stream("Connect", fmt.Sprintf(`{"process":{"pid":%d}}`, pid)).started().rest()
	if d := cmp.Diff(result{End: signalEnd("killed")}, late); d != "" {
		t.Errorf("a later Connect, -want +got:\n%s", d)
	}
	// On Connect the timeout is the stream's alone.
	st = s.stream("Start", sh("read x; exit 4", `"tag":"lives"`)).started()
	short := s.stream("Connect", `{"process":{"tag":"lives"}}`, "Connect-Timeout-Ms: 100").started().rest()
	if short.Err != "deadline_exceeded: context deadline exceeded" {
		t.Errorf("Connect with a timeout ended with %q", short.Err)
	}
	if code, body := s.call("SendInput", `{"process":{"tag":"lives"},"input":{"stdin":"`+b64("\n")+`"}}`); code != 200 {
		t.Errorf("SendInput: %d %s", code, body)
	}
	if d := cmp.Diff(result{End: exitEnd(4)}, st.rest()); d != "" {
		t.Errorf("the process, -want +got:\n%s", d)
	}
}
