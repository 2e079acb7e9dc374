package config

import (
	"fmt"
	"strings"
)

// maxPIDPath bounds the path of a pid file, in bytes: the kernel's limit.
const maxPIDPath = 4095

// CannotAdopt says why a service cannot be a process that tend did not start, and which key
// is in the way; "": it can.
func (s *Service) CannotAdopt() (key, why string) {
	switch {
	case s.Sandbox != "":
		return "sandbox", "cannot be with a process that tend did not start: nothing runs in a sandbox that tend did not start there"
	case len(s.Sockets) > 0:
		return "sockets", "cannot be with a process that tend did not start: it was not given them"
	case s.Schedule != nil:
		return "schedule", "cannot be with a process that tend did not start: it runs already"
	}
	for _, one := range []struct {
		key string
		*Probe
	}{{"health", s.Health}, {"startup", s.Startup}, {"readiness", s.Readiness}} {
		if one.Probe != nil && one.Log != "" {
			return one.key + ".log",
				"cannot be with a process that tend did not start: its log goes where it went before, and tend does not see it; probe by http, tcp or exec"
		}
	}
	return "", ""
}

// checkAdopt finds what is wrong with what a service may adopt.
func (d *decoder) checkAdopt(s *Service, at string) {
	a := s.Adopt
	if a == nil {
		return
	}
	file, port := d.given(at+".adopt.pid_file"), d.given(at+".adopt.port")
	switch {
	case file == port:
		d.failAt(at+".adopt", "needs one of pid_file and port: who is to be adopted")
	case file && a.PIDFile == "":
		d.failAt(at+".adopt.pid_file", "is empty; give the path of the file in which the program notes its pid")
	case file && strings.HasSuffix(a.PIDFile, "/"):
		d.failAt(at+".adopt.pid_file", fmt.Sprintf("is %.80q, which names no file", a.PIDFile))
	case len(a.PIDFile) > maxPIDPath:
		d.failAt(at+".adopt.pid_file", fmt.Sprintf("has %d bytes; the limit is %d", len(a.PIDFile), maxPIDPath))
	}
	if key, why := s.CannotAdopt(); key != "" {
		d.failAt(at+"."+key, why+"; or leave out adopt")
	}
}
