//go:build linux

// Package prometheus shows a real Prometheus a real daemon: it takes the alerts of
// packaging/prometheus, and has what each panel of packaging/grafana asks for.
package prometheus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
)

var tend string

func TestMain(m *testing.M) {
	os.Exit(testbin.Main(func(dir string) int {
		tend = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

const scrape = `
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
  - job_name: tend
    metrics_path: /-/metrics
    static_configs: [{targets: [%q]}]
`

// server is a Prometheus that scrapes one daemon.
type server struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, daemon string) *server {
	t.Helper()
	dir := t.TempDir()
	rules := proctest.Value(filepath.Abs("../../../packaging/prometheus/tend.rules.yml"))(t)
	config := filepath.Join(dir, "prometheus.yml")
	proctest.Must(t, os.WriteFile(config, fmt.Appendf(nil, scrape, rules, daemon), 0o600))
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &server{t, "http://" + l.Addr().String()}
	proctest.Must(t, l.Close()) // it is told no other way where to listen
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+l.Addr().String(), "--log.level=warn")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: on Debian, apt-get install prometheus", err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("Prometheus says: %s", log.String())
		}
	})
	proctest.Eventually(t, "Prometheus serves", func() bool {
		select {
		case <-ended:
			t.Fatal("it has ended")
		default:
		}
		resp, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return s
}

// get asks its API.
func (s *server) get(path string, query url.Values, into any) {
	s.t.Helper()
	resp := proctest.Value(http.Get(s.url + "/api/v1/" + path + "?" + query.Encode()))(s.t)
	defer resp.Body.Close()
	var said struct {
		Status, Error string
		Data          json.RawMessage
	}
	proctest.Must(s.t, json.NewDecoder(resp.Body).Decode(&said))
	if said.Status != "success" {
		s.t.Fatalf("%s %v: %s", path, query, said.Error)
	}
	proctest.Must(s.t, json.Unmarshal(said.Data, into))
}

// series are the labels of what an expression gives.
func (s *server) series(expr string) (all []map[string]string) {
	s.t.Helper()
	var found struct {
		Result []struct{ Metric map[string]string }
	}
	s.get("query", url.Values{"query": {expr}}, &found)
	for _, r := range found.Result {
		all = append(all, r.Metric)
	}
	return all
}

var legend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

func TestEachPanelHasWhatItAsksFor(t *testing.T) {
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{tend}})
	daemon := strings.TrimPrefix(d.URL, "http://")
	s := serve(t, daemon)

	// What is counted only once it has happened: a role that was replaced, a start that
	// fails, a request of a foreign page.
	proctest.Must(t, d.Replace(t.Context(), testdaemon.Server))
	c := d.Connect(t)
	p := proctest.Value(c.Start(t.Context(), process.Spec{Shell: "echo out; echo err >&2; cat", Stdin: process.StdinPipe}))(t)
	proctest.Write(t, p, "in\n")
	if _, err := c.Start(t.Context(), process.Spec{Argv: []string{"/no/such"}}); err == nil {
		t.Error("what is not there was started")
	}
	req := proctest.Value(http.NewRequestWithContext(t.Context(), "POST", d.URL+"/tend.v1.ProcessService/List", strings.NewReader("{}")))(t)
	req.Header.Set("Origin", "https://example.com")
	resp := proctest.Value(http.DefaultClient.Do(req))(t)
	proctest.Must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign page is answered %s", resp.Status)
	}

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct {
				Name       string
				Definition string
			}
		}
	}
	proctest.Must(t, json.Unmarshal(proctest.Value(os.ReadFile("../../../packaging/grafana/tend.json"))(t), &dashboard))
	for _, v := range dashboard.Templating.List {
		if v.Name != "instance" {
			continue
		}
		metric, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
		if !ok {
			t.Fatalf("the variable is %s", v.Definition)
		}
		proctest.Eventually(t, "the variable has the daemon", func() bool {
			var values []string
			s.get("label/"+label+"/values", url.Values{"match[]": {metric}}, &values)
			return len(values) == 1 && values[0] == daemon
		})
	}
	fill := strings.NewReplacer("$instance", strings.ReplaceAll(regexp.QuoteMeta(daemon), `\`, `\\`), "$__rate_interval", "5m")
	asked := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			asked++
			expr := fill.Replace(target.Expr)
			var found []map[string]string
			proctest.Eventually(t, panel.Title+": "+expr, func() bool {
				found = s.series(expr)
				return len(found) > 0
			})
			for _, l := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if found[0][l[1]] == "" {
					t.Errorf("%s: the legend has %s, the series only %v", panel.Title, l[1], found[0])
				}
			}
		}
	}
	if asked < 20 {
		t.Errorf("%d questions were asked", asked)
	}

	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	proctest.Eventually(t, "the alerts are evaluated", func() bool {
		rules.Groups = nil
		s.get("rules", nil, &rules)
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return len(rules.Groups) > 0
	})
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
}
