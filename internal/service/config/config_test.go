package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tend-run/tend/internal/support/proctest"
)

func good(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range proctest.Value(filepath.Glob("testdata/good/*.yaml"))(t) {
		all[filepath.Base(path)] = string(proctest.Value(os.ReadFile(path))(t))
	}
	if len(all) < 3 {
		t.Fatalf("the good files are missing: %v", all)
	}
	return all
}

func TestTheWholeFileIsRead(t *testing.T) {
	c := proctest.Value(Parse("whole.yaml", []byte(good(t)["whole.yaml"])))(t)
	web := c.Services["web"]
	want := map[string]string{"PORT": "3000", "VERSION": "1.10", "EMPTY": "", "YES": "yes", "BIG": "0755"}
	if diff := cmp.Diff(want, web.Env); diff != "" {
		t.Errorf("env:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"npm", "run", "dev", "--", "--port", "3000"}, web.Command.Argv); diff != "" {
		t.Errorf("command:\n%s", diff)
	}
	deps := Dependencies{{Service: "bundler", Condition: LogLine, Log: "watching"}, {Service: "db", Condition: Ready, Restart: true}, {Service: "migrate", Condition: Completed}}
	if diff := cmp.Diff(deps, web.DependsOn); diff != "" {
		t.Errorf("depends_on:\n%s", diff)
	}
	if web.Health.HTTP.URL != "http://localhost:3000/health" || web.Health.Retry != Duration(time.Second) || web.Health.Timeout != Duration(time.Second) {
		t.Errorf("health is %+v", web.Health)
	}
	if r := c.Services["db"].Restart; r.Policy != "on-failure" || r.Max != 0 || r.Retry != 0 || r.MaxDelay != Duration(90*time.Second) || r.Factor != 1.5 || len(r.SuccessCodes) != 2 {
		t.Errorf("what is merged is %+v", r)
	}
	if r := web.Restart; r.Policy != "always" || r.Max != 5 || r.Within != Duration(time.Minute) || !reflect.DeepEqual(r.SuccessCodes, []int{0}) {
		t.Errorf("the defaults are %+v", r)
	}
	if c.Services["backup"].Restart.Policy != "never" {
		t.Error("a service with a schedule is restarted")
	}
	if web.Stop.Signal != 2 || web.Stop.Timeout != Duration(10*time.Second) || web.Limits.Memory != 3<<29 {
		t.Errorf("stop is %+v, limits %+v", web.Stop, web.Limits)
	}
	if got := strings.Join(c.Order(), " "); got != "backup bundler db hourly migrate old web" {
		t.Errorf("the order is %s", got)
	}
	if got := c.Services["bundler"].Command.Line; got != "exec node bundler.js \\\n  --watch\n" {
		t.Errorf("a block of text is %q", got)
	}
}

func manySockets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "      s%d: %d\n", i, 3000+i)
	}
	return b.String()
}

func TestSocketsAreReadInTheOrderOfTheFile(t *testing.T) {
	dir := t.TempDir()
	text := "services: {web: {command: x, cwd: app, sockets: {z: 3000, b: ':80', local: 'unix:run/../s', six: '[::1]:9', all: '0.0.0.0:08', away: 'unix:///run/s', a: 'localhost:81', mapped: '[::ffff:127.0.0.1]:82'}}}"
	c := proctest.Value(OpenText("x", dir, []byte(text)).Config())(t)
	want := Sockets{
		{"z", "127.0.0.1:3000"}, {"b", "127.0.0.1:80"}, {"local", Listen("unix:" + dir + "/app/s")}, {"six", "[::1]:9"}, {"all", "0.0.0.0:8"},
		{"away", "unix:/run/s"}, {"a", "127.0.0.1:81"}, {"mapped", "127.0.0.1:82"},
	}
	if diff := cmp.Diff(want, c.Services["web"].Sockets); diff != "" {
		t.Errorf("sockets:\n%s", diff)
	}
	deep := OpenText("x", dir+strings.Repeat("/x", 60), []byte("services: {web: {command: x, sockets: {a: 'unix:s'}}}"))
	if _, err := deep.Config(); err == nil || !strings.Contains(err.Error(), "x:1:43: services.web.sockets.a is a path of") {
		t.Errorf("a path that is too long below its directory: got %v", err)
	}
}

func TestAPresetChangesDefaultsAlone(t *testing.T) {
	text := "preset: shmastra\nservices:\n  web: {command: x, health: {http: ':4111/health', timeout: 3s}}\n"
	web := proctest.Value(Parse("x", []byte(text)))(t).Services["web"]
	if h := web.Health; h.Interval != Duration(20*time.Second) || h.Timeout != Duration(3*time.Second) || h.Failures != 2 || h.Retry != Duration(10*time.Second) {
		t.Errorf("health is %+v", h)
	}
	if p := web.Pressure; p == nil || !p.On || p.Memory != 0.9 || p.Looks != 4 || p.Of != 4 || p.Interval != Duration(15*time.Second) || p.Stalls || !p.Restart {
		t.Errorf("pressure is %+v", p)
	}
	if web.Log.Pattern != "Bundling" || web.Restart.Delay != Duration(2*time.Second) {
		t.Errorf("log is %+v, restart %+v", web.Log, web.Restart)
	}
}

func TestPressureIsLookedAtWhereItIsAskedFor(t *testing.T) {
	for text, want := range map[string]*Pressure{
		"services: {web: {command: x}}":                                   nil,
		"services: {web: {command: x, pressure: true}}":                   {On: true, Memory: 0.9, Descriptors: 0.9, Pids: 0.9, Disk: 200 << 20, Looks: 4, Of: 5, Interval: Duration(2 * time.Second), Stalls: true},
		"{preset: shmastra, services: {web: {command: x, pressure: no}}}": nil,
	} {
		c, err := Parse("x", []byte(text))
		if strings.Contains(text, "no}") {
			if err == nil {
				t.Errorf("%s was accepted", text)
			}
			continue
		}
		if diff := cmp.Diff(want, proctest.Value(c, err)(t).Services["web"].Pressure); diff != "" {
			t.Errorf("%s:\n%s", text, diff)
		}
	}
	off := proctest.Value(Parse("x", []byte("{preset: shmastra, services: {web: {command: x, pressure: false}}}")))(t)
	if off.Services["web"].Pressure.On {
		t.Error("it is looked at")
	}
}

// A service has its own sandbox, or that of the file; what it takes from this machine
// elsewhere it has from there.
func TestAServiceHasItsOwnSandboxOrThatOfTheFile(t *testing.T) {
	const text = "sandbox: dev\nservices:\n  a: {command: x}\n  b: {command: x, sandbox: other, cwd: /srv, inherit: none, health: {http: ':80'}}\n  c: {command: x}\n"
	src := &Source{Name: "x", Dir: "/project", Text: []byte(text)}
	c := proctest.Value(src.Config())(t)
	for name, want := range map[string]Service{"a": {Sandbox: "dev"}, "b": {Sandbox: "other", Cwd: "/srv", Inherit: "none"}, "c": {Sandbox: "dev"}} {
		s := c.Services[name]
		if got := (Service{Sandbox: s.Sandbox, Cwd: s.Cwd, Inherit: s.Inherit}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v; want %+v", name, got, want)
		}
	}
	if n := strings.Count(justError(Parse("x", []byte("sandbox: ''\nservices: {a: {command: x}, b: {command: x}}"))), "is empty"); n != 1 {
		t.Errorf("an empty sandbox is reported %d times", n)
	}
	alone := proctest.Value((&Source{Name: "x", Dir: "/project", Text: []byte("services: {a: {command: x}}")}).Config())(t).Services["a"]
	if alone.Sandbox != "" || alone.Cwd != "/project" || alone.Inherit != "all" {
		t.Errorf("on the machine it is %+v", alone)
	}
}

func justError(_ *Config, err error) string { return fmt.Sprint(err) }

func TestWhatIsWrongIsReportedWithItsPlaceAndTheNearestKey(t *testing.T) {
	in := func(lines string) string { return "services:\n  web:\n    command: x\n" + lines }
	for _, tt := range []struct {
		name, text string
		want       []string // in each: LINE:COLUMN: and words of the text
	}{
		{"a key with a slip", in("    restrat: always\n"), []string{"4:5: services.web.restrat is no key", "did you mean restart?"}},
		{"a key of pm2", in("    max_restarts: 3\n"), []string{"4:5:", "did you mean restart.max?"}},
		{"a key of docker compose", in("    working_dir: /x\n"), []string{"4:5:", "did you mean cwd?"}},
		{"a key of process-compose", in("    readiness_probe: {}\n"), []string{"4:5:", "did you mean readiness?"}},
		{"a key in camel case", in("    dependsOn: []\n"), []string{"4:5:", "did you mean depends_on?"}},
		{"a key of nobody", in("    zzzzzz: 1\n"), []string{"4:5:", "there are command, cwd"}},
		{"a key too deep", in("    health: {http: ':80', intervall: 2s}\n"), []string{"4:27: services.web.health.intervall", "did you mean interval?"}},
		{"a top level of another tool", "processes: {}\n", []string{"1:1: processes is no key", "did you mean services?"}},
		{"a key twice", in("    cwd: a\n    cwd: b\n"), []string{"5:5:", "cwd"}},
		{"no command", "services: {web: {cwd: x}}\n", []string{"1:17: services.web needs the key command, or image"}},
		{"an image and a sandbox", "services: {web: {image: x, sandbox: y}}\n", []string{"1:25: services.web.image is given together with sandbox"}},
		{"no image", "services: {web: {image: ''}}\n", []string{"1:25: services.web.image is empty"}},
		{"an image with a blank", "services: {web: {image: 'x y'}}\n", []string{"1:25: services.web.image is \"x y\""}},
		{"an image and a socket", "services: {web: {image: x, sockets: {a: '127.0.0.1:80'}}}\n", []string{"services.web.sockets cannot be passed into a sandbox"}},
		{"no services", "healer: {}\n", []string{"needs the key services"}},
		{"services that are empty", "services: {}\n", []string{"1:", "at least one"}},
		{"an empty file", "", []string{"is empty"}},
		{"a comment alone", "# nothing\n", []string{"is empty"}},
		{"a list of services", "services: [a, b]\n", []string{"1:11: services is a list; a mapping is wanted"}},
		{"a service that is a word", "services: {web: node}\n", []string{"1:17: services.web is \"node\"; a mapping"}},
		{"a wrong policy", in("    restart: onfailure\n"), []string{"4:14:", "always, on-failure, never", "did you mean on-failure?"}},
		{"a wrong duration", in("    stop: {timeout: 10 seconds}\n"), []string{"4:21:", "no duration"}},
		{"a negative duration", in("    stop: {timeout: -1s}\n"), []string{"4:21:", "not negative"}},
		{"a duration out of bounds", in("    health: {tcp: 80, interval: 1ms}\n"), []string{"4:33:", "50ms to 1h are allowed"}},
		{"a number out of bounds", in("    limits: {nice: 40}\n"), []string{"4:20:", "-20 to 19"}},
		{"no number", in("    restart: {max: many}\n"), []string{"4:20:", "a whole number"}},
		{"NaN", in("    restart: {jitter: .nan}\n"), []string{"4:23:"}},
		{"an exit code too high", in("    restart: {success_codes: [0, 300]}\n"), []string{"4:34:", "0 to 255"}},
		{"a signal", in("    stop: FOO\n"), []string{"4:11:", "no signal"}},
		{"a port", in("    health: {tcp: 99999}\n"), []string{"4:19:", "1 to 65535"}},
		{"a probe of another machine", in("    health: {http: 'http://example.org/'}\n"), []string{"4:20:", "this machine"}},
		{"a probe by https", in("    health: {http: 'https://localhost/'}\n"), []string{"4:20:", "http alone"}},
		{"two ways to probe", in("    health: {tcp: 80, exec: x}\n"), []string{"services.web.health has 2 of http"}},
		{"no way to probe", in("    health: {interval: 2s}\n"), []string{"services.web.health has 0 of http"}},
		{"health beside liveness", in("    health: {tcp: 80}\n    liveness: {tcp: 80}\n"), []string{"5:15:", "one or the other"}},
		{"a rotation without a file", in("    log: {rotate: 1MiB}\n"), []string{"rotate", "is for file"}},
		{"a file of two", in("    log: {file: a.log}\n  zz:\n    command: x\n    log: {file: a.log}\n"), []string{"zz.log.file",
			"each service has a file of its own"}},
		{"a file of two by two names", in("    log: {file: logs/a.log}\n  zz:\n    command: x\n    cwd: logs\n    log: {file: ./a.log}\n"), []string{"zz.log.file", "each service has a file of its own"}},
		{"a file that is a directory", in("    log: {file: logs/}\n"), []string{"logs/", "no path of a file"}},
		{"liveness by a log line", in("    liveness: {log: x}\n"), []string{"log", "a line that was seen stays seen"}},
		{"more looks than there are", in("    pressure: {looks: 6}\n"), []string{"4:23: services.web.pressure.looks is 6, more than of, which is 5"}},
		{"a part that is none", in("    pressure: {memory: 90}\n"), []string{"4:24:", "0 to 1 are allowed"}},
		{"an expression", in("    log: {pattern: 'a('}\n"), []string{"4:20:", "RE2"}},
		{"a large expression", in("    log: {pattern: '" + strings.Repeat("[^a]{900}", 12) + "'}\n"), []string{"4:20:", "expands to more than 10000 steps"}},
		{"a dependency that is not there", in("    depends_on: [wbe]\n"), []string{"4:18: services.web.depends_on.wbe is no service", "did you mean web?"}},
		{"a dependency on itself", in("    depends_on: [web]\n"), []string{"4:18:", "the service itself"}},
		{"a dependency twice", in("    depends_on: [a, a]\n  a: {command: y}\n"), []string{"4:21:", "again"}},
		{"a condition", in("    depends_on: {a: redy}\n  a: {command: y}\n"), []string{"4:21:", "did you mean ready?"}},
		{"completion of what always restarts", in("    depends_on: {a: completed}\n  a: {command: y}\n"), []string{"4:18:", "never completes"}},
		{"a cycle", "services:\n  a: {command: x, depends_on: [b]}\n  b: {command: x, depends_on: [c]}\n  c: {command: x, depends_on: [a]}\n", []string{"2:31: services.a.depends_on is part of a cycle: a needs b needs c needs a"}},
		{"a cron expression", in("    schedule: '61 * * * *'\n"), []string{"4:15:", "no cron"}},
		{"a cron expression that makes the library panic", in("    schedule: 'TZ=0'\n"), []string{"4:15:"}},
		{"a zone", in("    schedule: {cron: '@daily', zone: Berlin}\n"), []string{"4:38:", "time zone"}},
		{"an absolute glob", in("    watch: [/etc/**]\n"), []string{"4:13:", "relative"}},
		{"a glob that leaves", in("    watch: ['../x']\n"), []string{"4:13:", "relative to the cwd of the service"}},
		{"a socket of another machine", in("    sockets: {http: 'example.org:80'}\n"), []string{"4:21: services.web.sockets.http is for the host", "of this machine"}},
		{"a socket without a port", in("    sockets: {http: 127.0.0.1}\n"), []string{"4:21: services.web.sockets.http", "PORT or HOST:PORT"}},
		{"a socket of all addresses", in("    sockets: {http: '*:3000'}\n"), []string{"4:21: services.web.sockets.http is \"*:3000\"; write 0.0.0.0:3000"}},
		{"a socket by a path", in("    sockets: {http: /run/web.sock}\n"), []string{"4:21: services.web.sockets.http is \"/run/web.sock\"", "write unix:/run/web.sock"}},
		{"a socket by a URL", in("    sockets: {http: 'http://localhost:3000'}\n"), []string{"4:21:", "without http://"}},
		{"a socket of IPv6 without brackets", in("    sockets: {http: '::1:3000'}\n"), []string{"4:21: services.web.sockets.http is \"::1:3000\"; an address of IPv6 stands in brackets: [::1]:3000"}},
		{"a socket of port 0", in("    sockets: {http: '127.0.0.1:0'}\n"), []string{"4:21:", "1 to 65535"}},
		{"a multicast socket", in("    sockets: {http: '224.0.0.1:80'}\n"), []string{"4:21:", "multicast"}},
		{"a socket without a file", in("    sockets: {http: 'unix:/run/'}\n"), []string{"4:21:", "names no file"}},
		{"an abstract socket", in("    sockets: {http: 'unix:@x'}\n"), []string{"4:21:", "everybody"}},
		{"a path too long", in("    sockets: {http: 'unix:/" + strings.Repeat("x", 107) + "'}\n"), []string{"4:21:", "108 bytes; the kernel's limit for a unix socket is 107"}},
		{"sockets as a list", in("    sockets: [3000]\n"), []string{"4:14: services.web.sockets is a list; a mapping of names to addresses"}},
		{"the name of a socket", in("    sockets: {'a:b': 3000}\n"), []string{"4:15:", "no name for a socket"}},
		{"a socket twice", in("    sockets: {a: 3000}\n  b:\n    command: y\n    sockets: {c: ':3000'}\n"), []string{"4:18: services.web.sockets.a is 127.0.0.1:3000", "that of services.b.sockets.c, too"}},
		{"too many sockets", in("    sockets:\n" + manySockets(MaxSockets+1)), []string{"5:7:", "33 entries; the limit is 32"}},
		{"sockets of a process that may have no threads", in("    sockets: {a: 3000}\n    limits: {pids: 1, memory: 1MiB}\n"), []string{"5:20: services.web.limits.pids is 1;", "5:31: services.web.limits.memory is 1MiB;"}},
		{"what others call sockets", in("    listen: 3000\n"), []string{"4:5:", "did you mean sockets?"}},
		{"the name of a service", "services: {'a b': {command: x}}\n", []string{"1:12:", "no name for a service"}},
		{"the name of a variable", in("    env: {'A=B': x}\n"), []string{"4:11:", "no name for a variable"}},
		{"a variable without a value", in("    env:\n      A:\n"), []string{"is empty", `("" for an empty one)`}},
		{"an empty command", "services: {web: {command: []}}\n", []string{"names no program"}},
		{"a command that is a mapping", "services: {web: {command: {a: b}}}\n", []string{"a line or a list of words"}},
		{"what is no condition of a repair", in("healer: {pass: [\"5432\", \"a b:1\", \"x:0\", \"/a/../b\", \"x:70000\"]}\n"),
			[]string{"healer.pass.0", "healer.pass.1", "healer.pass.2", "healer.pass.3", "healer.pass.4", "HOST:PORT is wanted"}},
		{"too many conditions", in("healer: {pass: [\"a:1\", \"a:2\", \"a:3\", \"a:4\", \"a:5\", \"a:6\", \"a:7\", \"[::1]:8\", \"/run/x\"]}\n"),
			[]string{"healer.pass.8", "the limit is 8"}},
		{"a healer of nobody", in("healer: {service: api}\n"), []string{"4:19:", "no service of this file"}},
		{"a healer that must choose", in("  b: {command: y}\nhealer: {}\n"), []string{"needs the key service"}},
		{"a sandbox without a name", in("    sandbox: ''\n"), []string{"4:14: services.web.sandbox is empty"}},
		{"a sandbox that was left open", in("    sandbox:\n"), []string{"services.web.sandbox is empty"}},
		{"a sandbox of all without a name", in("  b: {command: y}\nsandbox: ''\n"), []string{"5:10: sandbox is empty"}},
		{"a sandbox by a path", in("    sandbox: ../x\n"), []string{"4:14: services.web.sandbox is \"../x\", which is no name"}},
		{"a relative directory in a sandbox", in("    sandbox: s\n    cwd: app\n"), []string{"5:10: services.web.cwd is \"app\"; give an absolute path"}},
		{"a relative directory in the sandbox of all", in("    cwd: app\nsandbox: s\n"), []string{"4:10: services.web.cwd is \"app\"; give an absolute path"}},
		{"sockets in a sandbox", in("    sandbox: s\n    sockets: {a: 3000}\n"), []string{"5:14: services.web.sockets cannot be passed into a sandbox"}},
		{"the environment of tend up in a sandbox", in("    sandbox: s\n    inherit: all\n"), []string{"5:14: services.web.inherit is all"}},
		{"a probe beside the sandbox", in("    sandbox: s\n    health: {http: 'http://10.0.0.1:80/'}\n"), []string{"5:20: services.web.health.http is for 10.0.0.1:80; of a sandbox localhost"}},
		{"a port beside the sandbox", in("    sandbox: s\n    health: {tcp: '10.0.0.1:80'}\n"), []string{"5:19: services.web.health.tcp is for 10.0.0.1:80; of a sandbox localhost"}},
		{"a healer of a service in a sandbox without a directory", in("    sandbox: s\nhealer: {service: web}\n"), []string{"services.web.cwd is missing", "inside"}},
		{"a healer of a project in a sandbox by a relative path", in("    sandbox: s\n    cwd: /app\nhealer: {root: app}\n"), []string{"6:16: healer.root is \"app\"; give an absolute path, as it is inside the sandbox"}},
		{"a tag", in("    cwd: !!binary aaaa\n"), []string{"tags mean nothing"}},
		{"an alias of nothing", in("    cwd: *x\n"), []string{"4:", "x"}},
		{"two documents", in("") + "---\nservices: {}\n", []string{"second document"}},
		{"bad YAML", "services:\n  web: [\n", []string{"x:"}},
		{"tabs", "services:\n\tweb: {}\n", []string{"x:2:"}},
		{"no UTF-8", "services: \xff\n", []string{"UTF-8"}},
		{"too much", strings.Repeat("#", MaxBytes+1), []string{"the limit is 1048576"}},
		{"several at once, in their order", in("    zzzzzz: 1\n    stop: FOO\n    cmd: x\n"), []string{"4:5:", "5:11:", "6:5:", "did you mean command?"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("x", []byte(tt.text))
			if err == nil {
				t.Fatal("it was accepted")
			}
			rest := err.Error()
			for _, want := range tt.want {
				at := strings.Index(rest, want)
				if at < 0 {
					t.Fatalf("no %q in:\n%v", want, err)
				}
				rest = rest[at+len(want):]
			}
		})
	}
}

func TestAProblemIsShownWithItsLine(t *testing.T) {
	_, err := Parse("tend.yaml", []byte("services:\n  web:\n    command: x\n    helth: {}\n"))
	want := "tend.yaml:4:5: services.web.helth is no key that is known; did you mean health?\n        helth: {}\n        ^"
	if p, ok := err.(Problems); !ok || p.Show() != want {
		t.Errorf("got %v", p.Show())
	}
}

// Aliases of aliases grow without bound where they are expanded.
func TestAliasesDoNotGrowWithoutBound(t *testing.T) {
	var b strings.Builder
	b.WriteString("x-a0: &a0 {command: x}\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "x-a%d: &a%d {<<: [*a%d, *a%d, *a%d]}\n", i, i, i-1, i-1, i-1)
	}
	b.WriteString("services: {web: *a39}\n")
	if _, err := Parse("x", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "the limit is") {
		t.Errorf("got %.300v", err)
	}
	if _, err := Parse("x", []byte("x-a: &a {<<: *a}\nservices: {web: *a}\n")); err == nil {
		t.Error("an alias within its own anchor was accepted")
	}
}

func TestTheSchemaAcceptsWhatIsAccepted(t *testing.T) {
	schema := schemaOf(t)
	for name, text := range good(t) {
		if _, err := Parse(name, []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var v any
		proctest.Must(t, yaml.Unmarshal([]byte(text), &v))
		if err := schema.Validate(plainJSON(v)); err != nil {
			t.Errorf("the schema refuses %s: %v", name, err)
		}
	}
	for _, text := range []string{`services: {web: {comand: x}}`, `services: {web: {cwd: x}}`, `services: {web: {command: x, restart: sometimes}}`, `services: {web: {command: x, limits: {nice: 50}}}`, `what: 1`} {
		var v any
		proctest.Must(t, yaml.Unmarshal([]byte(text), &v))
		if schema.Validate(plainJSON(v)) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

func schemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc := proctest.Value(jsonschema.UnmarshalJSON(strings.NewReader(string(proctest.Value(Schema())(t)))))(t)
	c := jsonschema.NewCompiler()
	proctest.Must(t, c.AddResource("tend.json", doc))
	return proctest.Value(c.Compile("tend.json"))(t)
}

// plainJSON turns what YAML gives into what JSON gives.
func plainJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plainJSON(v[k])
		}
		return v
	case []any:
		for i := range v {
			v[i] = plainJSON(v[i])
		}
		return v
	case uint64:
		return float64(v)
	case int64:
		return float64(v)
	}
	return v
}

// The tags are the source of all that is said of a key, so they have to be right.
func TestEachTagCanBeRead(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		fields, keys := fieldsOf(typ)
		for _, key := range keys {
			f := fields[key]
			if f.Tag.Get("doc") == "" {
				t.Errorf("%s.%s has no doc", typ.Name(), f.Name)
			}
			for _, tag := range []string{"default", "shmastra", "min", "max"} {
				text, ok := f.Tag.Lookup(tag)
				if !ok {
					continue
				}
				to := reflect.New(f.Type).Elem()
				if to.Kind() == reflect.Slice {
					to = reflect.New(f.Type.Elem()).Elem()
				}
				if err := setWord(text, to); err != nil {
					t.Errorf("%s of %s.%s: %v", tag, typ.Name(), f.Name, err)
				} else if why := outside(to, f); why != "" {
					t.Errorf("%s of %s.%s %s", tag, typ.Name(), f.Name, why)
				}
			}
			look(f.Type)
		}
	}
	look(reflect.TypeFor[Config]())
	look(reflect.TypeFor[condition]())
	if len(seen) < 10 {
		t.Errorf("only %d types were seen", len(seen))
	}
}

func TestForeignKeysLeadToOursThatExist(t *testing.T) {
	_, root := fieldsOf(reflect.TypeFor[Config]())
	_, service := fieldsOf(reflect.TypeFor[Service]())
	_, probe := fieldsOf(reflect.TypeFor[Probe]())
	_, restart := fieldsOf(reflect.TypeFor[Restart]())
	all := strings.Join(append(append(append(root, service...), probe...), restart...), " ") + " "
	for other, ours := range foreign {
		first, _, _ := strings.Cut(ours, ".")
		if !strings.Contains(all, first+" ") {
			t.Errorf("%s leads to %s, which is no key", other, ours)
		}
	}
}

func TestLoadReadsEnvFilesAndMakesDirectoriesAbsolute(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		proctest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("tend.yaml", "services:\n  web: {command: x, cwd: app, env: {B: ours}, env_file: [.env, more.env]}\n  b: {command: x}\nhealer: {service: b}\n")
	write(".env", "# secrets\nexport A='a b'\nB=theirs\nC=one # comment\nD=\"x\\ny\"\n\n")
	write("more.env", "C=two\r\nE=\n")
	c := proctest.Value(proctest.Value(Open(filepath.Join(dir, "tend.yaml")))(t).Config())(t)
	if diff := cmp.Diff(map[string]string{"A": "a b", "B": "ours", "C": "two", "D": "x\ny", "E": ""}, c.Services["web"].Env); diff != "" {
		t.Errorf("env:\n%s", diff)
	}
	if c.Services["web"].Cwd != filepath.Join(dir, "app") || c.Services["b"].Cwd != dir || c.Healer.Root != dir {
		t.Errorf("cwd is %s and %s, root %s", c.Services["web"].Cwd, c.Services["b"].Cwd, c.Healer.Root)
	}
	write("more.env", "what is this\n")
	if _, err := proctest.Value(Open(filepath.Join(dir, "tend.yaml")))(t).Config(); err == nil || !strings.Contains(err.Error(), "more.env: line 1 is not NAME=value") || !strings.Contains(err.Error(), "tend.yaml:2:") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a directory was read as a file")
	}
}

func TestAScheduleNamesTimes(t *testing.T) {
	s := Schedule{Cron: "0 3 * * *", Zone: "UTC"}
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	if got := s.Next(at); !got.Equal(at.AddDate(0, 0, 1)) {
		t.Errorf("after %v comes %v", at, got)
	}
	if got := (&Schedule{Cron: "0 0 30 2 *", Zone: "UTC"}).Next(at); !got.IsZero() {
		t.Errorf("the 30th of February is %v", got)
	}
}

// Whatever the text is: no panic, and an error says where.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"small.yaml", "whole.yaml", "json.yaml"} {
		b, err := os.ReadFile(filepath.Join("testdata/good", path))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	for _, text := range []string{"", "a: *a", "&a [*a]", "services: {? [a] : b}", "services: {<<: 1}", "<<: {services: {}}", "- - - -", "services:\n  w: &w {command: x, <<: *w}\n", "services: {web: {command: x, schedule: 'TZ=0'}}", "!!map {}", "? a", "services: {a: {command: [\"\\u0000\"]}}", "%YAML 1.2\n---\nservices: {}", "{\"a\":", "services: |\n  x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4<<10 {
			return
		}
		c, err := Parse("x", []byte(text))
		if err == nil {
			if len(c.Services) == 0 || len(c.Order()) != len(c.Services) {
				t.Errorf("accepted %q with %d services in an order of %d", text, len(c.Services), len(c.Order()))
			}
			for name, s := range c.Services {
				if s == nil || s.Name != name || s.Command.Empty() {
					t.Errorf("accepted %q with the service %+v", text, s)
				}
			}
			return
		}
		problems, ok := err.(Problems)
		if !ok || len(problems) == 0 || len(problems) > MaxProblems {
			t.Fatalf("%q: the error is %T of %v", text, err, err)
		}
		_ = problems.Show()
	})
}

func FuzzParseEnv(f *testing.F) {
	for _, text := range []string{"A=b", "export A='b'", "A=\"b\\", "=x", "A", "A=#b", "\ufeffA=1\r\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars, err := ParseEnv([]byte(text))
		for k, v := range vars {
			if badName(k, "env") != "" && len(k) <= 1000 || strings.ContainsRune(v, 0) || err != nil {
				t.Errorf("%q gives %q=%q, %v", text, k, v, err)
			}
		}
	})
}
