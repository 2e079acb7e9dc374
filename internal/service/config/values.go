package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tend-run/tend/internal/lib/saferegexp"
	"github.com/tend-run/tend/process"
)

// A scalar is a type that is written as one word. The error of parse completes
// "PATH …".
type scalar interface {
	parse(text string) error
}

// Duration is a length of time.
type Duration time.Duration

func (d *Duration) parse(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		ns := n * float64(time.Second)
		if n < 0 || math.IsNaN(n) || ns > float64(math.MaxInt64/2) {
			return fmt.Errorf("is %s; a time is not negative, and not longer than a century", text)
		}
		*d = Duration(ns)
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("is %q, which is no duration; write 500ms, 2s or 1m30s", text)
	}
	if v < 0 {
		return fmt.Errorf("is %s; a time is not negative", text)
	}
	*d = Duration(v)
	return nil
}

// Std is d as the standard library has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Size is a number of bytes.
type Size int64

var sizeUnits = []struct {
	name string
	n    int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

func (s *Size) parse(text string) error {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := cutSuffixFold(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.n
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || math.IsNaN(n) || n*float64(unit) >= float64(math.MaxInt64) {
		return fmt.Errorf("is %q, which is no size; write bytes, or 512MiB, 2GiB", text)
	}
	*s = Size(n * float64(unit))
	return nil
}

func cutSuffixFold(s, suffix string) (string, bool) {
	if len(s) < len(suffix) || !strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s, false
	}
	return s[:len(s)-len(suffix)], true
}

func (s Size) String() string {
	for i := 4; i >= 0; i-- {
		if u := sizeUnits[i]; s >= Size(u.n) && int64(s)%u.n == 0 {
			return strconv.FormatInt(int64(s)/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Signal is a signal by its Linux number.
type Signal int

func (s *Signal) parse(text string) error {
	if n, err := strconv.Atoi(text); err == nil && process.SignalName(n) != "" {
		*s = Signal(n)
		return nil
	}
	n := process.SignalNumber(text)
	if n == 0 {
		return fmt.Errorf("is %q, which is no signal; write TERM, INT, QUIT or the like", text)
	}
	*s = Signal(n)
	return nil
}

func (s Signal) String() string { return strings.TrimPrefix(process.SignalName(int(s)), "SIG") }

// maxPattern bounds a regular expression, in bytes.
const maxPattern = 1000

// Pattern is an RE2 expression; "": none.
type Pattern string

func (p *Pattern) parse(text string) error {
	if text == "" || len(text) > maxPattern {
		return fmt.Errorf("has %d bytes; an expression has 1 to %d", len(text), maxPattern)
	}
	if _, err := saferegexp.Plain(text); err != nil {
		return err
	}
	*p = Pattern(text)
	return nil
}

// Address is HOST:PORT; "": none.
type Address string

func (a *Address) parse(text string) error {
	host, port, err := splitAddress(text)
	if err != nil {
		return err
	}
	*a = Address(host + ":" + port)
	return nil
}

// splitAddress reads PORT, :PORT and HOST:PORT. Without a host it is localhost.
func splitAddress(text string) (host, port string, err error) {
	host, port = "localhost", text
	if at := strings.LastIndexByte(text, ':'); at >= 0 {
		if host, port = text[:at], text[at+1:]; host == "" {
			host = "localhost"
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("is %q, which has no port; write PORT or HOST:PORT, with a port from 1 to 65535", text)
	}
	if host != "localhost" {
		ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err == nil && ip.Is6() && !strings.ContainsAny(host, "[]") {
			return "", "", fmt.Errorf("is %q; an address of IPv6 stands in brackets: [::1]:3000", text)
		}
		if err != nil || ip.Zone() != "" || ip.Is6() != strings.HasPrefix(host, "[") ||
			strings.HasPrefix(host, "[") != strings.HasSuffix(host, "]") {
			return "", "", fmt.Errorf("is for the host %q; a service listens on localhost, 127.0.0.1, [::1] or another address of this machine",
				host)
		}
	}
	return host, port, nil
}

// URL is where a probe asks; "": nowhere.
type URL string

func (u *URL) parse(text string) error {
	whole := text
	if !strings.Contains(text, "://") {
		whole = "http://" + text
		if strings.HasPrefix(text, ":") {
			whole = "http://localhost" + text
		} else if port, _, _ := strings.Cut(text, "/"); port != "" && strings.Trim(port, "0123456789") == "" {
			whole = "http://localhost:" + text
		}
	}
	v, err := url.Parse(whole)
	switch {
	case err != nil || v.Host == "":
		return fmt.Errorf("is %q, which is no URL; write http://localhost:3000/health or :3000/health", text)
	case v.Scheme != "http":
		return fmt.Errorf("is %q; a probe speaks http alone (use exec with curl for others)", text)
	case v.User != nil || v.Fragment != "":
		return fmt.Errorf("is %q; a URL with a user or a fragment is not asked for (use headers)", text)
	}
	port := v.Port()
	if port == "" {
		port = "80"
	}
	host, port, err := splitAddress(strings.TrimSuffix(v.Host, ":"+v.Port()) + ":" + port)
	if err != nil {
		return err
	}
	v.Host = host + ":" + port
	if v.Path == "" {
		v.Path = "/"
	}
	*u = URL(v.String())
	return nil
}

// Address returns HOST:PORT of the URL.
func (u URL) Address() string {
	v, err := url.Parse(string(u))
	if err != nil {
		return ""
	}
	return v.Host
}

// Cron says at which times something happens.
type Cron string

func (c *Cron) parse(text string) error {
	if len(text) > maxPattern {
		return errors.New("is too long for a cron expression")
	}
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return errors.New("has a time zone; give it as zone")
	}
	if _, err := parseCron(text); err != nil {
		return fmt.Errorf("is no cron expression: %w", err)
	}
	*c = Cron(text)
	return nil
}

// parseCron reads an expression. The library panics for some that are none.
func parseCron(text string) (s cron.Schedule, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	return cron.ParseStandard(text)
}

// Next returns the first time after t that the schedule names, and the zero time if
// there is none within five years.
func (s *Schedule) Next(t time.Time) time.Time {
	times, err := parseCron(string(s.Cron))
	if err != nil {
		return time.Time{}
	}
	zone, err := time.LoadLocation(string(s.Zone))
	if err != nil {
		return time.Time{}
	}
	return times.Next(t.In(zone))
}

// Zone is the name of a time zone.
type Zone string

func (z *Zone) parse(text string) error {
	if _, err := time.LoadLocation(text); err != nil || text == "" {
		return fmt.Errorf("is %q, which is no time zone that this machine knows; write Europe/Berlin, UTC or Local", text)
	}
	*z = Zone(text)
	return nil
}

// Command is what runs: Argv, or Line for /bin/sh -c. Both empty: nothing.
type Command struct {
	Argv []string
	Line string
}

// Empty reports whether there is no command.
func (c *Command) Empty() bool { return len(c.Argv) == 0 && c.Line == "" }

// String is the command as a person would read it.
func (c Command) String() string {
	spec := process.Spec{Argv: c.Argv, Shell: c.Line}
	return spec.Command()
}

// Strings is a list that may be written as one word.
type Strings []string

// maxProject bounds the name of a project, in bytes.
const maxProject = 40

// ProjectName makes a name for the project of a directory that no other has.
func ProjectName(dir string, taken func(string) bool) string {
	base := strings.Map(func(r rune) rune {
		if r < 128 && badName("a"+string(r), "") == "" {
			return r
		}
		return -1
	}, filepath.Base(dir))
	base = cmp.Or(strings.TrimLeft(base[:min(len(base), maxProject-4)], "-_."), "project")
	name := base
	for n := 2; taken(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}
