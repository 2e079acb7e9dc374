package work

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/project"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// maxNamed bounds the lines that are looked at for the name of a variable.
const maxNamed = 200

// SetEnv adds a variable, whose name somebody else than the model has given, and whose value
// too, if it is an address, a key, or loads code.
func (h *hands) SetEnv(ctx context.Context, name, value string) (keys []string, err error) {
	if err := h.settable(ctx, name, value); err != nil {
		return nil, err
	}
	return h.setEnv(ctx, name, value)
}

// SetEnv asks the person where [hands.SetEnv] refuses.
func (h *talkHands) SetEnv(ctx context.Context, name, value string) (keys []string, err error) {
	if !h.allowed {
		if err := h.settable(ctx, name, value); err != nil {
			return nil, fmt.Errorf("%w: %w", err, guard.ErrAsk)
		}
	}
	return h.setEnv(ctx, name, value)
}

func (h *hands) settable(ctx context.Context, name, value string) error {
	hits, _, err := h.Search(ctx, `\b`+regexp.QuoteMeta(name)+`\b`, "", maxNamed)
	if err != nil {
		return err
	}
	return settable(name, value, h.w.erred+h.log, hits)
}

var (
	// pointing are the names of variables that lead elsewhere, or decide what is loaded.
	pointing = lazyregexp.New(`(?i)(PROXY|CERT|TLS|SSL|INDEX|REGISTRY|MIRROR|BASE|URL|URI|DSN|ENDPOINT|HOST|SERVER|ADDR(ESS)?|OPTS|OPTIONS|FLAGS|ARGS|HOOKS?|PRELOAD|PLUGINS?|LOADERS?|PATH)(_|$)`)
	// access is how sources read a variable, before its name.
	access = lazyregexp.New(`(?i)(env(\.|\?\.|\[|\(|::)|environ|getenv|ENV\[|EnvVar|\$\{?)[^A-Za-z0-9]*(get|fetch|var|pop|setdefault)?[^A-Za-z0-9]*$`)
)

// settable says why a model may not set a variable; nil: it may. Log is what the service has
// written, and hits are the lines of the project with the name.
func settable(name, value, log string, hits []agent.Hit) error {
	named := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	known, example, hasExample := named.MatchString(log), "", false
	for _, hit := range hits {
		if playbook.IsExample(hit.Path) {
			key, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(hit.Text), "export "), "=")
			if ok && strings.TrimSpace(key) == name {
				known, example, hasExample = true, strings.Trim(strings.TrimSpace(v), `"'`), true
			}
			continue
		}
		at := named.FindStringIndex(hit.Text)
		known = known || at != nil && hit.Path != project.EnvFile && access.MatchString(hit.Text[:at[0]])
	}
	switch {
	case !known:
		return fmt.Errorf("neither the error, nor an example of variables, nor a source that reads it names %.80s; set what they name", name)
	case !steersTo(name, value) || hasExample && value == example && playbook.Usable(name, value):
		return nil
	}
	return errors.New("its value is an address, a key, or decides what is loaded, and no example has it so: a person must give it; finish, and say which variable is missing")
}

// steersTo reports whether a variable decides to whom a program speaks, what it trusts, or
// what it loads. This machine itself is no such address.
func steersTo(name, value string) bool {
	if playbook.IsSecret(name) {
		return true
	}
	u, err := url.Parse(value)
	if err == nil && u.Scheme != "" && u.Host != "" {
		return !isLoopback(u.Hostname())
	}
	host, _, _ := strings.Cut(value, ":")
	return pointing.MatchString(name) && !isLoopback(host)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
