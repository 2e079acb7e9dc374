package telemetry

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/net/http/httpguts"
)

// Settings are what the OTEL_* variables say.
type Settings struct {
	Traces  *Endpoint // nil: no traces
	Metrics *Endpoint // nil: no metrics
	// Attributes of the resource, from OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.
	Attributes map[string]string
	// Every is the time between two exports of metrics: 100 ms to a day; 60 s.
	Every time.Duration

	sampler sdktrace.Sampler
}

// Endpoint is where one kind of telemetry goes.
type Endpoint struct {
	url     *url.URL
	headers map[string]string
	timeout time.Duration // of one try; 10 s
	gzip    bool
}

// Bounds of variables.
const (
	maxPairs  = 128      // of a list of key=value
	maxList   = 64 << 10 // bytes of one
	leastTime = 100 * time.Millisecond
	mostTime  = 24 * time.Hour
)

// VariableError is a variable with a value that is not understood. It has nothing of
// values that may be secret.
type VariableError struct{ Name, Reason string }

func (e *VariableError) Error() string {
	return "the environment variable " + e.Name + " " + e.Reason + "; or unset it, or set OTEL_SDK_DISABLED=true to send no telemetry"
}

// FromEnvironment reads the variables by get, which returns "" for those that are not set.
// It returns nil if they ask for nothing, and a *VariableError for the first that is wrong.
// Variables that are not read are those of the specification that the package comment does
// not need.
func FromEnvironment(get func(string) string) (*Settings, error) {
	r := reader{get: func(name string) string { return strings.TrimSpace(get(name)) }}
	if r.yes("OTEL_SDK_DISABLED") {
		return nil, nil
	}
	s := &Settings{}
	s.Traces = r.endpoint("TRACES", "/v1/traces")
	s.Metrics = r.endpoint("METRICS", "/v1/metrics")
	if s.Traces == nil && s.Metrics == nil {
		return nil, r.err
	}
	s.Attributes = r.pairs("OTEL_RESOURCE_ATTRIBUTES")
	if name := r.get("OTEL_SERVICE_NAME"); name != "" {
		s.Attributes["service.name"] = name
	}
	s.Every = r.millis(time.Minute, "OTEL_METRIC_EXPORT_INTERVAL")
	s.sampler = r.sampler()
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// reader reads variables and keeps the first thing that is wrong.
type reader struct {
	get func(string) string
	err error
}

func (r *reader) wrong(name, reason string) {
	if r.err == nil {
		r.err = &VariableError{Name: name, Reason: reason}
	}
}

// first is the first of these variables that is set.
func (r *reader) first(names ...string) (name, value string) {
	for _, name := range names {
		if v := r.get(name); v != "" {
			return name, v
		}
	}
	return "", ""
}

func (r *reader) yes(name string) bool {
	switch v := r.get(name); {
	case strings.EqualFold(v, "true"):
		return true
	case v != "" && !strings.EqualFold(v, "false"):
		r.wrong(name, "is neither true nor false: set one of them")
	}
	return false
}

// endpoint reads where one kind goes; nil: nowhere.
func (r *reader) endpoint(kind, path string) *Endpoint {
	const otlp = "OTEL_EXPORTER_OTLP_"
	exporter := "OTEL_" + kind + "_EXPORTER"
	name, text := r.first(otlp+kind+"_ENDPOINT", otlp+"ENDPOINT")
	switch v := r.get(exporter); {
	case v == "none", v == "" && text == "":
		return nil
	case v != "" && v != "otlp":
		r.wrong(exporter, "names an exporter that tend does not have: set it to otlp or none")
		return nil
	case text == "":
		text = "http://localhost:4318"
	}
	// What the library says of a wrong URL has the URL in it, passwords included.
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		r.wrong(name, "is no URL of http or https: write http://HOST:4318")
		return nil
	}
	if name != otlp+kind+"_ENDPOINT" {
		u = u.JoinPath(path)
	}
	e := &Endpoint{url: u}
	if name, v := r.first(otlp+kind+"_PROTOCOL", otlp+"PROTOCOL"); v != "" && v != "http/protobuf" {
		r.wrong(name, "is a protocol that tend does not speak: set it to http/protobuf and the endpoint to the collector's port for it, usually 4318")
	}
	for _, file := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		if name, v := r.first(otlp+kind+"_"+file, otlp+file); v != "" {
			r.wrong(name, "is not supported: tend trusts the certificates that the machine trusts (SSL_CERT_FILE names others) and shows none of its own")
		}
	}
	switch name, v := r.first(otlp+kind+"_COMPRESSION", otlp+"COMPRESSION"); v {
	case "", "none":
	case "gzip":
		e.gzip = true
	default:
		r.wrong(name, "is a compression that tend does not have: set it to gzip or none")
	}
	name, _ = r.first(otlp+kind+"_HEADERS", otlp+"HEADERS")
	e.headers = r.pairs(name)
	for _, k := range slices.Sorted(maps.Keys(e.headers)) {
		if !httpguts.ValidHeaderFieldName(k) || !httpguts.ValidHeaderFieldValue(e.headers[k]) {
			r.wrong(name, "has a name or a value that HTTP headers cannot carry: percent-encode spaces and commas, and leave line breaks out")
		}
	}
	e.timeout = r.millis(10*time.Second, otlp+kind+"_TIMEOUT", otlp+"TIMEOUT")
	return e
}

// pairs reads "key=value,key=value" with values that are percent-encoded.
func (r *reader) pairs(name string) map[string]string {
	all := map[string]string{}
	text := ""
	if name != "" {
		text = r.get(name)
	}
	if len(text) > maxList {
		r.wrong(name, fmt.Sprintf("has %d bytes: %d is the limit", len(text), maxList))
		return all
	}
	n := 0
	for item := range strings.SplitSeq(text, ",") {
		if n++; n > maxPairs {
			r.wrong(name, fmt.Sprintf("has more than %d entries: leave some out", maxPairs))
			break
		}
		if strings.TrimSpace(item) == "" {
			continue
		}
		k, v, ok := strings.Cut(item, "=")
		k = strings.TrimSpace(k)
		v, err := url.PathUnescape(strings.TrimSpace(v))
		if !ok || k == "" || err != nil {
			r.wrong(name, fmt.Sprintf("is wrong in entry %d: write key=value,key=value, with %%2C for a comma in a value and %%25 for a percent sign", n))
			break
		}
		all[k] = strings.ToValidUTF8(v, "\ufffd")
	}
	return all
}

// millis reads a time in milliseconds.
func (r *reader) millis(otherwise time.Duration, names ...string) time.Duration {
	name, text := r.first(names...)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if d := time.Duration(n) * time.Millisecond; err == nil && n <= int(mostTime/time.Millisecond) && d >= leastTime {
		return d
	}
	r.wrong(name, fmt.Sprintf("is no time in milliseconds: give a whole number from %d to %d", leastTime/time.Millisecond,
		mostTime/time.Millisecond))
	return otherwise
}

// sampler reads which traces are sent.
func (r *reader) sampler() sdktrace.Sampler {
	const name = "OTEL_TRACES_SAMPLER"
	ratio := func() sdktrace.Sampler {
		const arg = name + "_ARG"
		text := r.get(arg)
		if text == "" {
			return sdktrace.AlwaysSample()
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			r.wrong(arg, "is no share of traces: give a number from 0 to 1")
		}
		return sdktrace.TraceIDRatioBased(f)
	}
	switch r.get(name) {
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample())
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample())
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(ratio())
	case "always_on":
		return sdktrace.AlwaysSample()
	case "always_off":
		return sdktrace.NeverSample()
	case "traceidratio":
		return ratio()
	}
	r.wrong(name, "names a sampler that tend does not have: set it to always_on, always_off, traceidratio, or one of these after parentbased_")
	return nil
}
