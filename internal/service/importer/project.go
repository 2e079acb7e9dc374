package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/service/config"
)

// ErrNoProject: nothing in a directory says what runs.
var ErrNoProject = errors.New("nothing here says what runs: no Procfile, no script dev or start in package.json, no manage.py, pyproject.toml, go.mod, Cargo.toml, Gemfile, and no CMD in a Dockerfile")

// project is a directory that is looked at.
type project struct {
	fs.FS
	f *File
	// exposed is a port that a Dockerfile or .env names; "": none.
	exposed string
}

// Project looks at the directory of a project, and says what runs there. Nothing in it
// is run. It is ErrNoProject if nothing says so.
func Project(fsys fs.FS) (*File, error) {
	p := &project{FS: fsys}
	if data := p.read("Procfile"); data != "" {
		f, err := Procfile("Procfile", []byte(data), p.has(".env"))
		if err != nil {
			return nil, err
		}
		p.f = f
		return p.finish("Procfile")
	}
	p.f = &File{}
	p.exposed = cmp.Or(portOf(`(?m)^\s*(?:export\s+)?PORT\s*=\s*["']?(\d+)`, p.read(".env")),
		portOf(`(?mi)^\s*EXPOSE\s+(\d+)`, p.read("Dockerfile")))
	var from []string
	for _, look := range []func() string{p.node, p.python, p.golang, p.rust, p.ruby} {
		if file := look(); file != "" {
			from = append(from, file)
		}
	}
	if len(from) == 0 {
		if file := p.docker(); file != "" {
			from = append(from, file)
		}
	}
	if len(from) == 0 {
		if len(p.f.notes) > 0 {
			return nil, fmt.Errorf("%w. %s", ErrNoProject, strings.TrimSuffix(strings.Join(p.f.notes, " "), "."))
		}
		return nil, ErrNoProject
	}
	return p.finish(strings.Join(from, " and "))
}

func (p *project) finish(from string) (*File, error) {
	p.f.header = []string{
		"Made by tend init from " + from + "; check it with tend config check, start it with tend up.",
		"All keys: docs/services.md of tend, and tend config schema.",
	}
	for _, other := range []string{"ecosystem.config.js", "ecosystem.config.cjs", "ecosystem.config.mjs", "process-compose.yaml"} {
		if p.has(other) {
			p.f.notes = append(p.f.notes, "There is "+other+", too: tend import "+other+" prints it as such a file.")
		}
	}
	for _, other := range []string{"docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml"} {
		if p.has(other) {
			p.f.notes = append(p.f.notes,
				"What "+other+
					" runs is not in here: add it as a service, such as db: {command: docker compose up db, health: {tcp: 5432, anyone: true}}.")
		}
	}
	return p.f.check(config.FileName)
}

// read returns the text of a file; "": there is none that can be read.
func (p *project) read(name string) string {
	st, err := fs.Stat(p, name)
	if err != nil || !st.Mode().IsRegular() {
		return ""
	}
	file, err := p.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, config.MaxBytes))
	if err != nil {
		return ""
	}
	return string(data)
}

func (p *project) has(name string) bool {
	st, err := fs.Stat(p, name)
	return err == nil && !st.IsDir()
}

// portOf finds a port by an expression with one group; "": there is none.
func portOf(expr, text string) string {
	m := regexp.MustCompile(expr).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > 65535 {
		return ""
	}
	return m[1]
}

// server fills in what a service has that others connect to.
func (p *project) server(s *service, port, route string) {
	if p.has(".env") {
		s.set("env_file", ".env")
	}
	switch {
	case port == "":
		s.note("health: {tcp: PORT} tells when it is ready, and finds it when it hangs")
	case route != "":
		s.set("health", mapping("http", word(":"+port+route)))
	default:
		s.set("health", mapping("tcp", port))
	}
}

// frameworks of node by the package that they are known by: the port, a route that
// answers when all is well, and a line after which silence means that it is stuck.
var frameworks = []struct{ name, port, route, stuck string }{
	{"mastra", "4111", "/health", "Bundling"}, {"@mastra/core", "4111", "/health", "Bundling"},
	{"next", "3000", "", ""}, {"nuxt", "3000", "", ""}, {"astro", "4321", "", ""}, {"@angular/cli", "4200", "", ""},
	{"gatsby", "8000", "", ""},
	{"react-scripts", "3000", "", ""}, {"@nestjs/core", "3000", "", ""}, {"@sveltejs/kit", "5173", "", ""},
	{"@remix-run/dev", "5173", "", ""}, {"vite", "5173", "", ""},
}

const portFlag = `(?:--port[= ]|-p |PORT=)(\d+)`

func (p *project) node() string {
	text := p.read("package.json")
	if text == "" {
		return ""
	}
	var pkg struct {
		Scripts                       map[string]string
		Dependencies, DevDependencies map[string]any
		PackageManager                string
		Workspaces                    any
	}
	if err := json.Unmarshal([]byte(text), &pkg); err != nil {
		p.f.notes = append(p.f.notes, "package.json is no JSON that can be read: "+err.Error())
		return ""
	}
	script := ""
	for _, name := range []string{"dev", "start", "serve", "develop"} {
		if pkg.Scripts[name] != "" {
			script = name
			break
		}
	}
	if script == "" && p.has("server.js") { // what npm start runs then
		s := p.f.add("web")
		s.set("command", list([]string{"node", "server.js"}))
		p.server(s, cmp.Or(portOf(`\.listen\(\s*(\d+)`, p.read("server.js")), p.exposed), "")
		return "package.json and server.js"
	}
	if script == "" {
		if pkg.Workspaces != nil || p.has("pnpm-workspace.yaml") {
			p.f.notes = append(p.f.notes, "package.json has workspaces: run tend init in the directory of one of them.")
		}
		return ""
	}
	manager, from := "npm", "package.json"
	manager = cmp.Or(strings.Split(pkg.PackageManager, "@")[0], manager)
	for _, lock := range []struct{ file, manager string }{{"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lock", "bun"},
		{"bun.lockb", "bun"}, {"package-lock.json", "npm"}} {
		if p.has(lock.file) {
			manager, from = lock.manager, "package.json and "+lock.file
			break
		}
	}
	if !slices.Contains([]string{"npm", "pnpm", "yarn", "bun"}, manager) {
		manager = "npm"
	}
	s := p.f.add("web")
	s.set("command", list([]string{manager, "run", script}))
	port, route := cmp.Or(portOf(portFlag, pkg.Scripts[script]), p.configured(), p.exposed), ""
	for _, f := range frameworks {
		_, one := pkg.Dependencies[f.name]
		_, two := pkg.DevDependencies[f.name]
		if !one && !two {
			continue
		}
		port, route = cmp.Or(port, f.port), f.route
		if f.stuck != "" {
			s.set("log", mapping("pattern", word(f.stuck), "quiet", "20s"))
		}
		s.note("the port is that of %s, where nothing else says it", f.name)
		break
	}
	p.server(s, port, route)
	if script != "dev" {
		s.note("watch: src restarts it when its files change")
	}
	return from
}

// configured is the port that a file of a framework names; "": none does.
func (p *project) configured() string {
	for _, tool := range []string{"vite", "astro", "nuxt", "svelte", "webpack"} {
		for _, ending := range []string{"ts", "js", "mjs", "mts", "cjs"} {
			if port := portOf(`\b(?:server|devServer)\s*:\s*\{[^{}]*?\bport\s*:\s*(\d+)`, p.read(tool+".config."+ending)); port != "" {
				return port
			}
		}
	}
	return ""
}

func (p *project) python() string {
	from := ""
	for _, file := range []string{"pyproject.toml", "requirements.txt", "manage.py", "Pipfile"} {
		if p.has(file) {
			from = file
			break
		}
	}
	if from == "" {
		return ""
	}
	var run []string
	switch {
	case p.has("uv.lock"):
		run, from = []string{"uv", "run"}, from+" and uv.lock"
	case p.has("poetry.lock"):
		run, from = []string{"poetry", "run"}, from+" and poetry.lock"
	case p.has("Pipfile"):
		run = []string{"pipenv", "run"}
	}
	python := "python3"
	if len(run) > 0 {
		python = "python"
	} else if p.has(".venv/bin/python") {
		python = ".venv/bin/python"
	}
	needs := strings.ToLower(p.read("pyproject.toml") + p.read("requirements.txt") + p.read("Pipfile"))
	command, port := []string(nil), p.exposed
	switch main, app := p.python3("FastAPI("), p.python3("Flask("); {
	case p.has("manage.py"):
		port = cmp.Or(port, "8000")
		command = []string{python, "manage.py", "runserver", port}
	case main != "" && strings.Contains(needs, "fastapi"):
		port = cmp.Or(port, "8000")
		command = []string{python, "-m", "uvicorn", main + ":app", "--port", port}
	case app != "" && strings.Contains(needs, "flask"):
		port = cmp.Or(port, "5000")
		command = []string{python, "-m", "flask", "--app", app, "run", "--port", port}
	default:
		for _, file := range []string{"main.py", "app.py", "server.py"} {
			if p.has(file) {
				command = []string{python, file}
				break
			}
		}
	}
	if command == nil {
		p.f.notes = append(p.f.notes, "Nothing says what of "+from+" runs.")
		return ""
	}
	s := p.f.add(p.free("web", "api"))
	s.set("command", list(slices.Concat(run, command)))
	p.server(s, port, "")
	s.env["PYTHONUNBUFFERED"] = "1"
	return from
}

// python3 is the module that holds a text; "": none of those where it usually is.
func (p *project) python3(text string) string {
	for _, file := range []string{"main.py", "app.py", "app/main.py", "src/main.py", "server.py", "wsgi.py"} {
		if strings.Contains(p.read(file), text) {
			return strings.ReplaceAll(strings.TrimSuffix(file, ".py"), "/", ".")
		}
	}
	return ""
}

// free is the first name that no service has.
func (p *project) free(names ...string) string {
	for _, name := range names {
		if !slices.ContainsFunc(p.f.services, func(s *service) bool { return s.name == name }) {
			return name
		}
	}
	return names[len(names)-1]
}

// listens is how a program in Go or Rust says its port.
const listens = `(?:Listen\w*\(\s*"[^"]*:|bind\(\s*\(?\s*"[^"]*[:" ,]+|Addr:\s*"[^"]*:)(\d+)`

// maxMains bounds the programs of a module that become services.
const maxMains = 20

func (p *project) golang() string {
	if !p.has("go.mod") {
		return ""
	}
	dirs := []string{"."}
	if below, err := fs.ReadDir(p, "cmd"); err == nil {
		for _, e := range below {
			dirs = append(dirs, path.Join("cmd", e.Name()))
		}
	}
	n := 0
	for _, dir := range dirs {
		text := p.read(path.Join(dir, "main.go"))
		if n == maxMains || !regexp.MustCompile(`(?m)^package main\b`).MatchString(text) {
			continue
		}
		n++
		name := path.Base(dir)
		if dir == "." {
			name = p.free("web", "app")
		} else {
			dir = "./" + dir
		}
		s := p.f.add(name)
		s.set("command", list([]string{"go", "run", dir}))
		p.server(s, cmp.Or(portOf(listens, text), map[bool]string{true: p.exposed}[n == 1]), "")
		s.note(`watch: {paths: ["**/*.go", go.mod]} restarts it when its files change`)
	}
	if n == 0 {
		return ""
	}
	return "go.mod"
}

func (p *project) rust() string {
	if !p.has("Cargo.toml") || !p.has("src/main.rs") {
		return ""
	}
	s := p.f.add(p.free("web", "app"))
	s.set("command", list([]string{"cargo", "run"}))
	p.server(s, cmp.Or(portOf(listens, p.read("src/main.rs")), p.exposed), "")
	return "Cargo.toml"
}

func (p *project) ruby() string {
	if !p.has("Gemfile") {
		return ""
	}
	var command []string
	switch {
	case p.has("bin/rails"):
		command = []string{"bin/rails", "server"}
	case p.has("config.ru"):
		command = []string{"bundle", "exec", "rackup"}
	default:
		return ""
	}
	s := p.f.add(p.free("web", "app"))
	s.set("command", list(command))
	p.server(s, cmp.Or(p.exposed, map[bool]string{true: "3000", false: "9292"}[p.has("bin/rails")]), "")
	return "Gemfile"
}

func (p *project) docker() string {
	m := regexp.MustCompile(`(?mi)^\s*CMD\s+(.+?)\s*$`).FindAllStringSubmatch(p.read("Dockerfile"), -1)
	if m == nil {
		return ""
	}
	last := m[len(m)-1][1]
	s := p.f.add("app")
	var argv []string
	if json.Unmarshal([]byte(last), &argv) == nil && len(argv) > 0 && argv[0] != "" {
		s.set("command", list(argv))
	} else {
		s.set("command", word(last))
	}
	p.server(s, p.exposed, "")
	s.note("the command is CMD of the Dockerfile, and its paths are those of the image")
	return "Dockerfile"
}
