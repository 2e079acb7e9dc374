package metrics

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var (
	descOf  = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)
	named   = regexp.MustCompile(`\b(?:tend|process|go)_[a-z0-9_]+`)
	matched = regexp.MustCompile(`([a-z_]+)(?:=~|=|!=|!~)"`)
)

// described are the metrics of a server by their names, with their labels.
func described(t *testing.T) map[string][]string {
	t.Helper()
	m := New(Config{Manager: process.Manager(nil), Version: "1"})
	ch := make(chan *prometheus.Desc)
	go func() { m.registry.Describe(ch); close(ch) }()
	all := map[string][]string{}
	for d := range ch {
		s := descOf.FindStringSubmatch(d.String())
		if s == nil {
			t.Fatalf("%s is not understood", d)
		}
		labels := matched.FindAllStringSubmatch(s[2], -1)
		all[s[1]] = strings.Split(s[3], ",")
		for _, l := range labels {
			all[s[1]] = append(all[s[1]], l[1])
		}
	}
	return all
}

// wantMetrics reports what an expression names that no server has.
func wantMetrics(t *testing.T, known map[string][]string, where, expr string) (found int) {
	t.Helper()
	for _, name := range named.FindAllString(expr, -1) {
		found++
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if known[base] == nil {
				base = strings.TrimSuffix(name, suffix)
			}
		}
		labels, ok := known[base]
		if !ok {
			t.Errorf("%s names %s, which is no metric", where, name)
		}
		_, rest, _ := strings.Cut(expr, name+"{")
		in, _, _ := strings.Cut(rest, "}")
		for _, l := range matched.FindAllStringSubmatch(in, -1) {
			if l[1] != "instance" && !slices.Contains(labels, l[1]) {
				t.Errorf("%s asks %s for the label %s; it has %v", where, name, l[1], labels)
			}
		}
	}
	return found
}

func TestTheDashboardNamesMetricsThatThereAre(t *testing.T) {
	var d struct {
		Title, UID string
		Panels     []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	proctest.Must(t, json.Unmarshal(proctest.Value(os.ReadFile("../../../packaging/grafana/tend.json"))(t), &d))
	known, shown := described(t), map[string]bool{}
	if d.Title == "" || d.UID == "" || len(d.Panels) < 10 {
		t.Errorf("%q with %d panels", d.Title, len(d.Panels))
	}
	for _, p := range d.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if wantMetrics(t, known, p.Title, target.Expr) == 0 {
				t.Errorf("panel %q asks for no metric: %s", p.Title, target.Expr)
			}
			for _, name := range named.FindAllString(target.Expr, -1) {
				shown[name] = true
			}
		}
	}
	for name := range known {
		if strings.HasPrefix(name, "tend_") && !shown[name] && !shown[name+"_count"] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// reasons are the values of the label reason of starts that fail.
func reasons() (all []string) {
	for r := process.StartNotFound; r <= process.StartOther; r++ {
		all = append(all, startReason(&process.StartError{Reason: r}))
	}
	for _, err := range []error{&process.InvalidError{}, process.ErrExists, process.ErrLimit, process.ErrUnsupported, process.ErrUnavailable, context.Canceled} {
		all = append(all, startReason(err))
	}
	return all
}

func TestTheAlertsNameMetricsThatThereAre(t *testing.T) {
	known, rules := described(t), 0
	for line := range strings.Lines(string(proctest.Value(os.ReadFile("../../../packaging/prometheus/tend.rules.yml"))(t))) {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			rules++
			if wantMetrics(t, known, expr, expr) == 0 {
				t.Errorf("%s asks for no metric", expr)
			}
			_, words, _ := strings.Cut(expr, `reason=~"`)
			words, _, _ = strings.Cut(words, `"`)
			for word := range strings.SplitSeq(words, "|") {
				if word != "" && !slices.Contains(reasons(), word) {
					t.Errorf("%s: no start fails for the reason %s", expr, word)
				}
			}
		}
	}
	if rules == 0 {
		t.Error("there are no rules")
	}
}
