package config

import (
	"fmt"
	"strings"

	"github.com/tend-run/tend/internal/lib/typo"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0: the file as a whole
	Path         string // services.web.health.interval
	Text         string // completes "PATH …"
	Source       string // the line as it is in the file
}

// Error is "tend.yaml:4:5: services.web.restrat is no key …".
func (p *Problem) Error() string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + " " + text
	}
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, text)
}

// Show is Error with the line below it, and a mark where the problem is.
func (p *Problem) Show() string {
	if p.Source == "" {
		return p.Error()
	}
	lead := make([]rune, 0, p.Column)
	for i, r := range []rune(p.Source) {
		if i >= p.Column-1 {
			break
		}
		if r != '\t' {
			r = ' '
		}
		lead = append(lead, r)
	}
	return fmt.Sprintf("%s\n    %s\n    %s^", p.Error(), p.Source, string(lead))
}

// Problems is the error of a file that is not accepted: at least one Problem, in the
// order of the file.
type Problems []*Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Show is Error with the lines of the file.
func (p Problems) Show() string {
	parts := make([]string, len(p))
	for i, one := range p {
		parts[i] = one.Show()
	}
	return strings.Join(parts, "\n")
}

// foreign is what other supervisors call our keys.
var foreign = map[string]string{
	"cmd": "command", "script": "command", "exec_start": "command", "entrypoint": "command", "run": "command", "args": "command",
	"working_dir": "cwd", "working_directory": "cwd", "workdir": "cwd", "dir": "cwd", "directory": "cwd",
	"environment": "env", "env_files": "env_file", "dotenv": "env_file", "after": "depends_on", "requires": "depends_on",
	"needs":       "depends_on",
	"autorestart": "restart", "availability": "restart", "restart_policy": "restart",
	"max_restarts": "restart.max", "startretries": "restart.max", "restart_delay": "restart.delay", "backoff_seconds": "restart.delay",
	"min_uptime": "restart.within", "startsecs": "restart.within", "stop_exit_codes": "restart.success_codes",
	"exitcodes":   "restart.success_codes",
	"healthcheck": "health", "readiness_probe": "readiness", "liveness_probe": "liveness", "startup_probe": "startup",
	"ready_log_line": "readiness.log",
	"kill_timeout":   "stop.timeout", "stopwaitsecs": "stop.timeout", "stopsignal": "stop.signal", "kill_signal": "stop.signal",
	"shutdown": "stop",
	"cron":     "schedule", "cron_restart": "schedule", "ignore_watch": "watch.ignore", "watch_delay": "watch.delay", "is_daemon": "forks",
	"period_seconds": "interval", "period": "interval", "timeout_seconds": "timeout", "failure_threshold": "failures", "retries": "failures",
	"start_period": "start", "initial_delay": "start", "http_get": "http", "tcp_socket": "tcp", "max_memory_restart": "limits.memory",
	"listen": "sockets", "listen_stream": "sockets", "socket": "sockets", "ports": "sockets", "port": "sockets", "fds": "sockets",
	"processes": "services", "apps": "services", "programs": "services", "autostart": "disabled",
	"policies": "policy", "backoff": "delay", "max_delay_seconds": "max_delay", "window": "within", "period_s": "within",
}

// nearest returns the key that was probably meant, or "".
func nearest(said string, keys []string) string {
	flat := strings.NewReplacer("_", "", "-", "", ".", "", " ", "")
	plain := func(s string) string { return strings.ToLower(flat.Replace(s)) }
	if len(said) > 64 {
		return ""
	}
	best, found := 1+min(2, len(said)/3), ""
	for _, k := range keys {
		if d := typo.Distance(plain(said), plain(k)); d < best {
			best, found = d, k
		}
	}
	if found == "" || best > 0 {
		for other, ours := range foreign {
			if plain(other) != plain(said) {
				continue
			}
			first, _, _ := strings.Cut(ours, ".")
			for _, k := range keys {
				if k == first {
					return ours
				}
			}
		}
	}
	return found
}
