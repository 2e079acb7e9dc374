package importer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

// there are the files of a project: executable or not.
func there(files map[string]bool) Exists {
	return func(path string) (bool, bool) {
		executable, file := files[path]
		return file, executable
	}
}

// The shape of the file of shmastra-cloud: a dev server by pnpm, a healer that is
// bundled, a watcher in bash.
const seed = `{"apps":[
{"name":"shmastra","script":"pnpm","args":"dev","cwd":"/home/user/shmastra","autorestart":true,"max_restarts":1,"min_uptime":10000,"restart_delay":2000,
 "max_memory_restart":"3800M","out_file":"/home/user/.logs/shmastra.log","error_file":"/home/user/.logs/shmastra.log","merge_logs":true,
 "env":{"NODE_OPTIONS":"--max-old-space-size=3400","A":"it's \"quoted\": # no comment"}},
{"name":"healer","script":"/home/user/healer.cjs","autorestart":true},
{"name":"project-watcher","script":"/home/user/watch.sh","interpreter":"bash","max_restarts":5,"min_uptime":"30s","restart_delay":30000}]}`

func TestTheSeedsFile(t *testing.T) {
	f := proctest.Value(PM2("ecosystem.config.cjs", []byte(seed), there(map[string]bool{"/home/user/healer.cjs": false, "/home/user/watch.sh": true})))(t)
	want := `# From a file of pm2.
services:
  shmastra:
    command: [pnpm, dev]
    cwd: /home/user/shmastra
    restart: {max: 1, within: 1m0s, delay: 2s, factor: 1, max_delay: 2s}
    stop: {signal: INT, timeout: 1.6s}
    pressure: {restart: true}
    env:
      A: "it's \"quoted\": # no comment"
      NODE_OPTIONS: "--max-old-space-size=3400"
    # max_memory_restart: 3800M: it is restarted when it comes near to a limit that there is; limits: {memory: SIZE} sets one where tend may make control groups
    # its output is kept by tend: tend logs shmastra
  healer:
    command: [node, /home/user/healer.cjs]
    restart: {max: 16, within: 1m0s}
    stop: {signal: INT, timeout: 1.6s}
  project-watcher:
    command: [bash, /home/user/watch.sh]
    restart: {max: 5, within: 3m0s, delay: 30s, factor: 1, max_delay: 30s}
    stop: {signal: INT, timeout: 1.6s}
`
	if diff := cmp.Diff(want, string(f.YAML())); diff != "" {
		t.Errorf("the file:\n%s", diff)
	}
	c := proctest.Value(config.Parse("x", f.YAML()))(t)
	if got := c.Services["shmastra"].Env["A"]; got != `it's "quoted": # no comment` {
		t.Errorf("a variable is %q", got)
	}
}

func TestWhatPM2HasIsReadOrSaid(t *testing.T) {
	for _, tt := range []struct {
		name, app string
		want      []string // in what is made
	}{
		{"a script that is there", "script: app.js, args: ['--port', 3000], node_args: '--inspect --x=\"a b\"'", []string{`command: [node, "--inspect", "--x=a b", ./app.js, "--port", 3000]`}},
		{"a line", "script: npm run dev", []string{`command: "npm run dev"`}},
		{"a line with arguments", "script: npm run dev, args: ['--', 'a b']", []string{`command: "npm run dev -- 'a b'"`}},
		{"a program without an extension", "script: server", []string{"command: [./server]"}},
		{"a file that cannot be executed", "script: tool", []string{"command: [node, ./tool]"}},
		{"a program of PATH", "script: caddy, args: run", []string{"command: [caddy, run]"}},
		{"python", "script: w.py, interpreter: /usr/bin/python3, interpreter_args: -u", []string{"[/usr/bin/python3, \"-u\", ./w.py]"}},
		{"below a directory", "script: main.js, cwd: api", []string{"[node, ./main.js]", "cwd: api"}},
		{"no restarts", "script: caddy, autorestart: false", []string{"restart: never"}},
		{"codes that end it", "script: caddy, stop_exit_codes: [0, 3]", []string{"policy: on-failure, success_codes: [0, 3]"}},
		{"codes that end it without success", "script: caddy, stop_exit_codes: 7", []string{"permanent_codes: [7]"}},
		{"backoff", "script: caddy, exp_backoff_restart_delay: 100", []string{"delay: 100ms, factor: 1.5, max_delay: 15s"}},
		{"a time to end", "script: caddy, kill_timeout: 5000", []string{"stop: {signal: INT, timeout: 5s}"}},
		{"watching", "script: caddy, watch: [src, ./lib/], ignore_watch: [node_modules, '*.md', '\\.git', '/abs'], watch_delay: 1000", []string{`watch: {paths: [src, lib], ignore: ["*.md"], delay: 1s}`, `# to watch or not to watch "\\.git"`, `"/abs"`}},
		{"watching all", "script: caddy, watch: true", []string{`watch: {paths: ["**"]}`}},
		{"environments", "script: caddy, env: {A: 1}, env_production: {A: 2}", []string{"A: 1", "# env_production: there is one environment"}},
		{"instances of a cluster", "script: app.js, instances: max, exec_mode: cluster", []string{"# instances: max runs as one"}},
		{"instances that fork", "name: w, script: app.js, instances: 2, exec_mode: fork", []string{"w-0:", "NODE_APP_INSTANCE: 0", "w-1:", "NODE_APP_INSTANCE: 1"}},
		{"cron", "script: caddy, cron_restart: '0 3 * * *'", []string{"# cron_restart: 0 3 * * *: a restart at a time"}},
		{"messages", "script: caddy, wait_ready: true", []string{"# wait_ready: there are no messages"}},
		{"a user", "script: caddy, uid: 1000, gid: 1000", []string{`user: "1000:1000"`}},
		{"not at once", "script: caddy, autostart: false", []string{"disabled: true"}},
		{"what nobody knows", "script: caddy, frobnicate: 1", []string{"# frobnicate has no equivalent"}},
		{"a name that none may have", "name: 'my app!', script: caddy", []string{"my-app:", `# its name was "my app!"`}},
		{"a comment that would be a key", "script: caddy, \"x\\n    user: root\": 1", []string{"# x     user: root has no equivalent"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := PM2("x", []byte("apps: [{"+tt.app+"}]"), there(map[string]bool{"app.js": false, "w.py": false, "server": true, "tool": false, "api/main.js": false}))
			if err != nil {
				t.Fatal(err)
			}
			rest := string(f.YAML())
			for _, want := range tt.want {
				at := strings.Index(rest, want)
				if at < 0 {
					t.Fatalf("no %s in:\n%s", want, f.YAML())
				}
				rest = rest[at:]
			}
		})
	}
	two := proctest.Value(PM2("x", []byte("[{script: a}, {script: a}]"), there(nil)))(t)
	if y := string(two.YAML()); !strings.Contains(y, "  a:\n") || !strings.Contains(y, "  a-2:\n") {
		t.Errorf("two of a name are\n%s", y)
	}
	one := proctest.Value(PM2("x", []byte("{\n\t\"apps\": [\n\t\t{\"script\": \"a\"}\n\t],\n\t\"deploy\": {}\n}"), there(nil)))(t)
	if n := one.Notes(); len(n) != 1 || n[0] != "deploy has no equivalent" {
		t.Errorf("notes are %q", n)
	}
}

func TestAProcfile(t *testing.T) {
	f := proctest.Value(Procfile("Procfile", []byte("# all\nweb: node server.js --port $PORT\r\n\nworker:  python3 -u worker.py\n"), true))(t)
	want := "# From a file of Procfile.\nservices:\n  web:\n    command: \"node server.js --port $PORT\"\n    env_file: .env\n    env:\n      PORT: 5000\n    # PORT is what foreman gives it; health: {tcp: 5000} asks there\n  worker:\n    command: \"python3 -u worker.py\"\n    env_file: .env\n"
	if diff := cmp.Diff(want, string(f.YAML())); diff != "" {
		t.Errorf("the file:\n%s", diff)
	}
}

func TestProcessCompose(t *testing.T) {
	text := `version: "0.5"
environment: ["A=1"]
log_level: debug
processes:
  db:
    command: postgres -D data
    readiness_probe: {exec: {command: pg_isready}, period_seconds: 2, failure_threshold: 5}
    shutdown: {signal: 2, timeout_seconds: 30}
  migrate:
    command: ./migrate
    depends_on: {db: {condition: process_healthy}}
  web:
    command: npm start
    working_dir: app
    environment: {PORT: 3000}
    depends_on: {migrate: {condition: process_completed_successfully}, db: {}}
    availability: {restart: on_failure, backoff_seconds: 2, max_restarts: 4}
    liveness_probe: {http_get: {host: 127.0.0.1, port: 3000, path: /health}}
    is_tty: true
    shutdown: {command: "./drain --all", timeout_seconds: 20}
`
	f := proctest.Value(ProcessCompose("x", []byte(text)))(t)
	c := proctest.Value(config.Parse("x", f.YAML()))(t)
	web, db := c.Services["web"], c.Services["db"]
	if web.Cwd != "app" || web.Env["PORT"] != "3000" || web.Env["A"] != "1" || web.Restart.Policy != "on-failure" || web.Restart.Max != 4 || web.Liveness.HTTP.URL != "http://127.0.0.1:3000/health" {
		t.Errorf("web is %+v", web)
	}
	if d := web.DependsOn; len(d) != 2 || d[0].Condition != config.Started || d[1].Condition != config.Completed {
		t.Errorf("it depends on %+v", d)
	}
	if db.Readiness.Exec.Line != "pg_isready" || db.Readiness.Failures != 5 || db.Stop.Signal != 2 || db.Restart.Policy != "never" {
		t.Errorf("db is %+v", db)
	}
	if got := strings.Join(f.Notes(), "|"); got != "log_level has no equivalent|web: shutdown.command: its signal follows it, if it has not ended then|web: is_tty has no equivalent" {
		t.Errorf("notes are %s", got)
	}
	if h := web.Hooks.PreStop; h == nil || h.Command.Line != "./drain --all" || h.Timeout.Std() != 20*time.Second || web.Stop.Timeout.Std() != 20*time.Second {
		t.Errorf("before it is stopped: %+v", h)
	}
}

// All with one name, so that each needs another one: the first that is too many ends it.
func TestMoreServicesThanMayBeAreRefusedAtOnce(t *testing.T) {
	const n = 40_000
	want := "declares more than 1000 services"
	for what, err := range map[string]error{
		"pm2": func() error {
			_, err := PM2("f", []byte("["+strings.Repeat(`{script: a},`, n)+"]"), there(nil))
			return err
		}(),
		"Procfile": func() error { _, err := Procfile("f", []byte(strings.Repeat("a: b\n", n)), false); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %.300v; want %q", what, err, want)
		}
	}
	if _, err := PM2("f", []byte("["+strings.Repeat(`{script: a},`, 1000)+"]"), there(nil)); err != nil {
		t.Errorf("a thousand: got %v", err)
	}
}

func TestHostileFilesAreRefusedWithTheirPlace(t *testing.T) {
	pm2 := func(text string) error { _, err := PM2("f", []byte(text), there(nil)); return err }
	compose := func(text string) error { _, err := ProcessCompose("f", []byte(text)); return err }
	procfile := func(text string) error { _, err := Procfile("f", []byte(text), false); return err }
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no app", pm2("{}"), "f:1:1: is no ecosystem file"},
		{"an app that is a word", pm2("apps:\n  - web\n"), "f:2:5: has an app that is no mapping"},
		{"no script", pm2("apps:\n  - name: web\n"), "f:2:5: has an app without script"},
		{"arguments that are a mapping", pm2("apps:\n  - script: a\n    args: {x: y}\n"), "f:3:"},
		{"an environment that is a list", pm2("apps:\n  - script: a\n    env: [A]\n"), "env is no mapping"},
		{"a quote that stays open", pm2("apps: [{script: a, args: \"'x\"}]"), "f:1:"},
		{"no number", pm2("apps: [{script: a, max_restarts: many}]"), "no whole number"},
		{"a time", pm2("apps: [{script: a, restart_delay: soon}]"), "no time"},
		{"broken JSON", pm2("{\"apps\": [\n{\"script\": }"), "f:"},
		{"nothing", pm2(""), "f: is empty"},
		{"no text", pm2("\xff"), "UTF-8"},
		{"deep", pm2(strings.Repeat("[", 200) + strings.Repeat("]", 200)), "f:"},
		{"aliases of aliases", pm2("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\napps: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"), "f:"},
		{"a variable that none can have", pm2("apps: [{script: a, env: {'A=B': 1}}]"), "no name for a variable"},
		{"processes that are a list", compose("processes: [a]"), "f:1:"},
		{"a process without a command", compose("processes:\n  a: {}\n"), "command is needed"},
		{"a dependency on nothing", compose("processes:\n  a: {command: x, depends_on: {b: {}}}\n"), "names \"b\""},
		{"a condition", compose("processes: {a: {command: x}, b: {command: x, depends_on: {a: {condition: soon}}}}"), "not known"},
		{"a cycle", compose("processes: {a: {command: x, depends_on: {b: {}}}, b: {command: x, depends_on: {a: {}}}}"), "cycle"},
		{"a line that is none", procfile("web: x\nwhat is this\n"), "f:2:1: is not NAME: COMMAND"},
		{"an empty Procfile", procfile("# nothing\n"), "declares nothing"},
		{"a Procfile of bytes", procfile("web: a\x00b"), "no text"},
	} {
		var problems config.Problems
		if tt.err == nil || !errors.As(tt.err, &problems) || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: got %v; want %s", tt.name, tt.err, tt.want)
		}
	}
}

// What is read is a file that is accepted, or it is refused: with a Problem.
func FuzzForeign(f *testing.F) {
	f.Add([]byte(seed))
	f.Add([]byte("processes: {a: {command: x, depends_on: {b: {condition: process_healthy}}}, b: {command: y, readiness_probe: {http_get: {port: 80}}}}"))
	f.Add([]byte("web: node x.js\nworker: y $PORT"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func() (*File, error){
			func() (*File, error) { return PM2("f", data, there(nil)) },
			func() (*File, error) { return ProcessCompose("f", data) },
			func() (*File, error) { return Procfile("f", data, true) },
		} {
			file, err := read()
			var problems config.Problems
			if err != nil {
				if !errors.As(err, &problems) {
					t.Errorf("%v is no problem", err)
				}
				continue
			}
			if _, err := config.Parse("f", file.YAML()); err != nil {
				t.Errorf("%v of\n%s", err, file.YAML())
			}
		}
	})
}
