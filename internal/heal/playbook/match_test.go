package playbook

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// run runs a command in a directory, with no configuration of the person who tests.
func run(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	proctest.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	proctest.Must(t, os.WriteFile(file, data, 0o644))
}

// project makes a project of files by their place: head/ is committed, gone/ is committed
// and then deleted, work/ is written afterwards. {ROOT} is the root in each of them.
func makeProject(t *testing.T, files []txtar.File) (root string) {
	t.Helper()
	root = proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	run(t, root, "git", "init", "-q")
	write(t, filepath.Join(root, ".gitignore"), []byte("node_modules\n.venv\n.env\n.next\n*.log\n__pycache__\n"))
	put := func(f txtar.File, name string) {
		write(t, filepath.Join(root, name), []byte(strings.ReplaceAll(string(f.Data), "{ROOT}", root)))
	}
	for _, f := range files {
		if name, ok := strings.CutPrefix(f.Name, "head/"); ok {
			put(f, name)
		} else if name, ok := strings.CutPrefix(f.Name, "gone/"); ok {
			put(f, name)
		}
	}
	run(t, root, "git", "add", "-A")
	run(t, root, "git", "commit", "-q", "-m", "all")
	for _, f := range files {
		if name, ok := strings.CutPrefix(f.Name, "gone/"); ok {
			proctest.Must(t, os.Remove(filepath.Join(root, name)))
			for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
				if os.Remove(filepath.Join(root, dir)) != nil { // not empty
					break
				}
			}
		} else if name, ok := strings.CutPrefix(f.Name, "work/"); ok {
			put(f, name)
		}
	}
	return root
}

// say is a plan as the cases have it.
func say(p Plan) string {
	kind := "weak"
	if p.Proposal() {
		kind = "proposal"
	} else if p.Strong {
		kind = "strong"
	}
	var parts []string
	for _, a := range p.Actions {
		text := string(a.Kind)
		for _, word := range []string{a.Path, strings.Join(a.Argv, " "), a.Name} {
			if word != "" {
				text += " " + word
			}
		}
		if a.Kind == SetEnv {
			text += "=" + a.Value
		}
		if a.Port != 0 {
			text += " " + strconv.Itoa(a.Port)
		}
		parts = append(parts, text)
	}
	return p.Book + " " + kind + ": " + strings.Join(parts, "; ")
}

// TestLogsOfRealPrograms: each case is what a program wrote, with the project around it,
// and the plans that are wanted, in their order; many want none.
func TestLogsOfRealPrograms(t *testing.T) {
	books := proctest.Value(Load())(t)
	files := proctest.Value(filepath.Glob("testdata/*.txt"))(t)
	total, none := 0, 0
	for _, file := range files {
		all := string(proctest.Value(os.ReadFile(file))(t))
		for _, text := range strings.Split("\n"+all, "\n==== ")[1:] {
			name, text, _ := strings.Cut(text, "\n")
			total++
			if !strings.Contains(text, "\nwant: ") && !strings.HasPrefix(text, "want: ") {
				none++
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ar := txtar.Parse([]byte(text))
				root := makeProject(t, ar.Files)
				e := Evidence{Root: root, Dir: root, Service: "web", Signal: Exit, Exit: &process.Exit{Code: 1, Cause: process.CauseExited}, Env: map[string]string{}}
				var want []string
				for _, line := range strings.Split(strings.TrimSpace(string(ar.Comment)), "\n") {
					key, value, _ := strings.Cut(line, ": ")
					switch key {
					case "want":
						want = append(want, strings.ReplaceAll(value, "{ROOT}", root))
					case "signal":
						if e.Signal = Signal(value); e.Signal == Health || e.Signal == Stuck {
							e.Exit = nil
						}
					case "argv":
						e.Argv = strings.Fields(value)
					case "ports":
						for _, n := range strings.Fields(value) {
							e.Ports = append(e.Ports, proctest.Value(strconv.Atoi(n))(t))
						}
					case "env":
						k, v, _ := strings.Cut(value, "=")
						e.Env[k] = v
					case "dir":
						e.Dir = filepath.Join(root, value)
						proctest.Must(t, os.MkdirAll(e.Dir, 0o755))
					case "":
					default:
						t.Fatalf("%q is no key of a case", key)
					}
				}
				for _, f := range ar.Files {
					if f.Name == "log" {
						e.Log = strings.ReplaceAll(string(f.Data), "{ROOT}", root)
					}
				}
				var got []string
				for _, p := range books.Match(t.Context(), e) {
					got = append(got, say(p))
					checkPlan(t, root, p)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("want (-), got (+):\n%s\nreport:\n%s", d, lastReport(plainText(e.Log)))
				}
			})
		}
	}
	if total < 60 || none < 15 {
		t.Errorf("%d cases, of which %d want nothing", total, none)
	}
}

// checkPlan holds what is promised of each plan, whatever the log.
func checkPlan(t *testing.T, root string, p Plan) {
	t.Helper()
	if p.Why == "" || strings.ContainsAny(p.Why, "\n\x1b") || len(p.Actions) == 0 {
		t.Errorf("%+v", p)
	}
	real := func(rel string) bool {
		if rel == "" || filepath.IsAbs(rel) || !filepath.IsLocal(rel) || strings.HasPrefix(rel, "-") {
			return false
		}
		at, err := filepath.EvalSymlinks(filepath.Join(root, filepath.Dir(rel)))
		return err != nil && os.IsNotExist(err) || at == filepath.Join(root, filepath.Dir(rel))
	}
	for _, a := range p.Actions {
		ok := a.Reason != "" && !strings.Contains(a.Reason, "\n")
		switch a.Kind {
		case Restore:
			_, err := os.Lstat(filepath.Join(root, a.Path))
			out, _ := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--deleted", "--", a.Path).Output()
			ok = ok && real(a.Path) && os.IsNotExist(err) && strings.TrimSpace(string(out)) == a.Path
		case Remove, Truncate:
			out, _ := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--", a.Path).Output()
			ok = ok && real(a.Path) && len(out) == 0
		case SetEnv:
			ok = ok && real(a.Path) && strings.HasPrefix(filepath.Base(a.Path), ".env") && regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(a.Name) && !strings.ContainsAny(a.Value, "\n\r")
		case Run:
			first := filepath.Base(a.Argv[0])
			ok = ok && (a.Path == "" || real(a.Path)) && slices.Contains([]string{"npm", "pnpm", "yarn", "bun", "uv", "poetry", "pipenv", "python", "python3", "go"}, first)
			for _, d := range a.Aside {
				ok = ok && real(d)
			}
			for _, w := range a.Argv {
				ok = ok && !strings.ContainsAny(w, "\n;|&$`")
			}
		case EndPortHolder:
			ok = ok && a.Port > 0
		}
		if !ok {
			t.Errorf("%s: an action that is not safe: %+v", p.Book, a)
		}
	}
}

// TestATrackedLinkComesBack: what is gone is a link on the way to the file that is named.
func TestATrackedLinkComesBack(t *testing.T) {
	root := makeProject(t, []txtar.File{{Name: "head/src/a/greet.js", Data: []byte("x\n")}, {Name: "head/server.js", Data: []byte("x\n")}})
	proctest.Must(t, os.Symlink("src", filepath.Join(root, "lib")))
	run(t, root, "git", "add", "-A")
	run(t, root, "git", "commit", "-q", "-m", "a link")
	proctest.Must(t, os.Remove(filepath.Join(root, "lib")))
	plans := proctest.Value(Load())(t).Match(t.Context(), Evidence{
		Root: root, Dir: root, Service: "web", Argv: []string{"node", "server.js"}, Signal: "exit",
		Log: "Error: Cannot find module './lib/a/greet'\nRequire stack:\n- " + root + "/server.js\n",
	})
	if len(plans) != 1 || say(plans[0]) != "deleted-file strong: restore lib" {
		t.Errorf("%+v", plans)
	}
}

// TestWhatALinkLeadsToComesBack: the file that is named is there by a link, and what is gone
// is behind it. A link that leads out of the project, or in a circle, leads nowhere.
func TestWhatALinkLeadsToComesBack(t *testing.T) {
	root := makeProject(t, []txtar.File{{Name: "gone/settings/v2/app.json", Data: []byte("{}\n")}, {Name: "head/server.js", Data: []byte("x\n")}})
	for name, to := range map[string]string{"settings/current": "v2", "conf": root + "/settings/current", "out": "../settings/v2", "round": "round", "far": "/etc"} {
		proctest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		proctest.Must(t, os.Symlink(to, filepath.Join(root, name)))
	}
	for name, want := range map[string]string{
		"settings/current/app.json": "deleted-file strong: restore settings/v2/app.json", "conf/app.json": "deleted-file strong: restore settings/v2/app.json",
		"out/app.json": "", "round/app.json": "", "far/app.json": "",
	} {
		plans := proctest.Value(Load())(t).Match(t.Context(), Evidence{
			Root: root, Dir: root, Service: "web", Argv: []string{"node", "server.js"}, Signal: "exit",
			Log: "Error: ENOENT: no such file or directory, open '" + name + "'\n",
		})
		got := ""
		if len(plans) > 0 {
			got = say(plans[0])
		}
		if got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}
