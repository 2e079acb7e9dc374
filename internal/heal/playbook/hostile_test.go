package playbook

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// hostileValues are what a log may name in place of a file, a package, a port or a
// variable.
var hostileValues = []string{
	"/etc/passwd", "../../../etc/passwd", "../outside.js", "..", ".", "/", "", "-rf", "--registry=http://evil.example", "--prefix", "-g",
	"$(touch /tmp/pwned)", "`id`", "; rm -rf ~", "a b", "a\tb", "$HOME", "${HOME}", "${pkg}", "a|b", "a&b", "a>b", "*", "%2e%2e/x", "a\x00b", "a\x1b[31mb",
	".git/config", ".git/hooks/pre-commit", ".env", "link/secret.js", "link/../server.js", "file:///etc/passwd", "http://evil.example/x.tgz", "git+ssh://evil",
	"evil@npm:good", "@evil/x", "express@evil", "EXPRESS", "express\u202e", "node_modules", "node_modules/../x", strings.Repeat("a/", 3000), strings.Repeat("a", 100_000),
	"0", "22", "99999", "-1", "5432", "3000\n22", "LD_PRELOAD", "PATH", "NODE_OPTIONS", "GIT_SSH_COMMAND", "A=B", "1X", "./gone.js", "./kept.js", "server.js",
}

// TestAHostileLogDoesNoHarm: whatever a log names, each action is one that the package
// promises, and nothing of the project is touched.
func TestAHostileLogDoesNoHarm(t *testing.T) {
	templates := []string{
		"Error: Cannot find module '%s'\nRequire stack:\n- {ROOT}/server.js\n", "Error: Cannot find module './kept.js'\nRequire stack:\n- %s\n",
		"Error [ERR_MODULE_NOT_FOUND]: Cannot find package '%s' imported from {ROOT}/server.js\n", "Error: ENOENT: no such file or directory, open '%s'\n",
		"ModuleNotFoundError: No module named '%s'\n", "FileNotFoundError: [Errno 2] No such file or directory: '%s'\n", "jinja2.exceptions.TemplateNotFound: %s\n",
		"Error: listen EADDRINUSE: address already in use :::%s\n", "Error: missing required environment variable %s\n", "KeyError: '%s'\n", "sh: 1: %s: not found\n",
		"SyntaxError: %s: Unexpected end of JSON input\n", "%s:1\nx\n^\n\nSyntaxError: Unexpected end of input\n", "go: %s@v1.0.0: missing go.sum entry\n",
		"Error: ENOENT: no such file or directory, open '{ROOT}/.next/%s'\n", `The file does not exist at "%s/node_modules/.vite/deps/x.js" which is in the optimize deps directory`,
		"Error: Invalid package config {ROOT}/node_modules/%s/package.json.\n", "  File \"%s\", line 1\n    x\n    ^\nSyntaxError: invalid syntax\n",
		"main.go:4:2: package example.org/app/%s is not in std\n", "./src/a.js\nModule not found: Can't resolve '%s'\n", "%s", "Error: %s: %s: %s",
	}
	outside := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	write(t, filepath.Join(outside, "secret.js"), []byte("s\n"))
	root := makeProject(t, txtar.Parse([]byte(`
-- head/server.js --
x
-- head/kept.js --
x
-- gone/gone.js --
x
-- head/package.json --
{"dependencies": {"express": "4"}}
-- head/package-lock.json --
{"lockfileVersion": 3, "packages": {"": {}, "node_modules/express": {"version": "1.0.0", "resolved": "https://registry.npmjs.org/express/-/express-1.0.0.tgz"}}}
-- head/go.mod --
module example.org/app

require evil.example/x v1.0.0
-- head/requirements.txt --
flask
-- head/.env.example --
GOOD=1
LD_PRELOAD=/tmp/x.so
NODE_OPTIONS=--require=/tmp/x.js
PATH=/tmp
GIT_SSH_COMMAND=x
TOKEN=abc
`)).Files)
	proctest.Must(t, os.Symlink(outside, filepath.Join(root, "link")))
	before := snapshot(t, root)
	books := proctest.Value(Load())(t)
	for _, form := range templates {
		for _, v := range hostileValues {
			log := strings.ReplaceAll(strings.ReplaceAll(form, "%s", v), "{ROOT}", root)
			for _, p := range books.Match(t.Context(), Evidence{Root: root, Dir: root, Service: "web", Signal: Exit, Log: log, Ports: []int{3000}, Exit: &process.Exit{Code: 1}}) {
				checkPlan(t, root, p)
				for _, a := range p.Actions {
					switch {
					case a.Kind == Restore && a.Path != "gone.js", a.Kind == EndPortHolder && a.Port != 3000, a.Kind == SetEnv && a.Name != "GOOD",
						a.Kind == Run && a.Argv[0] == "npm" && a.Argv[1] != "ci", a.Kind == Run && a.Argv[0] == "go" && a.Argv[3] != "evil.example/x":
						t.Errorf("%.100q: %+v", log, a)
					}
				}
			}
		}
	}
	if after := snapshot(t, root); after != before {
		t.Errorf("the project was changed:\n%s\n%s", before, after)
	}
}

// snapshot is all of a directory as a text.
func snapshot(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	proctest.Must(t, filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st := proctest.Value(e.Info())(t)
		fmt.Fprintf(&b, "%s %v %d %v\n", name, st.Mode(), st.Size(), st.ModTime())
		return nil
	}))
	return b.String()
}

// TestNothingOfTheRepositoryRuns: a repository whose configuration names programs gets
// none of them run by a look at it.
func TestNothingOfTheRepositoryRuns(t *testing.T) {
	root := makeProject(t, txtar.Parse([]byte("-- head/a.json --\n{}\n-- gone/b.js --\nx\n-- head/.gitattributes --\n* filter=evil diff=evil\n-- work/a.json --\n{\n")).Files)
	mark := filepath.Join(t.TempDir(), "ran")
	script := "touch " + mark
	for _, kv := range [][2]string{
		{"core.fsmonitor", script}, {"filter.evil.clean", script + "; cat"}, {"filter.evil.smudge", script + "; cat"}, {"diff.evil.textconv", script + "; cat"}, {"diff.evil.command", script},
		{"diff.external", script}, {"core.pager", script}, {"core.sshCommand", script}, {"core.hooksPath", filepath.Join(root, "hooks")},
	} {
		run(t, root, "git", "config", kv[0], kv[1])
	}
	books := proctest.Value(Load())(t)
	got := 0
	for _, log := range []string{"Error: Cannot find module './b'\nRequire stack:\n- " + root + "/a.js\n", "SyntaxError: " + root + "/a.json: Unexpected end of JSON input\n"} {
		got += len(books.Match(t.Context(), Evidence{Root: root, Dir: root, Signal: Exit, Log: log}))
	}
	if got < 2 {
		t.Errorf("%d plans", got)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program of the repository was run")
	}
}

// TestLinksLeadNowhere: where a part of a path is a symbolic link, nothing is restored,
// removed, added or installed.
func TestLinksLeadNowhere(t *testing.T) {
	outside := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	proctest.Must(t, os.Mkdir(filepath.Join(outside, "cache"), 0o755))
	root := makeProject(t, txtar.Parse([]byte(`
-- gone/lib/a.js --
x
-- head/server.js --
x
-- head/package.json --
{"dependencies": {"express": "4"}}
-- head/package-lock.json --
{"lockfileVersion": 3, "packages": {"": {}, "node_modules/express": {"version": "1.0.0"}}}
-- head/.env.example --
GOOD=1
`)).Files)
	for name, to := range map[string]string{"lib": outside, ".next": filepath.Join(outside, "cache"), "node_modules": outside, ".env": filepath.Join(outside, "env")} {
		proctest.Must(t, os.Symlink(to, filepath.Join(root, name)))
	}
	books := proctest.Value(Load())(t)
	for _, log := range []string{
		"Error: Cannot find module './lib/a'\nRequire stack:\n- " + root + "/server.js\n", "Error: ENOENT: no such file or directory, open '" + root + "/.next/x/y.json'\n",
		"Error: Cannot find module 'express'\nRequire stack:\n- " + root + "/server.js\n", "Error: missing required environment variable GOOD\n",
	} {
		for _, p := range books.Match(t.Context(), Evidence{Root: root, Dir: root, Signal: Exit, Log: log}) {
			t.Errorf("%q: %s", log, say(p))
		}
	}
}

// TestALookEndsWithItsContext, and a log of any size costs no more than its end.
func TestALookEndsWithItsContext(t *testing.T) {
	root := makeProject(t, nil)
	books := proctest.Value(Load())(t)
	log := strings.Repeat("Error: Cannot find module 'x'\n  File \"a\", line 1\n", 1<<20/48)
	books.Match(t.Context(), Evidence{Root: root, Dir: root, Signal: Exit, Log: log})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := books.Match(ctx, Evidence{Root: root, Dir: root, Signal: Exit, Log: log}); got != nil {
		t.Error(got)
	}
	for _, e := range []Evidence{{}, {Root: "/", Dir: "x"}, {Root: root, Dir: filepath.Dir(root)}, {Root: root, Dir: root + "/none"}, {Root: root + "/none", Dir: root + "/none"}, {Root: "x", Dir: "x"}} {
		e.Log, e.Signal = log, Stuck
		if got := books.Match(t.Context(), e); got != nil {
			t.Errorf("%+v", got)
		}
	}
}

func FuzzLogs(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		all, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, text := range strings.Split("\n"+string(all), "\n==== ")[1:] {
			for _, one := range txtar.Parse([]byte(text)).Files {
				if one.Name == "log" {
					f.Add(string(one.Data))
				}
			}
		}
	}
	root := proctest.Value(filepath.EvalSymlinks(f.TempDir()))(f)
	if err := os.WriteFile(filepath.Join(root, "package-lock.json"), []byte(`{"lockfileVersion": 3, "packages": {"node_modules/express": {"version": "1.0.0"}}}`), 0o644); err != nil {
		f.Fatal(err)
	}
	books := proctest.Value(Load())(f)
	f.Fuzz(func(t *testing.T, log string) {
		for _, p := range books.Match(t.Context(), Evidence{Root: root, Dir: root, Signal: Exit, Log: strings.ReplaceAll(log, "{ROOT}", root), Ports: []int{3000}}) {
			checkPlan(t, root, p)
		}
	})
}
