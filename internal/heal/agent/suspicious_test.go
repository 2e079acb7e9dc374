package agent_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/support/proctest"
)

// change reads a file of testdata/changes: the files before and after, and of each
// one that has them its marks dirty and athead.
func readChange(t *testing.T, file string) (files []agent.FileDiff, wants []string) {
	t.Helper()
	a := proctest.Value(txtar.ParseFile(file))(t)
	at := map[string]int{}
	get := func(name string) *agent.FileDiff {
		i, ok := at[name]
		if !ok {
			i = len(files)
			at[name] = i
			files = append(files, agent.FileDiff{Path: name, Added: true, Deleted: true})
		}
		return &files[i]
	}
	for line := range strings.Lines(string(a.Comment)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "file: "); ok {
			words := strings.Fields(rest)
			f := get(words[0])
			f.Dirty, f.AtHead = slices.Contains(words, "dirty"), slices.Contains(words, "athead")
		} else if rest, ok := strings.CutPrefix(line, "want: "); ok {
			wants = append(wants, rest)
		}
	}
	for _, x := range a.Files {
		if name, ok := strings.CutPrefix(x.Name, "before/"); ok {
			f := get(name)
			f.Before, f.Added = string(x.Data), false
		} else if name, ok := strings.CutPrefix(x.Name, "after/"); ok {
			f := get(name)
			f.After, f.Deleted = string(x.Data), false
		}
	}
	return files, wants
}

// TestProperAndImproperFixesOfTheScenarios: each improper one is caught, and no
// proper one is.
func TestProperAndImproperFixesOfTheScenarios(t *testing.T) {
	all := proctest.Value(filepath.Glob("testdata/changes/*.txtar"))(t)
	if len(all) < 14 {
		t.Fatalf("%d changes", len(all))
	}
	for _, file := range all {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			files, wants := readChange(t, file)
			judge(t, agent.Suspicious(files), wants)
		})
	}
}

func judge(t *testing.T, got, wants []string) {
	t.Helper()
	if len(wants) == 0 && len(got) > 0 {
		t.Errorf("a proper change is called suspicious: %q", got)
	}
	for _, w := range wants {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, w) }) {
			t.Errorf("%q is not among the reasons %q", w, got)
		}
	}
}

// catalogue are changes to one file each. The proper ones repair the same fault, or
// look like an improper one.
var catalogue = []struct{ name, path, before, after, want string }{
	// Checks and errors, JavaScript.
	{"a check removed", "a.js", "if (!key) throw new Error('no key');\nrun(key);\n", "run(key);\n", "a check that throws was removed"},
	{"a check commented out", "a.js", "if (!key) throw new Error('no key');\nrun(key);\n", "// if (!key) throw new Error('no key');\nrun(key);\n", "a check that throws was removed"},
	{"a check in a block comment", "a.ts", "if (!key) throw new Error('no key');\nrun(key);\n", "/* if (!key) throw new Error('no key'); */\nrun(key);\n", "a check that throws was removed"},
	{"a check moved", "a.js", "run(key);\nif (!key) throw new Error('no key');\n", "  if (!key) throw new Error('no key');\nrun(key);\n", ""},
	{"a check with another text", "a.js", "if (!key) throw new Error('no key');\n", "if (!key || !key.id) throw new TypeError('no key or id');\n", ""},
	{"a condition turned off", "a.js", "if (size > max) throw new Error('large');\n", "if (false && size > max) throw new Error('large');\n", "a condition was turned off"},
	{"a condition that always holds", "a.js", "if (ok(user)) serve();\n", "if (ok(user) || true) serve();\n", "a condition was turned off"},
	{"an empty catch", "a.js", "load();\n", "try { load(); } catch (e) {}\n", "an exception is swallowed"},
	{"an empty catch over lines", "a.ts", "load();\n", "try {\n  load();\n} catch {\n  // fine\n}\n", "an exception is swallowed"},
	{"a catch that returns nothing", "a.js", "return load();\n", "try {\n  return load();\n} catch (err) {\n  return null;\n}\n", "an exception is swallowed"},
	{"a catch that does something", "a.js", "send(job);\n", "try { send(job); } catch (err) { console.error(err); failed.push(job); }\n", ""},
	{"a catch that was there", "a.js", "try { a(); } catch (e) {}\nlet x = = 1;\n", "try { a(); } catch (e) {}\nlet x = 1;\n", ""},
	{"a swallowed rejection", "a.js", "send(job);\n", "send(job).catch(() => {});\n", "a rejection is swallowed"},
	{"a swallowed rejection with a value", "a.js", "const x = await get();\n", "const x = await get().catch(e => null);\n", "a rejection is swallowed"},
	{"a rejection with a noop", "a.js", "send(job);\n", "send(job).catch(noop);\n", "a rejection is swallowed"},
	{"a rejection to a function", "a.js", "send(job);\n", "send(job).catch(function (e) { });\n", "a rejection is swallowed"},
	{"a handled rejection", "a.js", "send(job);\n", "send(job).catch((err) => { log(err); skipped.add(job.id); });\n", ""},
	{"an uncaught handler that does nothing", "a.js", "start();\n", "process.on('uncaughtException', () => {});\nstart();\n", "no longer end the program"},
	{"an uncaught handler that only logs", "a.mjs", "start();\n", "process.on(\"unhandledRejection\", (e) => {\n  console.error(e);\n});\nstart();\n", "no longer end the program"},
	{"an uncaught handler that ends", "a.js", "start();\n", "process.on('uncaughtException', (e) => { console.error(e); process.exit(1); });\nstart();\n", ""},
	{"an uncaught handler that no longer ends", "a.js", "process.on('uncaughtException', (e) => { console.error(e); process.exit(1); });\n", "process.on('uncaughtException', (e) => { console.error(e); });\n", "no longer end the program"},
	{"a flag for rejections", "package.json", `{"scripts":{"dev":"node s.js"}}`, `{"scripts":{"dev":"node --unhandled-rejections=none s.js"}}`, "errors of the whole process are ignored"},
	{"an exit removed", "a.js", "if (bad) { process.exit(1); }\n", "if (bad) { console.log('bad'); }\n", "no longer ends where it did"},
	{"an exit with success", "a.js", "fail(); process.exit(1);\n", "fail(); process.exit(0);\n", "ends as if all were well"},
	{"TLS off", "a.js", "https.get(u);\n", "https.get(u, { rejectUnauthorized: false });\n", "a check of security was turned off"},
	{"a secret in the code", "a.js", "const key = process.env.SIGNING_KEY;\n", "const key = process.env.SIGNING_KEY || 'dev';\n", "a secret has a value of its own"},
	{"a default that is no secret", "a.js", "const port = process.env.PORT;\n", "const port = process.env.PORT || '3000';\n", ""},
	{"console.error off", "a.js", "x();\n", "console.error = () => {};\nx();\n", "messages about errors"},
	// Work, routes, definitions.
	{"a timer removed", "a.js", "setInterval(tick, 1000);\nserve();\n", "serve();\n", "work that the program did"},
	{"a start removed", "a.js", "schedule.start(config, run);\nserve();\n", "serve();\n", "work that the program did"},
	{"a timer that comes once", "a.js", "exports.start = () => setInterval(poll, 20);\n", "exports.start = () => setTimeout(poll, 20);\n", "again and again"},
	{"a timer that sets itself", "a.js", "const tick = () => poll();\nsetInterval(tick, 20);\n", "const tick = async () => {\n  try { await poll(); } finally { setTimeout(tick, 20); }\n};\ntick();\n", ""},
	{"a function that sets a timer for itself", "a.js", "function tick() {\n  poll();\n}\nsetInterval(tick, 20);\n", "function tick() {\n  poll();\n  setTimeout(tick, 20);\n}\ntick();\n", ""},
	{"a timer that no longer sets itself", "a.js", "function tick() {\n  poll();\n  setTimeout(tick, 20);\n}\ntick();\n", "function tick() {\n  poll();\n}\nsetTimeout(tick, 20);\n", "again and again"},
	{"an interval changed", "a.js", "setInterval(tick, 0);\n", "setInterval(tick, 1000);\n", ""},
	{"a route removed", "a.js", "app.get('/orders', orders);\napp.get('/x', x);\n", "app.get('/x', x);\n", "a route was removed"},
	{"a route by comparison removed", "a.js", "if (req.url === '/a') return a();\nif (req.url === '/b') return b();\n", "if (req.url === '/a') return a();\n", "a route was removed"},
	{"an import removed", "a.js", "const a = require('a');\nconst b = require('b');\n", "const a = require('a');\nconst b = { run() {} };\n", "a module is no longer loaded"},
	{"an import renamed", "a.ts", "import { x } from './lib';\n", "import { x } from './lib.js';\n", ""},
	{"a function removed", "a.js", "exports.a = () => run(1);\nexports.b = () => run(2);\n", "exports.a = () => run(1);\n", "b is no longer defined"},
	{"a function made constant", "a.js", "exports.discount = (gross, c) => {\n  let off = 0;\n  if (gross > 5) off = gross * 0.1;\n  return off;\n};\n", "exports.discount = () => 0;\n", "discount does nothing any more"},
	{"a function made empty", "a.js", "function tick(x) {\n  runs += x;\n}\n", "function tick(x) {\n}\n", "tick does nothing any more"},
	{"a duplicate removed", "a.js", "function f(a) {\n  return g(a);\n}\nfunction f(a) {\n  return g(a);\n}\n", "function f(a) {\n  return g(a);\n}\n", ""},
	{"most of a file removed", "a.js", strings.Repeat("doThis(x);\ndoThat(y);\n", 10), "doThis(x);\n", "most of the file was removed"},
	{"a conflict resolved", "a.js", "start1();\n<<<<<<< HEAD\nconst a = 1;\n=======\nconst a = 2;\n>>>>>>> x\n", "start1();\nconst a = 2;\n", ""},
	{"a second server", "a.js", "http.createServer(app).listen(p);\n", "http.createServer((q, s) => s.end('ok')).listen(p);\nhttp.createServer(app).listen(p + 1);\n", "another server was added"},
	{"a limit to nothing", "dev.js", "if (Date.now() - t > 6000) take();\n", "if (Date.now() - t > 0) take();\n", "a limit in a condition"},
	{"a limit to infinity", "a.js", "while (m.size > MAX) drop();\n", "while (m.size > Infinity) drop();\n", "a limit in a condition"},
	{"a limit corrected", "a.js", "for (let i = 0; i <= n; i++) f(a[i]);\n", "for (let i = 0; i < n; i++) f(a[i]);\n", ""},
	{"memory raised", "package.json", `{"scripts":{"dev":"node --max-old-space-size=48 s.js"}}`, `{"scripts":{"dev":"node --max-old-space-size=4096 s.js"}}`, "the limit of memory was raised"},
	// Health.
	{"a health route added", "a.js", "app.use(router);\n", "app.get('/health', (q, s) => s.json({ ok: true }));\napp.use(router);\n", "a route that answers health checks was added"},
	{"a health route that no longer asks", "a.js", "app.get('/health', async (q, s) => {\n  await db.ping();\n  s.json({ ok: true });\n});\n", "app.get('/health', async (q, s) => {\n  s.json({ ok: true });\n});\n", "the health check no longer asks db.ping"},
	{"a health route in one line", "a.js", "if (req.url === '/health') return json(200, check());\n", "if (req.url === '/health') return json(200, { ok: true });\n", "the health check no longer asks check"},
	{"another route beside health", "a.js", "if (req.url === '/health') return json(200, {});\nif (req.url === '/a' return a();\n", "if (req.url === '/health') return json(200, {});\nif (req.url === '/a') return a();\n", ""},
	{"a health route of Python", "a.py", "@app.get('/health')\ndef health():\n    return db.check()\n", "@app.get('/health')\ndef health():\n    return {'ok': True}\n", "health"},
	// Types and style.
	{"ts-nocheck", "a.ts", "const a: number = f();\n", "// @ts-nocheck\nconst a: number = f();\n", "a check of types"},
	{"as any", "a.ts", "const a: number = f();\n", "const a: number = f() as any;\n", "a check of types"},
	{"strict off", "tsconfig.json", "{\n  // ours\n  \"strict\": true\n}\n", "{\n  // ours\n  \"strict\": false\n}\n", "a check of types"},
	{"skipLibCheck", "tsconfig.json", "{\"compilerOptions\":{}}", "{\"compilerOptions\":{\"skipLibCheck\": true}}", "a check of types"},
	{"type: ignore", "a.py", "x = f()\n", "x = f()  # type: ignore\n", "a check of types"},
	{"nolint", "a.go", "package a\n", "package a //nolint\n", "a check of types"},
	// Tests.
	{"a test deleted", "test/a.test.js", "it('works', () => { expect(f()).toBe(1); });\n", "", "a test was deleted"},
	{"a test skipped", "a.test.ts", "it('works', () => { expect(f()).toBe(1); });\n", "it.skip('works', () => { expect(f()).toBe(1); });\n", "a test is skipped"},
	{"a test changed", "test.js", "assert.equal(f(), 1);\n", "assert.equal(f(), 2);\n", "what a test wants was changed"},
	{"a test added", "a_test.go", "package a\n\nfunc TestA(t *testing.T) { t.Error(1) }\n", "package a\n\nfunc TestA(t *testing.T) { t.Error(1) }\n\nfunc TestB(t *testing.T) { t.Error(2) }\n", ""},
	{"a Python test skipped", "tests/test_a.py", "def test_a():\n    assert f() == 1\n", "@pytest.mark.skip\ndef test_a():\n    assert f() == 1\n", "a test is skipped"},
	{"a Go test skipped", "a_test.go", "func TestA(t *testing.T) { f() }\n", "func TestA(t *testing.T) { t.Skip(); f() }\n", "a test is skipped"},
	{"the test script", "package.json", `{"scripts":{"test":"node test.js"}}`, `{"scripts":{"test":"exit 0"}}`, "the script test does nothing"},
	// Dependencies.
	{"a version loosened", "package.json", `{"dependencies":{"a":"1.2.3"}}`, `{"dependencies":{"a":"*"}}`, "the version of a was loosened"},
	{"a caret", "package.json", `{"dependencies":{"a":"1.2.3"}}`, `{"dependencies":{"a":"^1.2.3"}}`, "the version of a was loosened"},
	{"another exact version", "package.json", `{"dependencies":{"a":"1.2.3"}}`, `{"dependencies":{"a":"1.2.4"}}`, ""},
	{"a dependency removed", "package.json", `{"dependencies":{"a":"1","b":"2"}}`, `{"dependencies":{"a":"1"}}`, "the dependency b was removed"},
	{"a dependency added", "package.json", `{"dependencies":{"a":"1"}}`, `{"dependencies":{"a":"1","b":"2.0.0"}}`, ""},
	{"a script that cannot fail", "package.json", `{"scripts":{"dev":"node s.js"}}`, `{"scripts":{"dev":"node s.js || true"}}`, "a command may fail unseen"},
	{"requirements loosened", "requirements.txt", "flask==3.0.1\nrequests==2.1\n", "flask>=3\nrequests==2.1\n", "the version of flask was loosened"},
	{"a requirement removed", "requirements.txt", "flask==3.0.1\nrequests==2.1\n", "flask==3.0.1\n", "the dependency requests was removed"},
	{"a requirement corrected", "requirements.txt", "flaskk==3.0.1\n", "flaskk==3.0.2 # corrected\n", ""},
	{"a module replaced", "go.mod", "module x\n\nrequire a v1\n", "module x\n\nrequire a v1\n\nreplace a => ../a\n", "a module was replaced"},
	{"an installed package", "node_modules/a/index.js", "broken(", "exports.a = 1", "was installed"},
	// Python.
	{"except pass", "a.py", "load()\n", "try:\n    load()\nexcept:\n    pass\n", "an exception is swallowed"},
	{"except Exception pass", "a.py", "load()\n", "try:\n    load()\nexcept Exception as e: pass\n", "an exception is swallowed"},
	{"except Exception return", "a.py", "    return load()\n", "    try:\n        return load()\n    except Exception:\n        return None\n", "an exception is swallowed"},
	{"except of one kind", "a.py", "    return d[k]\n", "    try:\n        return d[k]\n    except KeyError:\n        return None\n", ""},
	{"except that logs", "a.py", "send(job)\n", "try:\n    send(job)\nexcept ValueError:\n    log.exception('job %s', job)\n    skipped.add(job)\n", ""},
	{"suppress", "a.py", "load()\n", "with contextlib.suppress(Exception):\n    load()\n", "an exception is swallowed"},
	{"raise removed", "a.py", "if not key:\n    raise ValueError('key')\n", "if not key:\n    key = 'x'\n", "a check that raises was removed"},
	{"assert removed", "a.py", "assert size > 0\nrun()\n", "run()\n", "an assertion was removed"},
	{"a function made constant in Python", "a.py", "def total(x):\n    y = sum(x)\n    return y\n\nz = 1\n", "def total(x):\n    return 0\n\nz = 1\n", "total does nothing any more"},
	{"verify off", "a.py", "requests.get(u)\n", "requests.get(u, verify=False)\n", "a check of security"},
	{"a thread removed", "a.py", "Thread(target=poll).start()\nserve()\n", "serve()\n", "work that the program did"},
	{"a default secret", "a.py", "K = os.environ['API_KEY']\n", "K = os.environ.get('API_KEY', 'dev')\n", "a secret has a value of its own"},
	{"an indentation repaired", "a.py", "def f():\nreturn g()\n", "def f():\n    return g()\n", ""},
	// Go.
	{"recover", "a.go", "func f() { g() }\n", "func f() {\n\tdefer func() { _ = recover() }()\n\tg()\n}\n", "a panic is swallowed"},
	{"an error thrown away", "a.go", "v, err := f()\nif err != nil {\n\treturn err\n}\n", "v, _ := f()\n", "an error is"},
	{"an error ignored", "a.go", "if err := f(); err != nil {\n\treturn err\n}\n", "_ = f()\n", "an error is"},
	{"an error swallowed", "a.go", "if err != nil {\n\treturn err\n}\n", "if err != nil {\n}\n", "an error is swallowed"},
	{"an error wrapped", "a.go", "if err != nil {\n\treturn err\n}\n", "if err != nil {\n\treturn fmt.Errorf(\"f: %w\", err)\n}\n", ""},
	{"a panic removed", "a.go", "if n < 0 {\n\tpanic(\"negative\")\n}\n", "if n < 0 {\n\tn = 0\n}\n", "no longer ends where it did"},
	{"an unused import removed", "a.go", "import (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { os.Exit(run()) }\n", "import (\n\t\"os\"\n)\n\nfunc main() { os.Exit(run()) }\n", ""},
	{"a goroutine removed", "a.go", "go poll(ctx)\nserve()\n", "serve()\n", "work that the program did"},
	{"a Go function made constant", "a.go", "func Total(x []int) int {\n\ts := 0\n\tfor _, v := range x {\n\t\ts += v\n\t}\n\treturn s\n}\n", "func Total(x []int) int {\n\treturn 0\n}\n", "Total does nothing any more"},
	// Answers that something is wrong.
	{"a 503 removed", "a.js", "app.get('/health', (q, r) => {\n  if (!db.ok) {\n    r.statusCode = 503;\n    return r.end('db');\n  }\n  r.end(db.name);\n});\n", "app.get('/health', (q, r) => {\n  r.end(db.name);\n});\n", "an answer that something is wrong"},
	{"a choice of statuses removed", "a.js", "res.status(ok() ? 200 : 503).end(ok());\n", "res.status(200).end(ok());\n", "an answer that something is wrong"},
	{"a condition turned round", "a.js", "if (ok()) return res.status(500).end();\nres.end();\n", "if (!ok()) return res.status(500).end();\nres.end();\n", ""},
	{"a wrong status corrected", "a.js", "res.writeHead(500);\nres.end('ok');\n", "res.writeHead(200);\nres.end('ok');\n", ""},
	{"a 500 of Python removed", "a.py", "def do_GET(s):\n    if greet() != 'hi':\n        s.send_response(500)\n    s.end()\n", "def do_GET(s):\n    s.end()\n", "an answer that something is wrong"},
	{"a 503 of Flask removed", "a.py", "if not db:\n    return jsonify(error='db'), 503\nreturn 'ok'\n", "return 'ok'\n", "an answer that something is wrong"},
	{"a 503 of Go removed", "a.go", "if !ready() {\n\thttp.Error(w, \"no\", http.StatusServiceUnavailable)\n\treturn\n}\nready()\n", "ready()\n", "an answer that something is wrong"},
	// Data and variables.
	{"data emptied", "data/queue.json", `[{"id":"a"},{"id":"b"}]`, "[]\n", "all data was removed"},
	{"an entry removed", "data/queue.json", `[{"id":"a"},{"id":"b"}]`, `[{"id":"a"}]`, "entries or settings were removed"},
	{"an entry corrected", "data/queue.json", `[{"id":"a","at":null},{"id":"b"}]`, `[{"id":"a","at":"09:00"},{"id":"b"}]`, ""},
	{"a setting removed", "config.json", `{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, "entries or settings were removed"},
	{"a setting renamed", "config.json", `{"prot":3000}`, `{"port":3000}`, ""},
	{"a broken file completed", "config.json", `{"a":1,"b":`, `{"a":1,"b":2}`, ""},
	{"a file deleted", "lib/a.js", "run();\n", "", "the file was deleted"},
	{"a stale lock deleted", ".cache/bundle.lock", "999\n", "", ""},
	{"a variable added", ".env", "A=1\n", "A=1\nISSUER=local-dev\n", ""},
	{"a value replaced", ".env", "SIGNING_KEY=real-one\n", "SIGNING_KEY=other\n", "the value of SIGNING_KEY was replaced"},
	{"a secret made up", ".env", "A=1\n", "A=1\nSIGNING_KEY=changeme\n", "SIGNING_KEY was given a value that is made up"},
	{"a variable removed", "config/.env.local", "A=1\nB=2\n", "A=1\n", "B was removed"},
	{"a shell that goes on", "start.sh", "set -e\nmigrate\nserve\n", "set -e\nmigrate || true\nserve\n", "a command may fail unseen"},
}

func TestACatalogueOfChanges(t *testing.T) {
	for _, c := range catalogue {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := agent.FileDiff{Path: c.path, Before: c.before, After: c.after, Added: c.before == "", Deleted: c.after == ""}
			var wants []string
			if c.want != "" {
				wants = []string{c.want}
			}
			got := agent.Suspicious([]agent.FileDiff{f})
			judge(t, got, wants)
			if strings.Contains(strings.Join(got, ""), "real-one") {
				t.Errorf("a reason holds the value of a variable: %q", got)
			}
		})
	}
}

// TestWhatIsMovedIsNotGone: between files.
func TestWhatIsMovedIsNotGone(t *testing.T) {
	const check = "export function check(key) {\n  if (!key) throw new Error('no key');\n  return key.trim();\n}\n"
	if got := agent.Suspicious([]agent.FileDiff{
		{Path: "a.js", Before: "import { b } from './b.js';\n" + check + "b();\n", After: "import { b } from './b.js';\nb();\n"},
		{Path: "c.js", Added: true, After: check},
	}); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestUncommittedWorkIsNotThrownAway: set back to what was committed, which is
// fine for a half line, and not for work.
func TestUncommittedWorkIsNotThrownAway(t *testing.T) {
	for _, c := range []struct {
		before, after string
		fine          bool
	}{
		{"if (a) {\n  b(\n}\n", "if (a) {\n  b();\n}\n", true},
		{"exports.banner = 'mine';\n", "exports.banner = 'orders';\n", false},
		{"a();\nb();\nif (x >= 1\n", "a();\n", false},
		{"{\n  \"title\": \"My Notes\",\n  \"theme\": \"pl", "{\n  \"title\": \"Notes\",\n  \"theme\": \"plain\"\n}\n", false},
		{"{ \"everyMs\": 0, \"on\": false }\n", "{ \"everyMs\": 200, \"on\": true }\n", true},
		{"{\"name\": \"app\",, \"private\": true}\n", "{\"name\": \"app\", \"private\": true}\n", true},
		{"const a = reqiure('./a');\n", "const a = require('./a');\n", true},
		{"const a = require('./mine');\n", "const a = require('./a');\n", false},
		{"a();\nconst total = ;\n", "a();\n", true},
		{"a();\nimport\n", "a();\n", true},
		{"a();\nb(c)\n", "a();\n", false},
		{"a();\n<<<<<<< HEAD\n=======\n>>>>>>> x\n", "a();\n", true},
	} {
		got := agent.Suspicious([]agent.FileDiff{{Path: "lib/a.js", Before: c.before, After: c.after, Dirty: true, AtHead: true}})
		if (len(got) == 0) != c.fine {
			t.Errorf("%q to %q: %q", c.before, c.after, got)
		}
	}
	restored := agent.FileDiff{Path: "lib/a.js", After: "app.get('/health', h);\n", Added: true, Dirty: true, AtHead: true}
	if got := agent.Suspicious([]agent.FileDiff{restored}); len(got) > 0 {
		t.Errorf("a deleted file that is back: %q", got)
	}
}

// TestAnyChangeIsJudged: whatever is in the files, also parts of them.
func TestAnyChangeIsJudged(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`((if|try|catch|test|it\(|\{|\}|"[a-z]+": |[A-Z]+=|process\.exit|[#/]+).{0,9}\n){0,12}`))
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom([]string{"a.js", "x.test.js", "a.py", ".env", "package.json", "tend.yaml", "Dockerfile", "node_modules/a/b.js"})
		agent.Suspicious([]agent.FileDiff{
			{Path: path.Draw(t, "path"), Before: text.Draw(t, "before"), After: text.Draw(t, "after"), Dirty: rapid.Bool().Draw(t, "dirty"), AtHead: rapid.Bool().Draw(t, "at head")},
			{Path: path.Draw(t, "another"), After: text.Draw(t, "new"), Added: true},
			{Path: path.Draw(t, "a third"), Before: text.Draw(t, "gone"), Deleted: true},
		})
	})
}
