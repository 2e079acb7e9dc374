package parts

import (
	"encoding/json"
	"net/http"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/server/operator"
)

// clients tells a program on the caller's machine how other clients reach this daemon (tend env).
type clients struct {
	config *Config
	token  func() protocol.Token
	set    *Set
}

// Name implements [module.Part].
func (clients) Name() string { return "clients" }

// Routes implements [module.Router].
func (c clients) Routes() []module.Route {
	return []module.Route{{Pattern: "GET " + operator.ClientsPath, Handler: http.HandlerFunc(c.tell)}}
}

func (c clients) tell(w http.ResponseWriter, r *http.Request) {
	token := c.token()
	facts := operator.Clients{URL: c.config.Address, Locked: token.Set()}
	if c.config.TLS.Mode != "" {
		facts.Domain, facts.TLS, facts.CA = c.config.Authority(), c.config.TLS.Mode, string(c.set.Certificates.CA())
	}
	// A session of the page may do all that the token allows, and yet never gets the token.
	if token.Matches(protocol.Bearer(r)) || c.config.Trusted != nil && c.config.Trusted(r) {
		facts.Token, facts.E2BKey = string(token), string(protocol.E2BKey(token))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(facts) // fails when the client has left
}
