package langsmith

import (
	"encoding/json"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// proxyConfig is proxy_config of a box. The original is a proxy in front of the box that
// adds credentials to requests; here its list of hosts is a rule of the box's own network.
// Source: ProxyConfig of PyPI langsmith 0.15.0.
type proxyConfig struct {
	AccessControl *accessControl  `json:"access_control"`
	Rules         json.RawMessage `json:"rules"`
	Callbacks     json.RawMessage `json:"callbacks"`
	// no_proxy, which the original ignores, and description change nothing.
}

// accessControl names hosts: domains, "*." and a domain, addresses, CIDRs, and "~" and an
// expression. One of the lists may have entries.
type accessControl struct {
	AllowList []string `json:"allow_list,omitempty"`
	DenyList  []string `json:"deny_list,omitempty"`
}

// everything of the network, as a rule.
const everything = "0.0.0.0/0"

// network is what a proxy_config says of the network; nil: nothing. A configuration
// without access_control takes the rules away.
func (b *boxRequest) network() (*driver.Network, error) {
	if s := string(b.ProxyConfig); s == "" || s == "null" {
		return nil, nil
	}
	var c proxyConfig
	if err := protocol.DecodeJSON(b.ProxyConfig, &c); err != nil {
		return nil, requestErrorf("proxy_config is not what this path takes: %v", err)
	}
	if asks(c.Rules) {
		return nil, unsupported("proxy_config.rules",
			"no credentials are added to requests; give the sandbox what it needs by run_config.env_vars")
	}
	if asks(c.Callbacks) {
		return nil, unsupported("proxy_config.callbacks", "leave it out")
	}
	a := c.AccessControl
	if a == nil {
		return new(driver.Network), nil
	}
	if len(a.AllowList) > 0 && len(a.DenyList) > 0 {
		return nil, requestErrorf("proxy_config.access_control has an allow_list and a deny_list; give one")
	}
	n := &driver.Network{Allow: a.AllowList, Deny: a.DenyList}
	if len(n.Allow) > 0 {
		n.Deny = []string{everything}
	}
	return n, nil
}

// egress is a network as proxy_config tells it; nil: it has no rules.
func egress(n *driver.Network) *proxyConfig {
	if len(n.Allow) == 0 && len(n.Deny) == 0 {
		return nil
	}
	a := &accessControl{AllowList: n.Allow, DenyList: n.Deny}
	if len(a.AllowList) > 0 {
		a.DenyList = nil
	}
	return &proxyConfig{AccessControl: a, Rules: json.RawMessage("[]")}
}
