package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Policy says what a sandbox may reach of what can be reached at all. Allow comes first;
// what neither names is allowed if Allow is empty.
type Policy struct{ Allow, Deny []Rule }

// RuleError is about a rule of a list.
type RuleError struct {
	List   string // "allow", "deny"
	Rule   string
	Reason string // completes "rule …"
}

func (e *RuleError) Error() string { return fmt.Sprintf("%s: rule %.80q %s", e.List, e.Rule, e.Reason) }

// ParsePolicy reads lists of rules. The error is a *RuleError.
func ParsePolicy(allow, deny []string) (*Policy, error) {
	p := &Policy{}
	for _, l := range []struct {
		name string
		from []string
		to   *[]Rule
	}{{"allow", allow, &p.Allow}, {"deny", deny, &p.Deny}} {
		for _, text := range l.from {
			r, err := ParseRule(text)
			if err != nil {
				return nil, &RuleError{l.name, text, err.Error()}
			}
			*l.to = append(*l.to, r)
		}
	}
	return p, nil
}

// Closed reports whether nothing at all can be reached.
func (p *Policy) Closed() bool {
	return len(p.Allow) == 0 && slices.ContainsFunc(p.Deny, func(r Rule) bool { return r.all && r.port == 0 })
}

// named reports whether any rule is about names.
func (p *Policy) named() bool {
	byName := func(r Rule) bool { return r.name != "" }
	return slices.ContainsFunc(p.Allow, byName) || slices.ContainsFunc(p.Deny, byName)
}

// permits reports whether a destination may be reached. name is what it is known by; "":
// nothing.
func (p *Policy) permits(to netip.AddrPort, name string) bool {
	matches := func(r Rule) bool { return r.matchesAddr(to) || r.matchesName(name, to.Port()) }
	if slices.ContainsFunc(p.Allow, matches) {
		return true
	}
	return len(p.Allow) == 0 && !slices.ContainsFunc(p.Deny, matches)
}

// permitsAny is permits for a destination with several names, or none. With several, one
// that may be reached is enough: they share the address.
func (p *Policy) permitsAny(to netip.AddrPort, names []string) bool {
	if len(names) == 0 {
		return p.permits(to, "")
	}
	return slices.ContainsFunc(names, func(n string) bool { return p.permits(to, n) })
}

// resolves reports whether a name may be looked up. With an Allow, a name that is
// not in it is not even asked for: a question is a message, too.
func (p *Policy) resolves(name string) bool {
	if len(p.Allow) > 0 {
		return slices.ContainsFunc(p.Allow, func(r Rule) bool { return r.matchesName(name, r.port) })
	}
	return !slices.ContainsFunc(p.Deny, func(r Rule) bool { return r.port == 0 && r.matchesName(name, 0) })
}
