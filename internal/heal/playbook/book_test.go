package playbook

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// TestWrongBooksAreRefused: each with all that is wrong, and where.
func TestWrongBooksAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "is empty"},
		{"why: x\nwhen: {log: a}\ndo:\n  - restart: true\nwhne: 1\n", "b.yaml:5:1: whne is no key that is known; did you mean when?"},
		{"why: x\nwhen: {lgo: a}\ndo: [{restart: true}]\n", "b.yaml:2:8: when.lgo is no key that is known; did you mean log?"},
		{"when: {log: a}\ndo: [{restart: true}]\n", "needs the key why"},
		{"why: x\nwhen: {}\ndo: [{restart: true}]\n", "it would fit everything"},
		{"why: x\nwhen: {log: a}\n", "do is empty"},
		{"why: x\nwhen: {log: '('}\ndo: [{restart: true}]\n", "b.yaml:2:13: when.log.0 is no RE2 regular expression"},
		{"why: x\nwhen: {log: '" + strings.Repeat("[^a]{900}", 12) + "'}\ndo: [{restart: true}]\n", "when.log.0 expands to more than 10000 steps"},
		{"why: x\nwhen: {signal: [exti]}\ndo: [{restart: true}]\n", "did you mean exit?"},
		{"why: x\nwhen: {log: a}\ndo: [{restart: true, remove: .next}]\n", "has 2 of run"},
		{"why: x\nwhen: {log: a}\ndo: [{in: a}]\n", "has 0 of run"},
		{"why: x ${a}\nwhen: {log: a}\ndo: [{restart: true}]\n", "no expression has a group (?P<a>…)"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\nwhere: {a: wrod}\ndo: [{restart: true}]\n", "it is one of word, number"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\nwhere: {b: word}\ndo: [{restart: true}]\n", "where.b is no group"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{run: ['${a}']}]\n", "a value from the log cannot be one"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{run: [sh, -c, 'echo ${a}']}]\n", "into the text of a program"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{run: [sh, '${a}']}]\n", "into the text of a program"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{run: [/usr/bin/env, 'A=${a}', x]}]\n", "into the text of a program"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{run: [node, -e, '${a}']}]\n", "into the text of a program"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{run: [npm, install, '${a}']}]\n", "would fetch whatever the log names"},
		{"why: x\nwhen: {log: '(?P<a>.)'}\ndo: [{remove: '${a}'}]\n", "name the directory"},
		{"why: x\nwhen: {log: a}\ndo: [{remove: ../x}]\n", "a path is below the root"},
		{"why: x\nwhen: {log: a}\ndo: [{truncate: /var/log/x.log}]\n", "a path is below the root"},
		{"why: x\nwhen: {log: a}\ndo: [{set_env: A}]\n", "needs the key value"},
		{"why: x\nwhen: {log: a}\ndo: [{run: [x], aside: src}]\n", "only directories that tools make again"},
		{"why: x\nwhen: {log: a, exists: /etc/passwd}\ndo: [{restart: true}]\n", "a path is below the root"},
		{"why: x\nwith: node-package\nwhen: {log: a}\n", "is for the playbooks that are built in"},
		{"why: x\nwhen: {log: a}\ndo: [{restart: true}]\nverify: [sh, '-c', x]\nrank: 101\n", "0 to 100 are allowed"},
		{strings.Repeat("a", config.MaxBytes+1), "the limit is"},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "b.yaml"), []byte(c.text))
		_, err := Load(dir)
		var problems config.Problems
		if err == nil || !strings.Contains(err.Error(), c.want) || len(c.text) < 1000 && !errors.As(err, &problems) {
			t.Errorf("%q\nwant %s\ngot  %v", c.text, c.want, err)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "-x.yaml"), []byte("why: x\nwhen: {log: a}\ndo: [{restart: true}]\n"))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "is no name for a playbook") {
		t.Error(err)
	}
}

// TestABookOfAProject: what a file says is what is done, with checked values in it.
func TestABookOfAProject(t *testing.T) {
	root := makeProject(t, txtar.Parse([]byte(`
-- head/migrations/1.sql --
x
-- head/package.json --
{}
-- head/.tend/playbooks/migrate.yaml --
why: the table ${table} is not there yet
rank: 1
when:
  signal: [exit, flap]
  exit: [1, 2]
  log: 'relation "(?P<table>[^"]+)" does not exist'
  exists: [migrations/*.sql, package.json]
  missing: node_modules/.migrated
do:
  - run: [npm, run, migrate, --, "--table", x]
    in: migrations
  - run: [psql, "--table=${table}"]
  - end_orphans: true
verify: [psql, -c, "select 1"]
commit: true
-- head/.tend/playbooks/port-in-use.yaml --
why: off
disabled: true
when: {log: x}
-- head/.tend/playbooks/README.md --
no book
`)).Files)
	books := proctest.Value(Load(filepath.Join(root, ".tend/playbooks"), filepath.Join(root, "none")))(t)
	if names := books.Names(); names[0] != "migrate" || slices.Contains(names, "port-in-use") || !slices.Contains(names, "missing-package") {
		t.Error(names)
	}
	e := Evidence{Root: root, Dir: root, Service: "web", Signal: Exit, Exit: &process.Exit{Code: 2}, Log: "ERROR: relation \"users\" does not exist\nlater\n", Ports: []int{1}}
	got := books.Match(t.Context(), e)
	want := []Plan{{
		Book: "migrate", Why: "the table users is not there yet", Commit: true, Verify: []string{"psql", "-c", "select 1"}, rank: 1,
		Actions: []Action{
			{Kind: Run, Argv: []string{"npm", "run", "migrate", "--", "--table", "x"}, Path: "migrations", Reason: "run npm run migrate -- --table x"},
			{Kind: Run, Argv: []string{"psql", "--table=users"}, Reason: "run psql --table=users"},
			{Kind: EndOrphans, Reason: "end what is left of web"},
		},
	}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Plan{})); d != "" {
		t.Error(d)
	}
	if got[0].Proposal() || got[0].Light() {
		t.Error("a plan that does something is a proposal, or a restart")
	}
	for what, change := range map[string]func(*Evidence){
		"another signal":   func(e *Evidence) { e.Signal = Health },
		"another exit":     func(e *Evidence) { e.Exit = &process.Exit{Code: 3} },
		"a signal's exit":  func(e *Evidence) { e.Exit = &process.Exit{Signal: 9} },
		"no exit":          func(e *Evidence) { e.Exit = nil },
		"another log":      func(e *Evidence) { e.Log = "relation" },
		"an option":        func(e *Evidence) { e.Log = `relation "--x" does not exist` },
		"a shell's text":   func(e *Evidence) { e.Log = `relation "a;b" does not exist` },
		"a path elsewhere": func(e *Evidence) { e.Log = `relation "../x" does not exist` },
	} {
		other := e
		change(&other)
		if got := books.Match(t.Context(), other); len(got) > 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	write(t, filepath.Join(root, "node_modules/.migrated"), nil)
	if got := books.Match(t.Context(), e); len(got) > 0 {
		t.Errorf("what is missing is there: %+v", got)
	}
}

// TestTheBuiltInBooks: each is read, has a reason and a place, and is documented.
func TestTheBuiltInBooks(t *testing.T) {
	books := proctest.Value(Load())(t)
	for name, r := range rules {
		if r == nil || !slices.ContainsFunc(books.all, func(b *book) bool { return b.With == name }) {
			t.Errorf("no book uses the rule %s", name)
		}
	}
	if len(books.all) < 13 {
		t.Errorf("%d books", len(books.all))
	}
	if _, err := os.Stat("books"); err != nil {
		t.Error(err)
	}
}

// TestTheExamplesOfTheDocumentsWork: the playbooks in the documents and in the package's
// comment are accepted, and each built-in one has its place in the documents.
func TestTheExamplesOfTheDocumentsWork(t *testing.T) {
	text := string(proctest.Value(os.ReadFile("../../../docs/healing.md"))(t))
	dir, n := t.TempDir(), 0
	for _, block := range strings.Split(text, "```yaml\n# .tend/playbooks/")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		body, _, _ := strings.Cut(rest, "```")
		write(t, filepath.Join(dir, name), []byte(body))
		n++
	}
	doc := string(proctest.Value(os.ReadFile("doc.go"))(t))
	_, doc, _ = strings.Cut(doc, "//\twhy:")
	doc, _, _ = strings.Cut(doc, "//\n// #")
	write(t, filepath.Join(dir, "comment.yaml"), []byte("why:"+strings.ReplaceAll(doc, "//\t", "")))
	books, err := Load(dir)
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	for _, name := range proctest.Value(Load())(t).Names() {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/healing.md does not say what %s does", name)
		}
	}
	root := makeProject(t, txtar.Parse([]byte("-- head/migrations/1.sql --\nx\n")).Files)
	got := books.Match(t.Context(), Evidence{Root: root, Dir: root, Signal: Flap, Log: "ERROR:  relation \"users\" does not exist at character 15\n"})
	if len(got) != 2 || got[0].Why != "the table users is not there yet" {
		t.Errorf("%+v", got)
	}
}
