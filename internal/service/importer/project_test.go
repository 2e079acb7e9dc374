package importer

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

func tree(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return fsys
}

func TestAProjectSaysWhatRuns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"next with pnpm", map[string]string{"package.json": `{"scripts": {"dev": "next dev", "build": "next build"}, "dependencies": {"next": "15"}}`, "pnpm-lock.yaml": ""},
			[]string{"from package.json and pnpm-lock.yaml", "web:", "command: [pnpm, run, dev]", "health: {tcp: 3000}"}},
		{"mastra", map[string]string{"package.json": `{"scripts": {"dev": "mastra dev"}, "devDependencies": {"mastra": "1"}}`, "package-lock.json": "{}", ".env": "KEY=1\n"},
			[]string{"command: [npm, run, dev]", "log: {pattern: Bundling, quiet: 20s}", "env_file: .env", `health: {http: ":4111/health"}`}},
		{"vite with a port of its own, by yarn", map[string]string{"package.json": `{"scripts": {"start": "vite --port 8123"}, "devDependencies": {"vite": "6"}}`, "yarn.lock": ""},
			[]string{"[yarn, run, start]", "health: {tcp: 8123}", "# watch: src"}},
		{"vite with a port in its file", map[string]string{"package.json": `{"scripts": {"dev": "vite"}, "devDependencies": {"vite": "6"}}`, "vite.config.ts": "export default {\n server: {\n  host: true, port: 4000 },\n preview: {port: 5} }\n"},
			[]string{"health: {tcp: 4000}"}},
		{"what npm start runs without a script", map[string]string{"package.json": `{"main": "server.js"}`, "server.js": "app.listen(8080)"}, []string{"command: [node, server.js]", "health: {tcp: 8080}"}},
		{"a plain server with its port in .env", map[string]string{"package.json": `{"scripts": {"start": "node server.js"}, "packageManager": "pnpm@9.1.0"}`, ".env": "PORT=4000\n"},
			[]string{"[pnpm, run, start]", "env_file: .env", "health: {tcp: 4000}"}},
		{"a Procfile wins", map[string]string{"Procfile": "web: bundle exec puma\nworker: rake jobs\n", "package.json": `{"scripts": {"dev": "x"}}`},
			[]string{"from Procfile", "web:", `command: "bundle exec puma"`, "worker:"}},
		{"django with uv", map[string]string{"pyproject.toml": "[project]\ndependencies = ['django']\n", "uv.lock": "", "manage.py": "#"},
			[]string{"from pyproject.toml and uv.lock", "command: [uv, run, python, manage.py, runserver, 8000]", "health: {tcp: 8000}", "PYTHONUNBUFFERED: 1"}},
		{"fastapi in a virtual environment", map[string]string{"requirements.txt": "fastapi\nuvicorn\n", "app/main.py": "app = FastAPI()\n", ".venv/bin/python": ""},
			[]string{`command: [.venv/bin/python, "-m", uvicorn, "app.main:app", "--port", 8000]`}},
		{"flask", map[string]string{"requirements.txt": "Flask==3\n", "app.py": "app = Flask(__name__)\n"}, []string{`[python3, "-m", flask, "--app", app, run, "--port", 5000]`}},
		{"a module of go with two programs", map[string]string{"go.mod": "module x\n", "cmd/api/main.go": "package main\nfunc main() { http.ListenAndServe(\":8081\", nil) }\n", "cmd/worker/main.go": "package main\n", "cmd/lib/x.go": "package lib\n"},
			[]string{"api:", "[go, run, ./cmd/api]", "health: {tcp: 8081}", "worker:", "[go, run, ./cmd/worker]"}},
		{"a front end in node beside go", map[string]string{"package.json": `{"scripts": {"dev": "astro dev"}, "dependencies": {"astro": "5"}}`, "go.mod": "module x", "main.go": "package main\n"},
			[]string{"web:", "tcp: 4321", "app:", "[go, run, .]"}},
		{"rails", map[string]string{"Gemfile": "gem 'rails'", "bin/rails": "#!"}, []string{"[bin/rails, server]", "tcp: 3000"}},
		{"rust", map[string]string{"Cargo.toml": "[package]", "src/main.rs": `TcpListener::bind("127.0.0.1:7878")`}, []string{"[cargo, run]", "tcp: 7878"}},
		{"a Dockerfile alone", map[string]string{"Dockerfile": "FROM x\nEXPOSE 9000\nCMD [\"./serve\", \"--fast\"]\n", "compose.yaml": ""}, []string{"# What compose.yaml runs is not in here", `command: [./serve, "--fast"]`, "tcp: 9000"}},
		{"beside a file of pm2", map[string]string{"package.json": `{"scripts": {"start": "x"}}`, "ecosystem.config.cjs": ""}, []string{"# There is ecosystem.config.cjs, too", "# health: {tcp: PORT}"}},
		{"hostile names", map[string]string{"package.json": `{"scripts": {"dev": "PORT=99999999999 x\n  user: root"}, "packageManager": "rm -rf /@1"}`}, []string{"[npm, run, dev]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Project(tree(tt.files))
			if err != nil {
				t.Fatal(err)
			}
			text := f.YAML()
			proctest.Value(config.Parse("tend.yaml", text))(t)
			rest := string(text)
			for _, want := range tt.want {
				at := strings.Index(rest, want)
				if at < 0 {
					t.Fatalf("no %s in the rest of:\n%s", want, text)
				}
				rest = rest[at:]
			}
		})
	}
	for name, files := range map[string]map[string]string{
		"an empty directory": {}, "a library": {"package.json": `{"scripts": {"build": "tsc"}}`}, "broken JSON": {"package.json": "{"}, "a module without a program": {"go.mod": "module x", "x.go": "package x"},
		"a Dockerfile without a command": {"Dockerfile": "FROM x\n"},
	} {
		if _, err := Project(tree(files)); !errors.Is(err, ErrNoProject) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
