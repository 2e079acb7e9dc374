package config

import (
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestWhatMayBeAdoptedIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                        "services.web.adopt needs one of pid_file and port",
		"{pid_file: a, port: 3000}": "services.web.adopt needs one of pid_file and port",
		"{pid_file: ''}":            "services.web.adopt.pid_file is empty",
		"{pid_file: run/}":          "services.web.adopt.pid_file is \"run/\", which names no file",
		"{pid_file: " + strings.Repeat("a", 5000) + "}": "has 5000 bytes; the limit is 4095",
		"{port: 0}":                      "services.web.adopt.port is 0; 1 to 65535 are allowed",
		"{port: 65536}":                  "1 to 65535 are allowed",
		"{port: http}":                   "a whole number is wanted",
		"{pidfile: a}":                   "did you mean pid_file?",
		"3000":                           "adopt",
		"{port: 80}, sandbox: dev":       "services.web.sandbox cannot be with",
		"{port: 80}, sockets: {a: 81}":   "services.web.sockets cannot be with",
		"{port: 80}, schedule: '@daily'": "services.web.schedule cannot be with",
		"{port: 80}, health: {log: up}":  "services.web.health.log cannot be with",
		"{port: 80}, startup: {log: up}": "services.web.startup.log cannot be with",
		"{port: 80}}, api: {command: x, depends_on: {web: {log: up}}": "services.api.depends_on.web waits for a line",
	} {
		err := justError(Parse("x", []byte("services: {web: {command: x, adopt: "+text+"}}")))
		if !strings.Contains(err, want) || !strings.HasPrefix(err, "x:1:") {
			t.Errorf("%.80s: %s; want %s", text, err, want)
		}
	}
	src := &Source{Name: "x", Dir: "/project", Text: []byte("services: {a: {command: x, cwd: app, adopt: {pid_file: run/a.pid}}, b: {command: x, adopt: {pid_file: /run/b.pid}}, c: {command: x, adopt: {port: 3000}}}")}
	c := proctest.Value(src.Config())(t)
	if a, b, port := c.Services["a"].Adopt.PIDFile, c.Services["b"].Adopt.PIDFile, c.Services["c"].Adopt.Port; a != "/project/app/run/a.pid" || b != "/run/b.pid" || port != 3000 {
		t.Errorf("they are %s, %s and %d", a, b, port)
	}
}
