package network

import (
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/tend-run/tend/internal/lib/saferegexp"
)

// Rule names destinations. Its form in text:
//
//	name, *.name             a host; all that is below a domain, and not the domain
//	address, address/bits    IPv4 or IPv6; an IPv6 address with a port stands in [ ]
//	*, 0.0.0.0/0             everything, IPv6 too
//	…:port                   each of these, for one port alone
//	~expression              each host in whose name RE2 finds it, on every port
//
// As in nginx, whose mark the ~ is, an expression is found anywhere in the name if it does
// not say otherwise by ^ and $. Names are compared in lower case.
type Rule struct {
	all    bool
	re     *regexp.Regexp // not nil: names by expression
	prefix netip.Prefix   // valid: addresses
	name   string         // in lower case, ASCII, without a dot at its end; of an expression, its text
	below  bool           // names below name
	port   uint16         // 0: each
}

// ParseRule reads the text of a rule. The error completes "rule …".
func ParseRule(text string) (Rule, error) {
	if expression, ok := strings.CutPrefix(text, "~"); ok {
		return parseExpression(expression)
	}
	host, port, err := splitPort(text)
	if err != nil {
		return Rule{}, err
	}
	r := Rule{port: port}
	switch host {
	case "*", "0.0.0.0/0":
		r.all = true
		return r, nil
	}
	if p, ok := parsePrefix(host); ok {
		r.prefix = p
		return r, nil
	}
	if strings.Contains(host, "/") {
		return Rule{}, fmt.Errorf("has %.80q, which is no CIDR; an address, a slash and 0 to 32 are needed, of IPv6 0 to 128", host)
	}
	host, r.below = strings.CutPrefix(host, "*.")
	if r.name, err = hostName(host); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// maxExpression bounds an expression in bytes, so that with its mark it has the 300 of any rule.
const maxExpression = 299

// maxSteps bounds what an expression expands to: each name is compared with all of a sandbox's.
const maxSteps = 500

func parseExpression(text string) (Rule, error) {
	if len(text) == 0 || len(text) > maxExpression {
		return Rule{}, fmt.Errorf("has an expression of %d bytes; 1 to %d are allowed", len(text), maxExpression)
	}
	re, err := saferegexp.Plain("(?i)" + text)
	if err != nil {
		return Rule{}, err
	}
	if tree, err := syntax.Parse(text, syntax.Perl|syntax.FoldCase); err != nil {
		return Rule{}, err
	} else if prog, err := syntax.Compile(tree.Simplify()); err != nil || len(prog.Inst) > maxSteps {
		return Rule{}, fmt.Errorf("expands to more than %d steps, which is the limit; use smaller repetitions", maxSteps)
	}
	return Rule{re: re, name: text}, nil
}

// splitPort takes ":port" off.
func splitPort(text string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(text, ':')
	bracket := strings.HasPrefix(text, "[")
	switch {
	case bracket && strings.HasSuffix(text, "]"):
		return text[1 : len(text)-1], 0, nil
	case i < 0, !bracket && strings.Count(text, ":") > 1: // no port; an address of IPv6
		return text, 0, nil
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("has the port %.20q; 1 to 65535 are allowed", text[i+1:])
	}
	host = text[:i]
	if bracket {
		if !strings.HasSuffix(host, "]") {
			return "", 0, fmt.Errorf("has a [ without its ]")
		}
		host = host[1 : len(host)-1]
	}
	return host, uint16(n), nil
}

// parsePrefix reads an address or CIDR. An IPv4 address in an IPv6 one is that
// IPv4 address.
func parsePrefix(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// hostName returns the one form of a name that others are compared with.
func hostName(s string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	for i := 0; i < len(name); i++ {
		if name[i] >= 0x80 {
			ascii, err := idna.Lookup.ToASCII(name)
			if err != nil {
				return "", fmt.Errorf("has the name %.80q, which is none: %w", s, err)
			}
			name = ascii
			break
		}
	}
	if len(name) == 0 || len(name) > 253 {
		return "", fmt.Errorf("has a name of %d bytes; 1 to 253 are allowed", len(name))
	}
	last := name
	for label := range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > 63 {
			return "", fmt.Errorf("has the name %.80q with a part of %d bytes; 1 to 63 are allowed between dots", s, len(label))
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return "", fmt.Errorf("has %q in %.80q; a host name, \"*.\" and a domain, an address or a CIDR is needed", c, s)
			}
		}
		last = label
	}
	// What ends in a number is an address to some programs, in a form that is none here.
	if _, err := strconv.ParseUint(last, 0, 64); err == nil {
		return "", fmt.Errorf("has %.80q, which is neither a name nor a whole address", s)
	}
	return name, nil
}

// matchesAddr reports whether an address is named. Its IPv4 form counts.
func (r *Rule) matchesAddr(to netip.AddrPort) bool {
	return r.onPort(to.Port()) && (r.all || r.prefix.IsValid() && r.prefix.Contains(to.Addr().Unmap()))
}

// matchesName reports whether a name is, in the form of hostName.
func (r *Rule) matchesName(name string, port uint16) bool {
	if name == "" || !r.onPort(port) {
		return false
	}
	if r.all {
		return true
	}
	if r.re != nil {
		return r.re.MatchString(name)
	}
	if r.below {
		return strings.HasSuffix(name, "."+r.name)
	}
	return r.name != "" && name == r.name
}

func (r *Rule) onPort(port uint16) bool { return r.port == 0 || r.port == port }

// String is the text of a rule.
func (r *Rule) String() string {
	s := r.name
	switch {
	case r.re != nil:
		return "~" + r.name
	case r.all:
		s = "*"
	case r.prefix.IsValid() && r.prefix.IsSingleIP():
		s = r.prefix.Addr().String()
	case r.prefix.IsValid():
		s = r.prefix.String()
	case r.below:
		s = "*." + r.name
	}
	if r.port == 0 {
		return s
	}
	if strings.Contains(s, ":") {
		s = "[" + s + "]"
	}
	return s + ":" + strconv.Itoa(int(r.port))
}
