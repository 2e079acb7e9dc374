package cli

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

// everyVerb calls do for all that the grammar has, hidden or not.
func everyVerb(n *node, do func(*node)) {
	do(n.open())
	for _, v := range n.verbs {
		everyVerb(v, do)
	}
}

func (n *node) params() []*param { return slices.Concat(n.flags, n.args) }

// TestEachTagIsOneOfThoseThatThereAre: a tag that nothing reads is a typing error, and one
// that nobody uses is no longer needed.
func TestEachTagIsOneOfThoseThatThereAre(t *testing.T) {
	source := string(proctest.Value(os.ReadFile("grammar.go"))(t))
	unused := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) +\S`).FindAllStringSubmatch(source, -1) {
		unused[m[1]] = true
	}
	if len(unused) < 15 {
		t.Fatalf("grammar.go explains %d tags", len(unused))
	}
	known := func(where string, i *item) {
		for _, m := range regexp.MustCompile(`(\w+):"(?:[^"\\]|\\.)*"`).FindAllStringSubmatch(string(i.tag), -1) {
			if _, ok := unused[m[1]]; !ok {
				t.Errorf("%s has the tag %s, which grammar.go does not explain", where, m[1])
			}
			unused[m[1]] = false
		}
	}
	everyVerb(program(new(grammar)), func(n *node) {
		known(n.path(), &n.item)
		for _, p := range n.params() {
			known(n.path()+" "+p.summary(), &p.item)
		}
	})
	for tag, is := range unused {
		if is {
			t.Errorf("nothing has the tag %s", tag)
		}
	}
}

// TestTheGrammarMeansOneThing: no flag is spelled as another, no verb is called as another,
// arguments can be told from each other, and each value can be set and is explained.
func TestTheGrammarMeansOneThing(t *testing.T) {
	verbs := 0
	everyVerb(program(new(grammar)), func(n *node) {
		verbs++
		_, runs := n.value.Addr().Interface().(runner)
		_, asks := n.value.Addr().Interface().(asker)
		if (runs != asks) == (len(n.verbs) > 0) {
			t.Errorf("%s: runs: %v, asks: %v, with %d verbs below it", n.path(), runs, asks, len(n.verbs))
		}
		if len(n.verbs) > 0 && len(n.args) > 0 {
			t.Errorf("%s has verbs and arguments", n.path())
		}
		if n.parent != nil && n.get("help") == "" {
			t.Errorf("%s is not explained", n.path())
		}
		seen := map[string]bool{}
		for _, f := range n.options() {
			for _, s := range f.spellings() {
				if seen[s] || f.has("short") && len(f.get("short")) != 1 {
					t.Errorf("%s: %s is not one flag", n.path(), s)
				}
				seen[s] = true
			}
		}
		for _, v := range n.verbs {
			for _, name := range append(v.list("aliases"), v.name) {
				if seen[name] || name == "" {
					t.Errorf("%s: %q is not one verb", n.path(), name)
				}
				seen[name] = true
			}
		}
		for i, a := range n.args {
			last := i == len(n.args)-1
			if _, words := a.value.Interface().([]string); a.has("passthrough") && !words || a.several() && !last {
				t.Errorf("%s: nothing can follow %s", n.path(), a.summary())
			}
			if !last && !a.required() && n.args[i+1].required() {
				t.Errorf("%s: %s is required after %s", n.path(), n.args[i+1].summary(), a.summary())
			}
		}
		for _, p := range n.params() {
			if shown := !n.has("hidden") && !p.has("hidden"); shown && (p.get("help") == "" || p.flag && p.takesValue() && !p.has("placeholder")) {
				t.Errorf("%s does not explain %s", n.path(), p.summary())
			}
			if p.has("sep") && len(p.get("sep")) != 1 {
				t.Errorf("%s: no one letter separates the values of %s", n.path(), p.summary())
			}
			if value, ok := p.tag.Lookup("default"); ok {
				if err := p.set(value); err != nil || p.check() != nil {
					t.Errorf("%s: the default of %s: %v, %v", n.path(), p.summary(), err, p.check())
				}
			}
			_ = p.set("1") // panics if no value of the type can be set
		}
	})
	if verbs < 80 {
		t.Errorf("the grammar has %d verbs", verbs)
	}
}

// topics are the headings of help that are no verbs', which tend help topics names.
var topics = []string{"names", "times", "daemon", "json", "environment", "exit statuses"}

// TestEachTextOfHelpIsOfAVerb: a text under a heading that names none, nor a topic, is never shown.
func TestEachTextOfHelpIsOfAVerb(t *testing.T) {
	headings := regexp.MustCompile(`(?m)^== (.*)$`).FindAllStringSubmatch(helpTexts, -1)
	for _, m := range headings {
		n, err := program(new(grammar)).find(strings.Fields(m[1]))
		if err != nil && !slices.Contains(append(topics, "tend", "topics"), m[1]) {
			t.Errorf("help.txt has a text for %q, and %v", m[1], err)
		}
		if err == nil && n.detail() == "" {
			t.Errorf("the help of %s lacks its text", n.path())
		}
	}
	if len(headings) < 70 {
		t.Errorf("help.txt has %d texts", len(headings))
	}
}

// TestOnlyTheVerbThatIsNamedIsRead: the others cost nothing.
func TestOnlyTheVerbThatIsNamedIsRead(t *testing.T) {
	r := &reading{node: program(new(grammar))}
	proctest.Must(t, r.read([]string{"--json", "sbx", "ls", "-q"}))
	var opened []string
	for _, n := range r.node.line()[0].verbs {
		if n.opened {
			opened = append(opened, n.name)
		}
	}
	if r.node.path() != "tend sandbox ls" || !slices.Equal(opened, []string{"sandbox"}) {
		t.Errorf("for %s the verbs %q are read", r.node.path(), opened)
	}
}

// Each tag, in a grammar that has each.
type (
	testGrammar struct {
		Loud bool `short:"l" help:"All may have it."`
		Get  struct {
			testShared
			Count int               `short:"n" default:"7" placeholder:"N" help:"A number."`
			Size  *int64            `placeholder:"N" help:"A number that may be missing."`
			Seed  uint64            `placeholder:"N" help:"A number from 0."`
			Part  float64           `placeholder:"N" help:"A part."`
			Wait  time.Duration     `placeholder:"5s" help:"A time."`
			Grace time.Duration     `placeholder:"10s" help:"A time, or seconds."`
			How   string            `enum:"fast,slow" default:"fast" placeholder:"HOW" help:"How."`
			State []string          `sep:"," enum:"up,down" placeholder:"STATE" help:"States."`
			Env   []string          `short:"e" placeholder:"K=V" help:"Variables."`
			Label map[string]string `aliases:"metadata,tag" placeholder:"K=V" help:"Labels."`
			Where string            `name:"from" env:"TEST_FROM" placeholder:"URL" help:"Where."`
			Left  bool              `xor:"side" help:"Left."`
			Right bool              `xor:"side" help:"Right."`
			Old   bool              `hidden:"" help:"Not shown."`

			Key string   `arg:"" help:"A key."`
			IDs []string `arg:"" name:"id" optional:"" help:"More."`
		} `cmd:"" group:"Use:" aliases:"fetch,read" help:"Get it."`
		Exec struct {
			testShared
			Place string   `arg:"" help:"A place."`
			Cmd   []string `arg:"" passthrough:"" optional:"" help:"A command."`
		} `cmd:"" help:"Run it."`
		Sets struct {
			Ls struct {
				Quiet bool   `short:"q" help:"Names."`
				Name  string `arg:"" default:"all" help:"One."`
			} `cmd:"" default:"" help:"List."`
			Rm struct {
				Name string `arg:"" help:"One."`
			} `cmd:"" help:"Remove."`
		} `cmd:"" group:"More:" nojson:"it has none" help:"Sets."`
		Secret struct{} `cmd:"" hidden:"" help:"Not shown."`
	}
	testShared struct {
		Verbose bool `short:"v" help:"Say more."`
	}
)

// read reads a command line of the grammar of the test.
func (g *testGrammar) read(line string, env map[string]string) (*reading, error) {
	n := (&node{item: item{name: "tend", value: reflect.ValueOf(g).Elem()}}).open()
	r := &reading{node: n}
	err := r.read(strings.Fields(line))
	if err == nil {
		err = r.finish(func(name string) string { return env[name] })
	}
	return r, err
}

func TestWhatTheTagsMean(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       func(*testGrammar)
	}{
		{"a default", "get k", nil},
		{"the value of a flag, in its word or after it", "get --count=3 --part 0.5 k", func(g *testGrammar) {
			g.Get.Count, g.Get.Part = 3, 0.5
		}},
		{"one letter, and its value", "get -n3 -v k", func(g *testGrammar) { g.Get.Count, g.Get.Verbose = 3, true }},
		{"letters together", "get -lvn 0x10 k", func(g *testGrammar) { g.Loud, g.Get.Verbose, g.Get.Count = true, true, 16 }},
		{"a number that may be missing", "get --size 0 k", func(g *testGrammar) { g.Get.Size = new(int64) }},
		{"the greatest number", "get --seed 18446744073709551615 k", func(g *testGrammar) { g.Get.Seed = 1<<64 - 1 }},
		{"times", "get --wait 90s --grace 1.5 k", func(g *testGrammar) {
			g.Get.Wait, g.Get.Grace = 90*time.Second, 1500*time.Millisecond
		}},
		{"one of an enum", "get --how slow k", func(g *testGrammar) { g.Get.How = "slow" }},
		{"several in a word, and again", "get --state up,down --state up k", func(g *testGrammar) {
			g.Get.State = []string{"up", "down", "up"}
		}},
		{"a comma that separates nothing", "get -e a=1,2 -e b k", func(g *testGrammar) { g.Get.Env = []string{"a=1,2", "b"} }},
		{"a map", "get --label a=1 --metadata b=2=3 --tag a=4 k", func(g *testGrammar) {
			g.Get.Label = map[string]string{"a": "4", "b": "2=3"}
		}},
		{"an empty value", "get --from= k", func(g *testGrammar) { g.Get.Where = "" }},
		{"the last one", "get --from a --from b k", func(g *testGrammar) { g.Get.Where = "b" }},
		{"a value that looks like a flag", "get --from=-x -e-y k", func(g *testGrammar) {
			g.Get.Where, g.Get.Env = "-x", []string{"-y"}
		}},
		{"a flag that is taken back", "get --loud --left --left=no --loud=False k", nil},
		{"a hidden flag", "get --old k", func(g *testGrammar) { g.Get.Old = true }},
		{"a flag before the verb", "-l fetch k", func(g *testGrammar) { g.Loud = true }},
		{"flags between arguments", "read k -v a -l b", func(g *testGrammar) {
			g.Get.Verbose, g.Loud, g.Get.IDs = true, true, []string{"a", "b"}
		}},
		{"the end of flags", "get -- k -v --", func(g *testGrammar) { g.Get.IDs = []string{"-v", "--"} }},
		{"a dash alone", "get k -", func(g *testGrammar) { g.Get.IDs = []string{"-"} }},
		{"no program", "exec p -v", func(g *testGrammar) { g.Exec.Place, g.Exec.Verbose = "p", true }},
		{"a program", "exec p -v sh -v -- x", func(g *testGrammar) {
			g.Exec.Place, g.Exec.Verbose, g.Exec.Cmd = "p", true, []string{"sh", "-v", "--", "x"}
		}},
		{"a program after --", "exec p -- -v", func(g *testGrammar) { g.Exec.Place, g.Exec.Cmd = "p", []string{"--", "-v"} }},
		{"letters of which one may be a program", "exec p -vx=1 y", func(g *testGrammar) {
			g.Exec.Place, g.Exec.Verbose, g.Exec.Cmd = "p", true, []string{"-x", "y"}
		}},
		{"a flag that may be a program", "exec p --no x", func(g *testGrammar) {
			g.Exec.Place, g.Exec.Cmd = "p", []string{"--no", "x"}
		}},
		{"a verb that is meant", "sets -l", func(g *testGrammar) { g.Loud, g.Sets.Ls.Name = true, "all" }},
		{"its flags and arguments", "sets -q x", func(g *testGrammar) { g.Sets.Ls.Quiet, g.Sets.Ls.Name = true, "x" }},
		{"another verb", "sets rm x", func(g *testGrammar) { g.Sets.Rm.Name = "x" }},
		{"a hidden verb", "secret", func(g *testGrammar) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got, want testGrammar
			if _, err := got.read(tt.line, nil); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tt.line, "k") {
				want.Get.Key, want.Get.Count, want.Get.How = "k", 7, "fast"
			}
			if tt.want != nil {
				tt.want(&want)
			}
			if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Errorf("tend %s (-want +got):\n%s", tt.line, diff)
			}
		})
	}
	var g testGrammar
	if _, err := g.read("get k", map[string]string{"TEST_FROM": "here"}); err != nil || g.Get.Where != "here" {
		t.Errorf("from the environment comes %q, %v", g.Get.Where, err)
	}
	if _, err := g.read("get --from there k", map[string]string{"TEST_FROM": "here"}); err != nil || g.Get.Where != "there" {
		t.Errorf("before the environment goes %q, %v", g.Get.Where, err)
	}
	r, _ := g.read("sets rm x", nil)
	if r.node.withoutJSON() != "it has none" || r.node.parent.group != "More:" || r.node.line()[0].verb("exec").group != "Use:" {
		t.Errorf("tend sets rm is in %q, without JSON for %q", r.node.parent.group, r.node.withoutJSON())
	}
}

func TestWhatIsWrongWithACommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"":                        `expected one of "get", "exec", "sets"`,
		"nothing":                 `"nothing" is no verb`,
		"ex":                      `"ex" is no verb; did you mean tend exec?`,
		"-v get k":                `unknown flag -v`,
		"--count 3 get k":         `"3" is no verb; flags of a verb come after it: tend get --count 3`,
		"get":                     `expected "<key>"`,
		"exec":                    `expected "<place>"`,
		"get --cuont 3 k":         `unknown flag --cuont, did you mean "--count"?`,
		"get --unheard-of k":      `unknown flag --unheard-of`,
		"get --ol k":              `unknown flag --ol`,
		"get --lo k":              `unknown flag --lo, did you mean "--loud"?`,
		"get --l k":               `unknown flag --l, did you mean one of "--loud", "-l", "--label", "--left"?`,
		"get --count":             `--count: a value is missing`,
		"get -n -v k":             `--count: a value is missing; if it is "-v", write --count="-v"`,
		"get --count x k":         `--count: expected a valid 64 bit int but got "x"`,
		"get --size 1.5 k":        `--size: expected a valid 64 bit int but got "1.5"`,
		"get --seed -1 k":         `--seed: a value is missing; if it is "-1", write --seed="-1"`,
		"get --seed=-1 k":         `--seed: expected a valid 64 bit uint but got "-1"`,
		"get --part half k":       `--part: expected a float but got "half"`,
		"get --wait soon k":       `--wait: expected a duration, 10s or a number of seconds, but got "soon": time: invalid duration "soon"`,
		"get --grace soon k":      `--grace: expected a duration, 10s or a number of seconds, but got "soon": time: invalid duration "soon"`,
		"get --label a k":         `--label: expected "<key>=<value>" but got "a"`,
		"get --left=maybe k":      `--left: bool value must be true, 1, yes, false, 0 or no but got "maybe"`,
		"get --how so k":          `--how must be one of "fast","slow" but got "so"`,
		"get --state up,away k":   `--state must be one of "up","down" but got "away"`,
		"get --left --right k":    `--left and --right can't be used together`,
		"exec --no p x":           `unknown flag --no`,
		"sets ls a b":             `unexpected argument b`,
		"sets -q rm x":            `flag --quiet applies to the default command "ls", not "rm"`,
		"sets rm":                 `expected "<name>"`,
		"secret x":                `unexpected argument x`,
		"get --how=slow --how= k": `--how must be one of "fast","slow" but got ""`,
	} {
		var g testGrammar
		if _, err := g.read(line, nil); err == nil || err.Error() != want {
			t.Errorf("tend %s: %v; want %s", line, err, want)
		}
	}
}

// TestHelpIsSetInColumns: flags of all verbs and of this one, and the verbs that are shown.
func TestHelpIsSetInColumns(t *testing.T) {
	var out bytes.Buffer
	inv := &invocation{out: &out, getenv: func(string) string { return "" }}
	r, err := new(testGrammar).read("get k", nil)
	proctest.Must(t, err)
	proctest.Must(t, inv.help(r.node))
	proctest.Must(t, inv.help(r.node.parent))
	for _, want := range []string{
		"Usage: tend get (fetch,read) <key> [<id> ...] [flags]\n\nGet it.\n\nArguments:\n  <key>         A key.\n  [<id> ...]    More.\n",
		"\nFlags:\n  -v, --verbose            Say more.\n  -n, --count=N            A number.\n",
		"\nFlags of every command: --url,",
		"      --state=STATE,...    States.\n",
		"      --from=URL           Where ($TEST_FROM).\n",
		"\nUse:\n  get (fetch,read)    Get it.\n  exec                Run it.\n\nMore:\n  sets    Sets.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q", want)
		}
	}
	for _, never := range []string{"--old", "secret"} {
		if strings.Contains(out.String(), never) {
			t.Errorf("help shows %s", never)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// FuzzReading: each command line is understood or refused, and completed while it is typed.
func FuzzReading(f *testing.F) {
	for _, line := range []string{
		"", "ps -aq", "kill -9 --signal= x", "run -d --name x -- true",
		"key -q rm x", "sandbox ls --state=,", "--url x logs -n", "help sandbox ls", "wait --until m",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		r := &reading{node: program(new(grammar))}
		if err := r.read(words); err == nil {
			err = r.finish(func(string) string { return "" })
			if _, runs := r.node.value.Addr().Interface().(runner); err == nil && !runs {
				if _, asks := r.node.value.Addr().Interface().(asker); !asks {
					t.Errorf("%q is understood, and does nothing", words)
				}
			}
		}
		if strings.Contains(line, "http") {
			return // a completion may ask the daemon that the line names
		}
		g := new(grammar)
		g.URL = "unix:///no/such"
		inv := &invocation{flags: &g.globals, model: program(g), getenv: func(string) string { return "" }}
		(&suggester{inv: inv, words: words}).answer()
	})
}
