package network

import (
	"fmt"
	"net/netip"
)

// MaxRules is how many rules of a kind an operator gives.
const MaxRules = 256

// ParseReach reads rules for [Config].Reach: an address, a CIDR or "*", each with a port
// or without, or "private", which stands for the addresses that networks have for
// themselves. What no sandbox reaches otherwise is opened by one address with a port alone.
// The error is a *RuleError.
func ParseReach(texts []string) ([]Rule, error) {
	all, err := parseOperator("reach", texts)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if reason := r.opensNothing(); reason != "" {
			return nil, &RuleError{"reach", r.String(), reason}
		}
	}
	return all, nil
}

// ParseDeny reads rules for [Config].Deny, in the form of ParseReach. One of everything,
// without a Reach, leaves the networks of sandboxes without a way out at all.
// The error is a *RuleError.
func ParseDeny(texts []string) ([]Rule, error) { return parseOperator("deny", texts) }

func parseOperator(list string, texts []string) (all []Rule, err error) {
	if len(texts) > MaxRules {
		return nil, &RuleError{list, texts[MaxRules], fmt.Sprintf("is one too many: %d are allowed", MaxRules)}
	}
	for _, text := range texts {
		if text == "private" {
			for _, p := range private {
				all = append(all, Rule{prefix: p})
			}
			continue
		}
		r, err := ParseRule(text)
		if err == nil && r.name != "" {
			err = fmt.Errorf("is a name; give an address, a CIDR, * or private")
		}
		if err != nil {
			return nil, &RuleError{list, text, err.Error()}
		}
		all = append(all, r)
	}
	return all, nil
}

// opensNothing says why a rule of Reach has no effect, which its author takes it to
// have; "": it has.
func (r *Rule) opensNothing() string {
	if r.all {
		return ""
	}
	a := r.prefix.Addr()
	within := func(list []netip.Prefix) bool {
		for _, p := range list {
			if p.Contains(a) && p.Bits() <= r.prefix.Bits() {
				return true
			}
		}
		return false
	}
	switch {
	case !within(never):
		return ""
	case a == thisMachine && r.isExact():
		return ""
	case within(prefixes("127.0.0.0/8", "::1/128", "192.0.0.0/24", "fd74:656e:6400::/48")):
		return "cannot be opened; of this machine's loopback, 127.0.0.1:PORT can, which is " + Gateway + ":PORT inside"
	case r.isExact():
		return ""
	}
	return "is closed to sandboxes as a whole; give one address with a port"
}

// isExact reports whether a rule is about one port of one address.
func (r *Rule) isExact() bool { return r.port != 0 && r.prefix.IsValid() && r.prefix.IsSingleIP() }
