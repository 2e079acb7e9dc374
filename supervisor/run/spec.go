package run

import (
	"maps"
	"strconv"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/supervisor/config"
)

// Labels of the processes of services.
const (
	LabelService = "tend.service"
	LabelRun     = "tend.run"
)

// Linux's numbers of resource limits.
const (
	rlimitCore  = 4
	rlimitFiles = 7
)

// idOf is the process ID of a run.
func idOf(token string, n int64) process.ID {
	return process.ID("svc-" + token + "-" + strconv.FormatInt(n, 10))
}

// specOf is the process of a run.
func specOf(r *config.Service, token string, n int64) process.Spec {
	spec := place(r)
	spec.ID, spec.Name = idOf(token, n), r.Name
	spec.Argv, spec.Shell = r.Command.Argv, r.Command.Line
	spec.Labels = map[string]string{LabelService: r.Name, LabelRun: strconv.FormatInt(n, 10)}
	spec.Retention.Limit = int64(r.Log.Limit)
	l := &r.Limits
	spec.Limits = process.Limits{Nice: l.Nice, OOMScoreAdj: l.OOMScore, MemoryMax: int64(l.Memory), PidsMax: int64(l.Pids), CPUWeight: int64(l.CPUWeight)}
	if l.Files > 0 {
		spec.Limits.Rlimits = append(spec.Limits.Rlimits, process.Rlimit{Resource: rlimitFiles, Soft: uint64(l.Files), Hard: uint64(l.Files)})
	}
	if l.Core > 0 {
		spec.Limits.Rlimits = append(spec.Limits.Rlimits, process.Rlimit{Resource: rlimitCore, Soft: uint64(l.Core), Hard: uint64(l.Core)})
	}
	return spec
}

// place is where and as whom a service and its probes run.
func place(r *config.Service) process.Spec {
	spec := process.Spec{Env: maps.Clone(r.Env), Dir: r.Cwd, User: r.User}
	if r.Inherit == "none" {
		spec.Inherit = process.InheritNone
	}
	return spec
}

// WithEnv returns the declaration with the environment of whoever declares it, which is
// kept with a service that inherits.
func WithEnv(c *config.Config, environ map[string]string) *config.Config {
	out := *c
	out.Services = map[string]*config.Service{}
	for name, s := range c.Services {
		one := *s
		if s.Inherit == "all" {
			one.Env = maps.Clone(environ)
			if one.Env == nil {
				one.Env = map[string]string{}
			}
			maps.Copy(one.Env, s.Env)
		}
		out.Services[name] = &one
	}
	return &out
}
