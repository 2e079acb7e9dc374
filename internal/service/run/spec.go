package run

import (
	"maps"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/process"
)

// Labels of the processes of services, beside process.LabelService.
const (
	LabelRun     = "tend.run"
	LabelSockets = "tend.sockets" // of the process that holds a service's sockets: the token of its IDs
)

// Linux's numbers of resource limits.
const (
	rlimitCore  = 4
	rlimitFiles = 7
)

// hookOutput bounds what is kept of each stream of a hook, in bytes.
const hookOutput = 1 << 20

// idOf is the process ID of a run.
func idOf(token string, n int64) process.ID {
	return process.ID("svc-" + token + "-" + strconv.FormatInt(n, 10))
}

// hookID is the process ID of a hook of a run.
func hookID(token string, n int64, h supervisor.Hook) process.ID {
	return idOf(token, n) + "-" + process.ID(strings.ReplaceAll(h.String(), "_", "-"))
}

// hookSpec is the process of a hook of a run.
func hookSpec(r *config.Service, token string, n int64, h supervisor.Hook) process.Spec {
	rule, spec := supervisor.HookOf(r, h), specInPlace(r)
	spec.ID, spec.Name = hookID(token, n, h), r.Name+"."+h.String()
	spec.Argv, spec.Shell = rule.Command.Argv, rule.Command.Line
	spec.Labels = map[string]string{process.LabelService: r.Name, LabelRun: strconv.FormatInt(n, 10), process.LabelHook: h.String()}
	spec.Stdin = process.StdinNull
	// It ends in time though there may be nobody to see it.
	spec.Timeout, spec.TimeoutScope = rule.Timeout.Std(), process.ScopeTree
	spec.Retention.Limit = hookOutput
	return spec
}

// specOf is the process of a run.
func specOf(r *config.Service, token string, n int64) process.Spec {
	spec := specInPlace(r)
	spec.ID, spec.Name = idOf(token, n), r.Name
	spec.Argv, spec.Shell = r.Command.Argv, r.Command.Line
	spec.Labels = map[string]string{process.LabelService: r.Name, LabelRun: strconv.FormatInt(n, 10)}
	spec.Retention.Limit = int64(r.Log.Limit)
	l := &r.Limits
	spec.Limits = process.Limits{Nice: l.Nice, OOMScoreAdj: l.OOMScore, MemoryMax: int64(l.Memory), PidsMax: int64(l.Pids),
		CPUWeight: int64(l.CPUWeight), CPUs: l.CPUs}
	if l.Files > 0 {
		spec.Limits.Rlimits = append(spec.Limits.Rlimits, process.Rlimit{Resource: rlimitFiles, Soft: uint64(l.Files), Hard: uint64(l.Files)})
	}
	if l.Core > 0 {
		spec.Limits.Rlimits = append(spec.Limits.Rlimits, process.Rlimit{Resource: rlimitCore, Soft: uint64(l.Core), Hard: uint64(l.Core)})
	}
	return spec
}

// specInPlace is where and as whom a service and its probes run. In a sandbox what is left
// empty is the sandbox's.
func specInPlace(r *config.Service) process.Spec {
	spec := process.Spec{Env: r.Env, Dir: r.Cwd, User: r.User} // nobody changes the map
	if r.Inherit == "none" {
		spec.Inherit = process.InheritNone
	}
	return spec
}

// WithEnv returns the declaration with the environment of its caller, which is stored
// with a service that inherits it.
func WithEnv(c *config.Config, environ map[string]string) *config.Config {
	out := *c
	out.Services = map[string]*config.Service{}
	shared := maps.Clone(environ) // of all that add nothing to it: a declaration is not changed
	if shared == nil {
		shared = map[string]string{}
	}
	for name, s := range c.Services {
		one := *s
		if s.Inherit == "all" {
			one.Env = shared
			if len(s.Env) > 0 {
				one.Env = maps.Clone(shared)
				maps.Copy(one.Env, s.Env)
			}
		}
		out.Services[name] = &one
	}
	return &out
}
