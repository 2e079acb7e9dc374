package telemetry

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

func variables(set map[string]string) func(string) string {
	return func(name string) string { return set[name] }
}

func TestAWrongVariableIsNamed(t *testing.T) {
	t.Parallel()
	const at = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, c := range []struct{ what, name, value, with string }{
		{"another protocol", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"},
		{"another protocol for metrics", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "http/protobuf"},
		{"an address without a scheme", at, "collector:4318", "http://"},
		{"a URL with a password that is none", at, "ftp://me:hunter2@collector", "http://"},
		{"a URL that cannot be parsed", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://me:hunter2@[::1", "http://"},
		{"a header without a value", "OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2,hunter2", "entry 2"},
		{"a header with a wrong percent sign", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=hunter2%zz", "entry 1"},
		{"a header that ends the line", "OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%0d%0ab: c", "percent-encode"},
		{"attributes without an equals sign", "OTEL_RESOURCE_ATTRIBUTES", "prod", "key=value"},
		{"an unknown sampler", "OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on"},
		{"a share of more than all", "OTEL_TRACES_SAMPLER_ARG", "1.5", "from 0 to 1"},
		{"a share that is no number", "OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1"},
		{"neither true nor false", "OTEL_SDK_DISABLED", "yes", "neither true"},
		{"an exporter that there is not", "OTEL_TRACES_EXPORTER", "console", "otlp or none"},
		{"a compression that there is not", "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip"},
		{"a certificate", "OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem", "SSL_CERT_FILE"},
		{"an interval in words", "OTEL_METRIC_EXPORT_INTERVAL", "1m", "milliseconds"},
		{"no time at all", "OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds"},
		{"a time that overflows", "OTEL_EXPORTER_OTLP_TIMEOUT", "9223372036854775807", "milliseconds"},
	} {
		set := map[string]string{at: "http://127.0.0.1:4318"}
		if c.name == "OTEL_TRACES_SAMPLER_ARG" {
			set["OTEL_TRACES_SAMPLER"] = "traceidratio"
		}
		set[c.name] = c.value
		_, err := FromEnvironment(variables(set))
		wrong, ok := errors.AsType[*VariableError](err)
		if !ok || wrong.Name != c.name || !strings.Contains(err.Error(), c.with) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestVariablesSayWhatIsSentAndWhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what            string
		set             map[string]string
		traces, metrics string
	}{
		{"nothing is set", nil, "", ""},
		{"a name alone asks for nothing", map[string]string{"OTEL_SERVICE_NAME": "a", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", ""},
		{"one endpoint for both", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/base/"}, "https://c/base/v1/traces", "https://c/base/v1/metrics"},
		{"an endpoint of traces is taken as it is", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:1/x"}, "http://c:1/x", ""},
		{"metrics elsewhere", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://d/m"}, "http://c/v1/traces", "http://d/m"},
		{"no metrics", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, "http://c/v1/traces", ""},
		{"no traces", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, "", "http://c/v1/metrics"},
		{"the usual place", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces", ""},
		{"disabled, whatever else is wrong", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "?", "OTEL_SDK_DISABLED": "TRUE"}, "", ""},
	} {
		s, err := FromEnvironment(variables(c.set))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if s == nil {
			s = &Settings{}
		}
		for _, e := range []struct {
			to   *Endpoint
			want string
		}{{s.Traces, c.traces}, {s.Metrics, c.metrics}} {
			if got := ""; e.to != nil {
				if got = e.to.url.String(); got != e.want {
					t.Errorf("%s: goes to %s; want %s", c.what, got, e.want)
				}
			} else if e.want != "" {
				t.Errorf("%s: goes nowhere; want %s", c.what, e.want)
			}
		}
	}
	s, err := FromEnvironment(variables(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c , d=e", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "f=g",
		"OTEL_RESOURCE_ATTRIBUTES": "env=prod,service.name=x", "OTEL_SERVICE_NAME": "mine",
	}))
	if err != nil || !maps.Equal(s.Traces.headers, map[string]string{"a": "b c", "d": "e"}) || !maps.Equal(s.Metrics.headers, map[string]string{"f": "g"}) || !maps.Equal(s.Attributes, map[string]string{"env": "prod", "service.name": "mine"}) {
		t.Errorf("%v, %v, %v, %v", s.Traces.headers, s.Metrics.headers, s.Attributes, err)
	}
}

func TestALabelThatIsNoneOfOursIsNoSpan(t *testing.T) {
	t.Parallel()
	const name = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"
	for _, good := range []string{name + " -", name + " 1112131415161718"} {
		if s, ok := parse(good); !ok || !s.sampled || s.parent.IsValid() != strings.HasSuffix(good, "8") {
			t.Errorf("%q is not understood: %+v", good, s)
		}
	}
	for _, bad := range []string{"", name, name + " ", name + "  -", name + " - -", name[1:] + " -", strings.Repeat("0", 200), "00-" + strings.Repeat("0", 32) + "-0102030405060708-01 -", strings.TrimSuffix(name, "01") + "ff" + " -"} {
		if s, ok := parse(bad); ok {
			t.Errorf("%q is understood: %+v", bad, s)
		}
	}
}

func TestIDsAreDifferent(t *testing.T) {
	t.Parallel()
	var seen []string
	for range 64 {
		of, id := ids{}.NewIDs(t.Context())
		seen = append(seen, of.String(), id.String())
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 128 {
		t.Error("IDs are repeated")
	}
}
