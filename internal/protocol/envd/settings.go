package envd

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/protocol"
)

// Store keeps the settings made through POST /init over a restart of the
// server. The data holds the access token: keep it from other users.
type Store interface {
	// Load returns what was saved last, or nil if nothing was.
	Load() ([]byte, error)
	Save([]byte) error
}

// settings is what POST /init can change. It is the only state of this face
// besides its connections.
type settings struct {
	store Store

	mu  sync.RWMutex
	cur saved // guarded by mu; its map is never changed in place
}

type saved struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`
	AccessToken    protocol.Token    `json:"accessToken,omitempty"`
	DefaultUser    string            `json:"defaultUser,omitempty"`
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
	// Timestamp of the last /init that was applied: older ones are ignored.
	Timestamp time.Time `json:"timestamp,omitzero"`
}

// newSettings loads what was saved and lets it win over the configuration,
// except for a token that the operator has set.
func newSettings(c *Config) (*settings, error) {
	s := &settings{store: c.Store, cur: saved{DefaultUser: c.DefaultUser, DefaultWorkdir: c.DefaultWorkdir}}
	if s.store != nil {
		data, err := s.store.Load()
		if err != nil {
			return nil, fmt.Errorf("load the settings made by /init: %w", err)
		}
		if len(data) > 0 {
			if err := json.Unmarshal(data, &s.cur); err != nil {
				return nil, fmt.Errorf("the saved settings of /init are damaged (remove the file to start afresh): %w", err)
			}
		}
	}
	if c.Token.Set() {
		s.cur.AccessToken = c.Token
	}
	return s, nil
}

func (s *settings) get() saved {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cur
}

// internalEnv are the variables that /init cannot change; a request can.
var internalEnv = map[string]string{"E2B_SANDBOX": "true"}

// globalEnv is what GET /envs shows and each process gets.
func (v *saved) globalEnv() map[string]string {
	env := maps.Clone(internalEnv)
	for k, val := range v.EnvVars {
		if _, internal := internalEnv[k]; !internal {
			env[k] = val
		}
	}
	return env
}

// initRequest is the body of POST /init. Fields that concern the virtual
// machine of the original (clock, certificates, mounts, address) are accepted
// and have no effect.
type initRequest struct {
	EnvVars        *map[string]string `json:"envVars"`
	AccessToken    *protocol.Token    `json:"accessToken"`
	DefaultUser    *string            `json:"defaultUser"`
	DefaultWorkdir *string            `json:"defaultWorkdir"`
	Timestamp      *time.Time         `json:"timestamp"`
}

// tokenError is refused with 401.
type tokenError string

func (e tokenError) Error() string { return string(e) }

// apply changes the settings and saves them. Once a token is set, a request
// must name the same one.
func (s *settings) apply(req *initRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.cur
	if next.AccessToken.Set() {
		switch {
		case req.AccessToken == nil || !req.AccessToken.Set():
			return tokenError("access token reset not authorized")
		case !next.AccessToken.Matches(string(*req.AccessToken)):
			return tokenError("access token validation failed")
		}
	}
	if req.Timestamp != nil {
		if req.Timestamp.Before(next.Timestamp) {
			return nil // a late duplicate of an earlier call
		}
		next.Timestamp = *req.Timestamp
	}
	if req.AccessToken != nil && req.AccessToken.Set() {
		next.AccessToken = *req.AccessToken
	}
	if req.EnvVars != nil {
		next.EnvVars = maps.Clone(*req.EnvVars)
	}
	if req.DefaultUser != nil && *req.DefaultUser != "" {
		next.DefaultUser = *req.DefaultUser
	}
	if req.DefaultWorkdir != nil && *req.DefaultWorkdir != "" {
		next.DefaultWorkdir = *req.DefaultWorkdir
	}
	if s.store != nil {
		data, err := json.Marshal(next)
		if err != nil {
			return fmt.Errorf("encode the settings: %w", err)
		}
		if err := s.store.Save(data); err != nil {
			return fmt.Errorf("save the settings: %w", err)
		}
	}
	s.cur = next
	return nil
}
