package importer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/config"
)

// Exists tells of a path that is relative to the directory of the file, or absolute:
// whether there is a file, and whether it can be executed.
type Exists func(path string) (file, executable bool)

// pm2's defaults, of lib/API/schema.json and lib/God of pm2 7.0.
const (
	pm2KillTimeout = 1600 * time.Millisecond
	pm2MaxRestarts = 16
)

// interpreters are pm2's, of lib/API/interpreter.json, with the names of today.
var interpreters = map[string]string{
	".js": "node", ".cjs": "node", ".mjs": "node", ".sh": "bash", ".py": "python3", ".rb": "ruby", ".pl": "perl", ".php": "php",
	".coffee": "coffee", ".ls": "lsc", ".ts": "bun", ".tsx": "bun",
}

// pm2Silent are keys that change nothing here.
var pm2Silent = []string{"name", "script", "namespace", "vizion", "pmx", "automation", "exec_mode", "merge_logs",
	"combine_logs", "source_map_support", "disable_source_map_support",
	"time", "log_date_format", "log_type", "instance_var", "force", "autorestart", "treekill", "trace", "disable_trace",
	"filter_env", "username", "env", "version", "cwd", "pm_cwd", "windowsHide", "watch_options", "appendEnvToName", "append_env_to_name"}

// pm2Logs are keys of files that tend keeps itself.
var pm2Logs = []string{"out_file", "output", "out", "error_file", "error", "err_file", "err_log", "out_log", "log",
	"log_file", "pid", "pid_file", "disable_logs"}

// PM2 reads an ecosystem file.
func PM2(name string, data []byte, exists Exists) (*File, error) {
	tree, err := config.ReadTree(name, data)
	if err != nil {
		return nil, err
	}
	f := &File{From: "pm2"}
	apps := []*config.Node{tree}
	switch {
	case tree.IsList:
		apps = tree.List
	case tree.IsMap && tree.Map["apps"] != nil && tree.Map["apps"].IsList:
		apps = tree.Map["apps"].List
	case tree.IsMap && tree.Map["apps"] != nil && tree.Map["apps"].IsMap:
		apps = []*config.Node{tree.Map["apps"]}
	case !tree.IsMap || tree.Map["script"] == nil && tree.Map["cmd"] == nil:
		return nil, problem(name, tree, "is no ecosystem file of pm2: it has no list apps")
	}
	if tree.IsMap && tree.Map["apps"] != nil {
		for _, k := range tree.Keys {
			if k != "apps" {
				f.notes = append(f.notes, k+" has no equivalent")
			}
		}
	}
	for _, app := range apps {
		if err := f.pm2App(name, app, exists); err != nil {
			return nil, err
		}
	}
	return f.check(name)
}

// app reads the values of one app.
type app struct {
	*config.Node
	file string
	err  error
}

func (a *app) fail(key, format string, args ...any) {
	if a.err == nil {
		a.err = problem(a.file, a.Map[key], key+" "+format, args...)
	}
}

// first returns the first key of several that is given.
func (a *app) first(keys ...string) (string, *config.Node) {
	for _, k := range keys {
		if n := a.Map[k]; n != nil && !n.Null {
			return k, n
		}
	}
	return "", nil
}

func (a *app) text(keys ...string) string {
	k, n := a.first(keys...)
	if n == nil {
		return ""
	}
	if n.IsMap || n.IsList {
		a.fail(k, "is no text")
	}
	return n.Text
}

func (a *app) words(keys ...string) []string {
	k, n := a.first(keys...)
	switch {
	case n == nil:
		return nil
	case n.IsMap:
		a.fail(k, "is no list")
	case !n.IsList:
		words, err := split(n.Text)
		if err != nil {
			a.fail(k, "%v", err)
		}
		return words
	default:
		var words []string
		for _, one := range n.List {
			if one.IsList || one.IsMap {
				a.fail(k, "has something that is no word")
			}
			words = append(words, one.Text)
		}
		return words
	}
	return nil
}

func (a *app) yes(key string, otherwise bool) bool {
	switch a.text(key) {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	}
	a.fail(key, "is neither true nor false")
	return false
}

// number returns a whole number; false: it is not given.
func (a *app) number(key string) (int, bool) {
	text := a.text(key)
	if text == "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		a.fail(key, "is %.40q, which is no whole number", text)
	}
	return n, err == nil
}

// wait reads milliseconds, or a number with a unit as pm2 has them: 3000, 10s, 5m.
func (a *app) wait(key string) (time.Duration, bool) {
	text := a.text(key)
	if text == "" {
		return 0, false
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e12 {
		return time.Duration(n * float64(time.Millisecond)), true
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		a.fail(key, "is %.40q, which is no time", text)
	}
	return d, err == nil
}

func (f *File) pm2App(file string, n *config.Node, exists Exists) error {
	if !n.IsMap {
		return problem(file, n, "has an app that is no mapping")
	}
	a := &app{Node: n, file: file}
	script := strings.TrimSpace(a.text("script", "cmd"))
	if script == "" {
		return problem(file, n, "has an app without script")
	}
	name := a.text("name")
	if name == "" {
		name = strings.TrimSuffix(path.Base(strings.Fields(script)[0]), path.Ext(script))
	}
	instances, _ := strconv.Atoi(a.text("instances"))
	several := instances > 1 && instances <= 64 && a.text("exec_mode") != "cluster" && a.text("exec_mode") != "cluster_mode"
	copies := 1
	if several && a.Map["exec_mode"] != nil {
		copies = instances
	}
	for i := range copies {
		as := name
		if copies > 1 {
			as = fmt.Sprintf("%s-%d", name, i)
		}
		if err := f.full(file, n); err != nil {
			return err
		}
		s := f.add(as)
		f.fill(s, a, script, exists)
		if copies > 1 {
			s.env["NODE_APP_INSTANCE"] = strconv.Itoa(i)
		} else if text := a.text("instances"); text != "" && text != "1" {
			s.note("instances: %s runs as one: tend has no cluster of node", text)
		}
		if a.err != nil {
			return a.err
		}
	}
	return nil
}

var pm2Env = lazyregexp.New(`^env_.`)

func (f *File) fill(s *service, a *app, script string, exists Exists) {
	cwd := a.text("cwd", "pm_cwd")
	s.set("command", a.command(s, script, cwd, exists))
	s.set("cwd", quoted(cwd))
	if env := a.Map["env"]; env != nil && !env.Null {
		if !env.IsMap {
			a.fail("env", "is no mapping")
		}
		for _, k := range env.Keys {
			v := env.Map[k]
			if v.IsMap || v.IsList {
				a.fail("env", "has a variable %.60q that is no text", k)
			}
			s.env[k] = v.Text
		}
	}
	if uid := a.text("uid", "user"); uid != "" {
		if gid := a.text("gid"); gid != "" {
			uid += ":" + gid
		}
		s.set("user", word(uid))
	}
	s.set("restart", a.restart(s))
	kill := pm2KillTimeout
	if d, ok := a.wait("kill_timeout"); ok {
		kill = min(d, time.Hour)
	}
	s.set("stop", mapping("signal", "INT", "timeout", kill.String()))
	if limit := a.text("max_memory_restart"); limit != "" {
		s.set("pressure", "{restart: true}")
		s.note("max_memory_restart: %s: it is restarted when it comes near to a limit that there is; limits: {memory: SIZE} sets one where tend may make control groups", limit)
	}
	s.set("watch", a.watch(s))
	if a.text("autostart") == "false" {
		s.set("disabled", "true")
	}
	known := slices.Concat(pm2Silent, pm2Logs, []string{"cmd", "args", "interpreter", "exec_interpreter", "interpreter_args",
		"interpreterArgs", "node_args", "instances", "uid", "gid", "user",
		"stop_exit_codes", "max_restarts", "min_uptime", "restart_delay", "exp_backoff_restart_delay", "kill_timeout",
		"max_memory_restart", "watch", "ignore_watch", "watch_delay", "autostart"})
	logs := false
	for _, k := range a.Keys {
		switch {
		case slices.Contains(pm2Logs, k):
			logs = true
		case slices.Contains(known, k):
		case pm2Env.MatchString(k):
			s.note("%s: there is one environment: put its variables into env, or into a file that env_file names", k)
		case k == "cron_restart":
			s.note("cron_restart: %s: a restart at a time is a service with a schedule that runs tend restart %s", a.text(k), s.name)
		case k == "wait_ready" || k == "listen_timeout" || k == "shutdown_with_message":
			s.note("%s: there are no messages between tend and a program; health says when it is ready, and a signal ends it", k)
		default:
			s.note("%.60s has no equivalent", k)
		}
	}
	if logs {
		s.note("its output is kept by tend: tend logs %s", s.name)
	}
	if a.Map["treekill"] != nil && !a.yes("treekill", true) {
		s.note("treekill: false: its whole tree ends with it")
	}
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return word(text)
}

// command is what runs.
func (a *app) command(s *service, script, cwd string, exists Exists) string {
	args := a.words("args")
	if strings.ContainsAny(script, " \t") { // pm2 has bash run it
		if file, _ := exists(path.Join(cwd, script)); !file {
			for _, arg := range args {
				script += " " + shell(arg)
			}
			return word(script)
		}
	}
	at := script
	if !path.IsAbs(at) {
		at = path.Join(cwd, script)
	}
	file, executable := exists(at)
	interpreter := a.text("interpreter", "exec_interpreter")
	if interpreter == "" {
		switch known := interpreters[path.Ext(script)]; {
		case known != "":
			interpreter = known
		case file && !executable:
			interpreter = "node"
		default:
			interpreter = "none"
		}
	}
	if file && !path.IsAbs(script) && !strings.Contains(script, "/") {
		script = "./" + script // else it would be looked for in PATH
	}
	argv := []string{script}
	if interpreter != "none" {
		argv = slices.Concat([]string{interpreter}, a.words("interpreter_args", "interpreterArgs", "node_args"), argv)
		if !file {
			s.note("there is no %s now", at)
		}
	}
	return list(append(argv, args...))
}

// restart is when it is started again.
func (a *app) restart(s *service) string {
	if !a.yes("autorestart", true) {
		return "never"
	}
	policy, success, permanent := "", "", ""
	if codes := a.words("stop_exit_codes"); len(codes) > 0 {
		if slices.Contains(codes, "0") {
			policy, success = "on-failure", list(codes)
		} else {
			permanent = list(codes)
		}
	}
	most, ok := a.number("max_restarts")
	if !ok {
		most = pm2MaxRestarts
	}
	within := time.Minute
	if up, ok := a.wait("min_uptime"); ok {
		within = max(within, min(up*time.Duration(min(max(most, 0), 1000)+1), 24*time.Hour))
	}
	delay, factor, longest := "", "", ""
	if d, ok := a.wait("exp_backoff_restart_delay"); ok && d > 0 {
		delay, factor, longest = min(d, time.Hour).String(), "1.5", max(min(d, time.Hour), 15*time.Second).String()
	}
	if d, ok := a.wait("restart_delay"); ok && d > 0 {
		d = min(d, time.Hour)
		delay, factor, longest = d.String(), "1", d.String()
	}
	return mapping("policy", policy, "success_codes", success, "permanent_codes", permanent,
		"max", strconv.Itoa(min(max(most, 0), 10000)), "within", within.String(), "delay", delay, "factor", factor, "max_delay", longest)
}

// watch is what restarts it.
func (a *app) watch(s *service) string {
	_, n := a.first("watch")
	if n == nil || n.Text == "false" {
		return ""
	}
	words := []string{"**"}
	if n.Text != "true" {
		words = a.words("watch")
	}
	paths, ignore := a.globs(s, words), a.globs(s, a.words("ignore_watch"))
	if len(paths) == 0 {
		return ""
	}
	out := ""
	if len(ignore) > 0 {
		out = list(ignore)
	}
	delay := ""
	if d, ok := a.wait("watch_delay"); ok && d >= 10*time.Millisecond {
		delay = min(d, time.Hour).String()
	}
	return mapping("paths", list(paths), "ignore", out, "delay", delay)
}

// globs are the words that can be globs of ours.
func (a *app) globs(s *service, words []string) (out []string) {
	for _, w := range words {
		g := path.Clean(w)
		switch {
		case g == "node_modules" || g == ".git":
		case g == ".":
			out = append(out, "**")
		case path.IsAbs(g) || strings.HasPrefix(g, "..") || strings.ContainsAny(g, `\^$|()+`) || !doublestar.ValidatePattern(g):
			s.note("to watch or not to watch %.80q: globs below cwd alone are followed", w)
		default:
			out = append(out, g)
		}
	}
	return out
}

// split cuts a text into words, as a shell does with quotes.
func split(text string) (words []string, err error) {
	var b strings.Builder
	quote, inside := rune(0), false
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inside = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if inside {
				words = append(words, b.String())
				b.Reset()
			}
			inside = false
		default:
			inside = true
			b.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("has a quote that is not closed")
	}
	if inside {
		words = append(words, b.String())
	}
	return words, nil
}

// shell quotes a word for a line of a shell.
func shell(text string) string {
	if plain.MatchString(text) || regexp.MustCompile(`^--?[A-Za-z0-9_./=@:+-]*$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
