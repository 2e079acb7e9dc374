package healing

import (
	"context"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
)

// Declare accepts an applied file. Env is the environment of the caller that applied
// it.
func (h *Healing) Declare(ctx context.Context, c *config.Config, file string, env map[string]string) error {
	d := &declaration{File: file}
	if c.Healer != nil {
		d.Healer, d.Service = c.Healer, c.Target()
		if s := c.Services[d.Service]; s != nil {
			d.Sandbox, d.User = s.Sandbox, s.User
		}
		d.Secrets = secretsOf(c.Healer.LLM, env)
		d.Token = h.c.Token
		if r := c.Healer.Report; r != nil {
			d.ReportKey = env[r.KeyEnv]
		}
	}
	var err error
	if ierr := h.in(ctx, func() {
		h.mu.Lock()
		damaged := h.damaged != nil
		h.mu.Unlock()
		if h.declared == nil && d.Healer == nil && !damaged {
			return
		}
		if err = h.store.save(declaredFile, d); err != nil {
			return
		}
		h.mu.Lock()
		h.damaged = nil
		h.mu.Unlock()
		other := h.declared == nil || h.declared.Service != d.Service || h.declared.File != d.File
		if h.declared = d; d.Healer == nil {
			h.declared = nil
		}
		if other {
			h.active() // the files of the one before are of no interest
			h.sense = healer.Sense{}
			if h.state.Episode == "" {
				h.state = state{}
				err = h.store.save(stateFile, h.state)
			}
		} else if h.state.Breaker.Broken || h.state.Breaker.Declined != "" { // whoever applies a file has changed something
			h.rearm("the services were declared anew", false)
		}
		h.declare()
		if other {
			h.findTalk()
		}
		h.show()
		if h.declared != nil { // it may have failed before anybody was told
			h.wg.Go(func() { h.catchUp(h.alive) })
		}
	}); ierr != nil {
		return ierr
	}
	return err
}

// secretsOf takes the key of a model from an environment.
func secretsOf(m *config.LLM, env map[string]string) (s healer.Secrets) {
	if m == nil {
		return s
	}
	prefix := "ANTHROPIC"
	if m.Provider == "openai" {
		prefix = "OPENAI"
	}
	name := m.KeyEnv
	if name == "" {
		name = prefix + "_API_KEY"
	}
	s.Key, s.BaseURL = env[name], m.BaseURL
	if s.BaseURL == "" {
		s.BaseURL = env[prefix+"_BASE_URL"]
	}
	return s
}

// declare sets the URL of the reporter.
func (h *Healing) declare() { h.report.to(h.declared) }
