package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/service/config"
)

// ProcessCompose reads a file of process-compose.
func ProcessCompose(name string, data []byte) (*File, error) {
	tree, err := config.ReadTree(name, data)
	if err != nil {
		return nil, err
	}
	all := tree.Map["processes"]
	if !tree.IsMap || all == nil || !all.IsMap {
		return nil, problem(name, tree, "is no file of process-compose: it has no mapping processes")
	}
	f := &File{From: "process-compose"}
	common := map[string]string{}
	for _, k := range tree.Keys {
		switch k {
		case "processes", "version":
		case "environment":
			if err := variables(name, tree.Map[k], common); err != nil {
				return nil, err
			}
		default:
			f.notes = append(f.notes, k+" has no equivalent")
		}
	}
	names := map[string]string{} // of services, by those of processes
	for _, k := range all.Keys {
		if err := f.full(name, all.Map[k]); err != nil {
			return nil, err
		}
		s := f.add(k)
		names[k] = s.name
	}
	for i, k := range all.Keys {
		n := all.Map[k]
		if !n.IsMap {
			return nil, problem(name, n, "has a process %.60q that is no mapping", k)
		}
		for k, v := range common {
			f.services[i].env[k] = v
		}
		a := &app{Node: n, file: name}
		f.process(f.services[i], a, all, names)
		if a.err != nil {
			return nil, a.err
		}
	}
	return f.check(name)
}

// variables reads a list of NAME=value, or a mapping.
func variables(file string, n *config.Node, to map[string]string) error {
	for _, k := range n.Keys {
		if v := n.Map[k]; v.IsList || v.IsMap {
			return problem(file, v, "has a variable %.60q that is no text", k)
		}
		to[k] = n.Map[k].Text
	}
	for _, one := range n.List {
		k, v, ok := strings.Cut(one.Text, "=")
		if !ok || k == "" || one.IsList || one.IsMap {
			return problem(file, one, "has a variable that is not NAME=value")
		}
		to[k] = v
	}
	return nil
}

func (f *File) process(s *service, a *app, all *config.Node, names map[string]string) {
	if _, n := a.first("entrypoint"); n != nil {
		s.set("command", list(a.words("entrypoint")))
	} else {
		line := a.text("command")
		if strings.TrimSpace(line) == "" {
			a.fail("command", "is needed")
			return
		}
		s.set("command", word(line))
	}
	s.set("cwd", quoted(a.text("working_dir")))
	if _, n := a.first("env_file"); n != nil && !n.IsMap {
		s.set("env_file", list(a.words("env_file")))
	}
	if n := a.Map["environment"]; n != nil && a.err == nil {
		a.err = variables(a.file, n, s.env)
	}
	restart := ""
	if n := a.Map["availability"]; n != nil && n.IsMap {
		restart = availability(s, &app{Node: n, file: a.file})
	} else {
		restart = "never" // the default there
	}
	a.dependencies(s, all, names)
	s.set("restart", restart)
	if line := a.text("ready_log_line"); line != "" {
		s.set("readiness", mapping("log", word(line)))
	} else {
		s.set("readiness", a.probe(s, "readiness_probe"))
	}
	s.set("liveness", a.probe(s, "liveness_probe"))
	s.set("stop", a.shutdown(s))
	for _, k := range []string{"is_daemon", "disabled"} {
		if a.yes(k, false) {
			s.set(map[string]string{"is_daemon": "forks", "disabled": "disabled"}[k], "true")
		}
	}
	known := []string{"command", "entrypoint", "working_dir", "env_file", "environment", "availability", "depends_on",
		"readiness_probe", "liveness_probe", "ready_log_line", "shutdown", "is_daemon", "disabled", "description", "namespace",
		"log_location", "log_configuration", "disable_ansi_colors", "is_foreground"}
	for _, k := range a.Keys {
		if !slices.Contains(known, k) {
			s.note("%.60s has no equivalent", k)
		}
	}
}

func availability(s *service, a *app) string {
	policy := map[string]string{"": "never", "no": "never", "always": "always", "on_failure": "on-failure",
		"exit_on_failure": "never"}[a.text("restart")]
	if policy == "" {
		a.fail("restart", "is %.40q, which is none of no, always, on_failure, exit_on_failure", a.text("restart"))
	}
	for _, k := range []string{"exit_on_end", "exit_on_skipped"} {
		if a.yes(k, false) {
			s.note("availability.%s: services end by themselves, not each other", k)
		}
	}
	if a.text("restart") == "exit_on_failure" {
		s.note("restart: exit_on_failure: its failure ends no other service; tend up in the foreground ends with 1 then")
	}
	most, delay := "", ""
	if n, ok := a.number("max_restarts"); ok && n > 0 {
		most = strconv.Itoa(min(n, 10000))
	} else if policy != "never" {
		most = "0"
	}
	if n, ok := a.number("backoff_seconds"); ok && n > 0 {
		delay = (time.Duration(min(n, 3600)) * time.Second).String()
	}
	longest := ""
	if delay != "" {
		longest = delay
	}
	return mapping("policy", policy, "max", most, "delay", delay, "factor", map[bool]string{true: "1"}[delay != ""], "max_delay", longest)
}

func (a *app) dependencies(s *service, all *config.Node, names map[string]string) {
	n := a.Map["depends_on"]
	if n == nil || !n.IsMap {
		return
	}
	var pairs []string
	for _, other := range n.Keys {
		if names[other] == "" {
			a.fail("depends_on", "names %.60q, which is no process", other)
			return
		}
		condition := ""
		if c := n.Map[other].Map["condition"]; c != nil {
			condition = c.Text
		}
		on := all.Map[other]
		switch condition {
		case "process_healthy":
			pairs = append(pairs, word(names[other]), "ready")
		case "process_log_ready":
			line := ""
			if on.IsMap && on.Map["ready_log_line"] != nil {
				line = on.Map["ready_log_line"].Text
			}
			pairs = append(pairs, word(names[other]), map[bool]string{true: "ready", false: "started"}[line != ""])
		case "process_completed", "process_completed_successfully":
			if condition == "process_completed" {
				s.note("depends_on %s: process_completed is with success here", other)
			}
			pairs = append(pairs, word(names[other]), "completed")
		case "", "process_started":
			pairs = append(pairs, word(names[other]), "started")
		default:
			a.fail("depends_on", "has the condition %.60q, which is not known", condition)
		}
	}
	s.set("depends_on", mapping(pairs...))
}

func (a *app) probe(s *service, key string) string {
	n := a.Map[key]
	if n == nil || !n.IsMap {
		return ""
	}
	p := &app{Node: n, file: a.file}
	defer func() {
		if a.err == nil {
			a.err = p.err
		}
	}()
	kind, value := "", ""
	if h := n.Map["http_get"]; h != nil && h.IsMap {
		get := &app{Node: h, file: a.file}
		host, port, where := get.text("host"), get.text("port"), get.text("path")
		if host == "" || host == "0.0.0.0" {
			host = "127.0.0.1"
		}
		if port == "" {
			port = "80"
		}
		if scheme := get.text("scheme"); scheme != "" && scheme != "http" {
			s.note("%s: %s is not asked", key, scheme)
			return ""
		}
		url := word("http://" + host + ":" + port + "/" + strings.TrimPrefix(where, "/"))
		kind, value = "http", url
		if status := get.text("status_code"); status != "" {
			value = mapping("url", url, "status", "["+word(status)+"]")
		}
		if get.err != nil && p.err == nil {
			p.err = get.err
		}
	} else if e := n.Map["exec"]; e != nil && e.IsMap && e.Map["command"] != nil {
		kind, value = "exec", word(e.Map["command"].Text)
	} else {
		s.note("%s is of a kind that there is not", key)
		return ""
	}
	seconds := func(key, otherwise string) string {
		if n, ok := p.number(key); ok && n > 0 {
			return fmt.Sprintf("%ds", min(n, 3600))
		}
		return otherwise
	}
	failures := "3"
	if n, ok := p.number("failure_threshold"); ok && n > 0 {
		failures = strconv.Itoa(min(n, 1000))
	}
	timeout := seconds("timeout_seconds", "1s")
	if n, ok := p.number("timeout_seconds"); ok && n > 600 {
		timeout = "10m"
	}
	return mapping(kind, value, "interval", seconds("period_seconds", "10s"), "timeout", timeout, "failures", failures)
}

func (a *app) shutdown(s *service) string {
	n := a.Map["shutdown"]
	if n == nil || !n.IsMap {
		return ""
	}
	d := &app{Node: n, file: a.file}
	signal, timeout := "", ""
	if line := d.text("command"); line != "" {
		limit := ""
		if t, ok := d.number("timeout_seconds"); ok && t > 0 {
			limit = fmt.Sprintf("%ds", min(t, 3600))
		}
		s.set("hooks", mapping("pre_stop", mapping("command", word(line), "timeout", limit)))
		s.note("shutdown.command: its signal follows it, if it has not ended then")
	}
	if sig, ok := d.number("signal"); ok {
		signal = strconv.Itoa(sig)
	}
	if t, ok := d.number("timeout_seconds"); ok && t > 0 && signal != "9" {
		timeout = fmt.Sprintf("%ds", min(t, 3600))
	}
	if a.err == nil {
		a.err = d.err
	}
	return mapping("signal", signal, "timeout", timeout)
}
