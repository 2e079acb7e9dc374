package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tend-run/tend/internal/observe"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/process"
)

const (
	maxBody   = 64 << 10 // bytes of an answer that are read
	maxHeader = 64 << 10 // bytes of its headers
	maxText   = 300      // bytes of what a failure says
	// late is how much longer than its timeout a probe may take until it is in doubt.
	late = 250 * time.Millisecond
)

// Target is a run of a service.
type Target struct {
	// Process of the run; needed.
	Process process.Process
	// Leader is its pid, and Session the session in which it was started; needed for HTTP and
	// TCP.
	Leader, Session int
	// Tree returns the processes of the run, where the leader's session and control group do
	// not show them. nil: they do.
	Tree func() []int
	// Dial connects to addresses in the network of the service. nil: the machine's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Manager and Spec are for commands: where they run, and with what directory,
	// environment and user.
	Manager process.Manager
	Spec    process.Spec
}

// Answer is the result of a probe.
type Answer struct {
	OK   bool
	Text string // why not, for people; it may be the service's own words
	// Doubt: the prober itself had no time.
	Doubt bool
}

// Ask puts one question. It returns within the timeout of the rule, or with ctx.
func Ask(ctx context.Context, rule *config.Probe, t *Target) Answer {
	begin := time.Now()
	limit := rule.Timeout.Std()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	switch {
	case rule.HTTP != nil:
		err = t.http(within, rule)
	case rule.TCP != "":
		err = t.tcp(within, rule)
	case !rule.Exec.Empty():
		err = t.exec(within, rule)
	default:
		err = errors.New("a line of output is waited for by Line")
	}
	if err == nil {
		return Answer{OK: true}
	}
	a := Answer{Text: err.Error(), Doubt: ctx.Err() != nil || time.Since(begin) > limit+max(late, limit/4)}
	if within.Err() != nil && ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, within.Err())) {
		a.Text = fmt.Sprintf("no answer within %v", rule.Timeout)
	}
	if len(a.Text) > maxText {
		a.Text = strings.ToValidUTF8(a.Text[:maxText], "") + "…"
	}
	return a
}

// Line waits until a line of output of a run matches, from its first byte on, for as
// long as ctx. An error is that of the wait; false: the run ended before.
func Line(ctx context.Context, p process.Process, pattern config.Pattern) (bool, error) {
	res, err := p.Wait(ctx, process.Until{Match: string(pattern)})
	return res.Met, err
}

// addresses are where HOST:PORT leads to. localhost is 127.0.0.1, and ::1 if nobody
// listens there.
func addresses(hostPort string) ([]netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	hosts := []string{host}
	if host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	var all []netip.AddrPort
	for _, h := range hosts {
		at, err := netip.ParseAddrPort(net.JoinHostPort(h, port))
		if err != nil {
			return nil, err
		}
		if at.Addr().IsUnspecified() { // as a client means it
			at = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port())
		}
		all = append(all, at)
	}
	return all, nil
}

// each tries the addresses in turn until one answers, and is the service's.
func (t *Target) each(rule *config.Probe, hostPort string, try func(netip.AddrPort) error) error {
	all, err := addresses(hostPort)
	if err != nil {
		return err
	}
	var failed error
	for _, at := range all {
		err := try(at)
		if err == nil && !rule.Anyone {
			err = t.own(at)
		}
		if err == nil {
			return nil
		}
		// The first one says most, unless nobody was there.
		if failed == nil || errors.Is(failed, syscall.ECONNREFUSED) {
			failed = err
		}
	}
	return failed
}

// own reports whether the tree of the service gets the connections to an address.
func (t *Target) own(at netip.AddrPort) error {
	if t.Dial == nil {
		ours, err1 := os.Readlink("/proc/self/ns/net")
		its, err2 := os.Readlink("/proc/" + strconv.Itoa(t.Leader) + "/ns/net")
		if err1 == nil && err2 == nil && ours != its { // what answered is of another network
			return fmt.Errorf("%v is asked in the network of the machine, and the service has one of its own", at)
		}
	}
	var who observe.Answerer
	var err error
	if t.Tree != nil {
		who, err = observe.AnsweringOf(t.Tree(), t.Leader, at)
	} else {
		who, err = observe.Answering(t.Leader, t.Session, at)
	}
	if err != nil {
		return fmt.Errorf("who answers at %v is not known: %w", at, err)
	}
	if !who.Listening || !who.Ours {
		return fmt.Errorf("%v answers, but the port %v", at, who)
	}
	return nil
}

// Elsewhere returns the addresses on which the service listens. asked: one of them is where the
// rule, of HTTP or TCP, asks.
func (t *Target) Elsewhere(ctx context.Context, rule *config.Probe) (others []string, asked bool, err error) {
	where := string(rule.TCP)
	if rule.HTTP != nil {
		u, err := url.Parse(string(rule.HTTP.URL))
		if err != nil {
			return nil, false, err
		}
		where = u.Host
	}
	all, err := addresses(where)
	if err != nil {
		return nil, false, err
	}
	for _, at := range all {
		if t.own(at) == nil {
			return nil, true, nil
		}
	}
	lister, ok := t.Process.(process.PortLister)
	if !ok {
		return nil, false, nil
	}
	listening, err := lister.Listening(ctx)
	for _, l := range listening {
		others = append(others, l.Address)
	}
	return others, false, err
}

func (t *Target) dial(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	dial := t.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	c, err := dial(ctx, "tcp", at.String())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("nobody listens at %v: %w", at, syscall.ECONNREFUSED)
	}
	return c, err
}

func (t *Target) tcp(ctx context.Context, rule *config.Probe) error {
	return t.each(rule, string(rule.TCP), func(at netip.AddrPort) error {
		c, err := t.dial(ctx, at)
		if err == nil {
			c.Close()
		}
		return err
	})
}

func (t *Target) http(ctx context.Context, rule *config.Probe) error {
	u, err := url.Parse(string(rule.HTTP.URL))
	if err != nil {
		return err
	}
	return t.each(rule, u.Host, func(at netip.AddrPort) error { return t.get(ctx, rule.HTTP, at) })
}

// get makes one request on a connection of its own.
func (t *Target) get(ctx context.Context, rule *config.HTTP, at netip.AddrPort) error {
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx, at) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(rule.URL), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "tend-probe")
	for k, v := range rule.Headers {
		if req.Header.Set(k, v); strings.EqualFold(k, "Host") {
			req.Host = v
		}
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if len(rule.Status) == 0 && (res.StatusCode < 200 || res.StatusCode > 299) || len(rule.Status) > 0 &&
		!slices.Contains(rule.Status, res.StatusCode) {
		return fmt.Errorf("%s answered with status %d", rule.URL, res.StatusCode)
	}
	if rule.Body == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return err
	}
	expr, err := regexp.Compile(string(rule.Body))
	if err != nil {
		return err
	}
	if !expr.Match(body) {
		return fmt.Errorf("the answer of %s does not match %q", rule.URL, rule.Body)
	}
	return nil
}

const (
	// endTime bounds how long the end of a command is waited for.
	endTime = 5 * time.Second
	// retryAfter is how soon it is ended again when the keeper could not be reached.
	retryAfter = 50 * time.Millisecond
)

// exec runs a command, and leaves nothing of it.
func (t *Target) exec(ctx context.Context, rule *config.Probe) error {
	spec := t.Spec
	spec.ID, spec.Name, spec.Tag = "", "", ""
	spec.Argv, spec.Shell = rule.Exec.Argv, rule.Exec.Line
	spec.Stdin, spec.PTY, spec.KillWithoutReaders = process.StdinNull, nil, 0
	// It ends even if nobody is left to wait for it.
	spec.Timeout, spec.TimeoutScope = rule.Timeout.Std()+time.Second, process.ScopeTree
	spec.Retention = process.Retention{Limit: process.MinRetention, TTL: time.Minute}
	p, err := t.Manager.Start(ctx, spec)
	if err != nil {
		return err
	}
	res, err := p.Wait(ctx, process.Until{})
	// Another context: what was started is ended, also after a timeout.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if kerr := kill(after, p); kerr != nil && !errors.Is(kerr, process.ErrExited) {
		err = errors.Join(err, kerr)
	}
	said := LastLine(after, p)
	_ = p.Remove(after) // else its TTL does
	switch {
	case err != nil:
		return err
	case res.Exit == nil:
		return errors.New("the command has not ended")
	case res.Exit.Code == 0 && res.Exit.Signal == 0 && !res.Exit.Lost():
		return nil
	case said != "":
		return fmt.Errorf("%v: %s", res.Exit, said)
	}
	return fmt.Errorf("%v", res.Exit)
}

// kill kills a command with all that it has left. A keeper that is being replaced meanwhile
// has not done it, and the next one is asked.
func kill(ctx context.Context, p process.Process) error {
	for {
		_, err := p.Kill(ctx)
		if !errors.Is(err, process.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return err
		}
	}
}

// LastLine returns the last line that a finished command has written to stderr, or else
// to stdout: which of the two was first, nobody can tell.
func LastLine(ctx context.Context, p process.Process) string {
	r, err := p.Read(ctx, process.ReadOptions{NoFollow: true})
	if err != nil {
		return ""
	}
	defer r.Close()
	var said, complained []byte
	for {
		ev, ok, err := r.Next()
		if err != nil || !ok {
			break
		}
		if ev.Kind == process.EventOutput {
			tail := &said
			if ev.Stream == process.Stderr {
				tail = &complained
			}
			*tail = append(*tail, ev.Data...)
			*tail = (*tail)[max(0, len(*tail)-4096):]
		}
	}
	for _, tail := range [][]byte{complained, said} {
		text := strings.TrimSpace(strings.ToValidUTF8(string(tail), ""))
		if line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]); line != "" {
			return line
		}
	}
	return ""
}
