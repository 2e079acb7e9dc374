package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// failAt notes a problem with the value at a path, or with the nearest one around it
// that the file gives.
func (d *decoder) failAt(path, text string) {
	place := path
	for !d.given(place) && strings.Contains(place, ".") {
		place = place[:strings.LastIndexByte(place, '.')]
	}
	d.path = strings.Split(path, ".")
	d.fail(d.places[place], text)
	d.path = nil
}

// checkLog finds what is wrong with the file of a service's output, and says what is kept.
func (d *decoder) checkLog(c *Config, s *Service, at string) {
	l := &s.Log
	for _, key := range []string{"rotate", "keep", "date"} {
		if l.File == "" && d.given(at+"."+key) {
			d.failAt(at+"."+key, "is for file, which is not given")
		}
	}
	switch {
	case l.File == "":
		return
	case len(l.File) > maxLogFile || strings.HasSuffix(l.File, "/") || strings.ContainsFunc(l.File, func(r rune) bool { return r < ' ' }):
		d.failAt(at+".file", fmt.Sprintf("is %.80q, which is no path of a file", l.File))
	}
	if !d.given(at + ".rotate") {
		l.Rotate = 10 << 20
	}
	if !d.given(at + ".keep") {
		l.Keep = 5
	}
	place := func(s *Service) string { return s.logFile(d.dir) }
	for name, other := range c.Services {
		if name < s.Name && other.Log.File != "" && place(other) == place(s) {
			d.failAt(at+".file", fmt.Sprintf("is that of %s, too; each service has a file of its own", name))
		}
	}
}

// logFile is where the file of a service's output is, on this machine. A sandbox has the service's own directory.
func (s *Service) logFile(dir string) string {
	if s.Sandbox == "" {
		dir = below(dir, s.Cwd)
	}
	return below(dir, s.Log.File)
}

// maxLogFile bounds a path, in bytes.
const maxLogFile = 3 << 10

// defaultModel is that of the shmastra-cloud healer.
const defaultModel = "claude-sonnet-4-6"

// check finds what is wrong with values that are each right for themselves.
func (d *decoder) check(c *Config) {
	fail := d.failAt
	if len(c.Services) == 0 {
		fail("services", "is empty; declare at least one")
	}
	if len(c.Services) > MaxServices {
		fail("services", fmt.Sprintf("has %d entries; the limit is %d", len(c.Services), MaxServices))
	}
	for _, name := range c.Names() {
		s, at := c.Services[name], "services."+name
		s.Name = name
		d.checkSandbox(c, s, at)
		d.checkAdopt(s, at)
		d.checkLog(c, s, at+".log")
		if s.Health != nil {
			for key, other := range map[string]*Probe{"startup": s.Startup, "readiness": s.Readiness, "liveness": s.Liveness} {
				if other != nil {
					fail(at+"."+key, "is given together with health, which stands for all three; give one or the other")
				}
			}
		}
		for key, p := range map[string]*Probe{"health": s.Health, "startup": s.Startup, "readiness": s.Readiness, "liveness": s.Liveness} {
			if p == nil {
				continue
			}
			if n := p.kinds(); n != 1 {
				fail(at+"."+key, fmt.Sprintf("has %d of http, tcp, exec and log; give one", n))
			}
			if p.Log != "" && key == "liveness" {
				fail(at+"."+key+".log", "cannot tell whether it still works: a line that was seen stays seen; log.pattern finds a log that is stuck")
			}
			if p.Retry == 0 && !d.given(at+"."+key+".retry") {
				p.Retry = p.Interval / 2
			}
		}
		if s.Restart.Policy == "" {
			s.Restart.Policy = "always"
			if s.Schedule != nil {
				s.Restart.Policy = "never"
			}
		}
		if s.Restart.MaxDelay < s.Restart.Delay {
			fail(at+".restart.max_delay", fmt.Sprintf("is %v, less than delay, which is %v", s.Restart.MaxDelay, s.Restart.Delay))
		}
		if s.Stop.Signal == 9 && d.given(at+".stop.timeout") {
			fail(at+".stop.timeout", "means nothing with the signal KILL")
		}
		if s.Pressure == nil && c.Preset == "shmastra" {
			s.Pressure = new(Pressure)
			d.structure(nil, reflect.ValueOf(s.Pressure).Elem())
		}
		if p := s.Pressure; p != nil && p.Looks > p.Of {
			fail(at+".pressure.looks", fmt.Sprintf("is %d, more than of, which is %d", p.Looks, p.Of))
		}
		if s.Watch != nil {
			for i, g := range s.Watch.Paths {
				if why := badGlob(g, "the cwd of the service"); why != "" {
					fail(fmt.Sprintf("%s.watch.paths.%d", at, i), why)
				}
			}
			for i, g := range s.Watch.Ignore {
				if why := badGlob(g, "the cwd of the service"); why != "" {
					fail(fmt.Sprintf("%s.watch.ignore.%d", at, i), why)
				}
			}
		}
		for _, dep := range s.DependsOn {
			path := at + ".depends_on." + dep.Service
			other := c.Services[dep.Service]
			switch {
			case other == nil:
				hint := ""
				if near := nearest(dep.Service, c.Names()); near != "" {
					hint = "; did you mean " + near + "?"
				}
				fail(path, "is no service of this file"+hint)
			case dep.Service == name:
				fail(path, "is the service itself")
			case dep.Condition == LogLine && other.Adopt != nil:
				fail(path, "waits for a line of a service that may be adopted, and tend has no output of what it did not start; wait for ready, with a probe by http, tcp or exec")
			case dep.Condition == Completed && other.Restart.Policy == "always":
				fail(path, "never completes: it is restarted after each exit; set its restart to on-failure or never")
			}
		}
	}
	d.checkSockets(c)
	for _, cycle := range c.cycles() {
		fail("services."+cycle[0]+".depends_on", "is part of a cycle: "+strings.Join(cycle, " needs "))
	}
	if h := c.Healer; h != nil {
		switch {
		case h.Service == "" && len(c.Services) > 1:
			fail("healer", "needs the key service: there is more than one")
		case h.Service != "" && c.Services[h.Service] == nil:
			fail("healer.service", fmt.Sprintf("is %q, which is no service of this file", h.Service))
		case len(c.Services) > 0 && c.Services[c.Target()].Sandbox != "":
			d.checkHealed(c)
		}
		for i, p := range h.Show {
			if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
				fail(fmt.Sprintf("healer.show.%d", i), fmt.Sprintf("is %.80q; an absolute path is wanted, without .. and not /", p))
			}
		}
		for i, p := range h.Pass {
			if _, err := PassOf(p); err != nil || i >= maxPass {
				fail(fmt.Sprintf("healer.pass.%d", i), cmp.Or(errText(err), fmt.Sprintf("is one too many; the limit is %d", maxPass)))
			}
		}
		for key, globs := range map[string][]string{"protected": h.Protected, "data": h.Data} {
			for i, g := range globs {
				if why := badGlob(g, "the root of the healer"); why != "" {
					fail(fmt.Sprintf("healer.%s.%d", key, i), why)
				}
			}
		}
		if h.LLM != nil {
			switch {
			case h.LLM.Model != "":
			case h.LLM.Provider == "anthropic":
				h.LLM.Model = defaultModel
			default:
				fail("healer.llm", "needs the key model")
			}
			if h.LLM.BaseURL != "" && !isHTTP(h.LLM.BaseURL) {
				fail("healer.llm.base_url", fmt.Sprintf("is %.80q; http://HOST/… or https://HOST/… is wanted", h.LLM.BaseURL))
			}
		}
		if h.Report != nil && !isHTTP(h.Report.URL) {
			fail("healer.report.url", fmt.Sprintf("is %.80q; http://HOST/… or https://HOST/… is wanted", h.Report.URL))
		}
	}
}

// kinds counts what of http, tcp, exec and log is given.
func (p *Probe) kinds() (n int) {
	for _, given := range []bool{p.HTTP != nil, p.TCP != "", !p.Exec.Empty(), p.Log != ""} {
		if given {
			n++
		}
	}
	return n
}

// isHTTP reports whether a URL can be called, and says no password in errors.
func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// badGlob says what is wrong with a glob, which is relative to a directory.
func badGlob(g, below string) string {
	switch {
	case g == "" || !doublestar.ValidatePattern(g):
		return fmt.Sprintf("is %q, which is no glob; write src/**, *.js or {a,b}/c", g)
	case filepath.IsAbs(g) || slices.Contains(strings.Split(g, "/"), ".."):
		return fmt.Sprintf("is %q; a glob is relative to %s, and has no ..", g, below)
	}
	return ""
}

// cycles returns each cycle of dependencies that the search meets: a, b, …, a. A
// service that needs itself is reported elsewhere.
func (c *Config) cycles() (all [][]string) {
	const onPath, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(name string)
	visit = func(name string) {
		state[name] = onPath
		path = append(path, name)
		for _, dep := range c.Services[name].DependsOn {
			switch {
			case c.Services[dep.Service] == nil || dep.Service == name:
			case state[dep.Service] == onPath:
				from := slices.Index(path, dep.Service)
				all = append(all, append(slices.Clone(path[from:]), dep.Service))
			case state[dep.Service] == 0:
				visit(dep.Service)
			}
		}
		path = path[:len(path)-1]
		state[name] = done
	}
	for _, name := range c.Names() {
		if state[name] == 0 {
			visit(name)
		}
	}
	return all
}
