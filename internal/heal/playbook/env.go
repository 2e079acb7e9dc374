package playbook

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/service/config"
)

var examples = []string{".env.example", ".env.sample", ".env.template", ".env.dist", "env.example", ".env.defaults"}

// IsExample reports whether a file is an example of a file of variables.
func IsExample(rel string) bool { return slices.Contains(examples, path.Base(rel)) }

// Names of variables whose values are secrets, and values that stand for one that a
// person has to put in.
var (
	secretName  = lazyregexp.New(`(?i)(?:^|_)(?:KEY|APIKEY|SECRET|TOKEN|PASS|PASSWORD|PASSWD|PWD|CREDENTIALS?|PRIVATE|AUTH|SALT|PEPPER|CERT|LICENSE|WEBHOOK|PIN)(?:_|$|S$)|(?:KEY|SECRET|TOKEN|PASSWORD)$`)
	placeholder = lazyregexp.New(`(?i)^$|your[-_ ]?|change[-_ ]?(?:me|this|it)|replace|todo|fixme|xxx|^<.*>$|^\[.*\]$|^\{.*\}$|^\.\.\.|placeholder|insert|enter[-_ ]|example\.(?:com|org|net)|^sk[-_]|^pk_|^ghp_|^AKIA|dummy|^(?:secret|password|key|token|none|null|undefined|string|value|foo|bar|abc123?|123456?7?8?9?0?)$`)
	// devValue says of itself that it is for this machine alone.
	devValue = lazyregexp.New(`(?i)(?:^|[-_.])(?:dev|development|local|localhost|test|testing|insecure)(?:[-_.]|$)`)
)

// envKey: the error names a variable that the example has and that is not set.
func envKey(p *project, groups map[string]string) []finding {
	key := groups["key"]
	if !nameForm.MatchString(key) || guard.Steers(key) || p.Env[key] != "" {
		return nil
	}
	dir, example := p.findUp(p.dir, examples...)
	if example == "" {
		return nil
	}
	example = path.Join(dir, example)
	target := path.Join(dir, ".env")
	if !p.unlinked(example) || !p.unlinked(target) || p.git.tracks(target) {
		return nil
	}
	text, _ := p.read(example)
	known, err := config.ParseEnv(text)
	value, has := known[key]
	if err != nil || !has {
		return nil
	}
	set := map[string]string{}
	if p.exists(target) {
		text, ok := p.read(target)
		if !ok {
			return nil
		}
		if set, err = config.ParseEnv(text); err != nil || set[key] != "" {
			return nil
		}
		if _, empty := set[key]; empty { // a line that somebody left empty is theirs
			return []finding{proposal("set " + key + " in " + target + ": it is there, and empty")}
		}
	}
	why := key + " is in " + example + ", and not in " + target
	if !Usable(key, value) {
		return []finding{proposal("set " + key + " in " + target + ": " + example + " has no value that could be used")}
	}
	one := setEnv(target, key, value)
	out := []finding{{why: why, strong: true, actions: []Action{one}}}
	// Others may be missing, too, and be named only once this one is there.
	all := []Action{one}
	for _, name := range names(text) {
		v := known[name]
		if _, there := set[name]; name != key && !there && p.Env[name] == "" && Usable(name, v) && nameForm.MatchString(name) &&
			!guard.Steers(name) {
			all = append(all, setEnv(target, name, v))
		}
	}
	if len(all) > 1 {
		out = append(out, finding{why: why + ", as are others", strong: true, actions: all})
	}
	return out
}

func setEnv(file, name, value string) Action {
	return Action{Kind: SetEnv, Path: file, Name: name, Value: value, Reason: "add " + name + " to " + file + " as the example has it"}
}

func proposal(text string) finding {
	return finding{why: text, actions: []Action{{Kind: Propose, Reason: text}}}
}

// IsSecret reports whether a name is that of a variable with a secret.
func IsSecret(name string) bool { return secretName.MatchString(name) }

// Usable reports whether the value of an example can be used as it is.
func Usable(name, value string) bool {
	if placeholder.MatchString(value) || strings.ContainsAny(value, "\n\r\x00") || len(value) > 4096 {
		return false
	}
	if u, err := url.Parse(value); err == nil && u.Scheme != "" && u.Host != "" {
		host := u.Hostname()
		// Elsewhere than here, a password is a secret.
		if _, has := u.User.Password(); has && host != "localhost" && host != "127.0.0.1" && host != "::1" && strings.Contains(host, ".") {
			return false
		}
	}
	return !secretName.MatchString(name) || devValue.MatchString(value)
}

var envLine = lazyregexp.New(`(?m)^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=`)

// names are those of an env file, in its order.
func names(text []byte) (all []string) {
	for _, m := range envLine.FindAllSubmatch(text, 1000) {
		all = append(all, string(m[1]))
	}
	return all
}

// portHolder: the port on which the service is to listen is in use. A report that does
// not say which one means the one that there is.
func portHolder(p *project, groups map[string]string) []finding {
	ports := p.ports()
	if text := groups["port"]; text != "" {
		n, ok := p.port(text)
		if !ok {
			return nil
		}
		ports = []int{n}
	}
	var f finding
	for _, n := range ports {
		a, ok := p.action(step{EndPortHolder: "${port}"}, map[string]string{"port": itoa(n)})
		if !ok {
			return nil
		}
		f.actions = append(f.actions, a)
	}
	if len(ports) == 0 {
		return nil
	}
	f.why, f.strong = "something else listens on port "+itoa(ports[0]), true
	return []finding{f}
}
