package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/protocol"
)

const (
	// maxBody bounds a request, in bytes: what Anthropic takes.
	maxBody = 32 << 20
	// maxTime bounds a request with its answer.
	maxTime = 15 * time.Minute
	// mostAtOnce is how many requests of a key are passed on at a time, and mostOfAll of
	// all keys: those of one have a share of them, too.
	mostAtOnce, mostOfAll = 64, 512
)

// pathPrefix of the gateway.
const pathPrefix = "/api/gateway/"

// virtualKey is what a virtual key looks like in a header.
var virtualKey = lazyregexp.New(`\b(?:vk|sk)_[A-Za-z0-9_-]+`)

// keyHeaders are looked at first, in this order, then all others by name.
var keyHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"}

// shownKey is the first virtual key in a header; "": there is none.
func shownKey(h http.Header) string {
	names := slices.Clone(keyHeaders)
	for name := range h {
		if !slices.Contains(keyHeaders, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names[len(keyHeaders):])
	for _, name := range names {
		for _, value := range h[name] {
			if found := virtualKey.FindString(value); found != "" {
				return found
			}
		}
	}
	return ""
}

// refusal is an answer of the gateway's own.
type refusal struct {
	status int
	text   string
	wait   time.Duration // 0: no time is said
}

func (r *refusal) Error() string { return r.text }

func writeRefusal(w http.ResponseWriter, r *refusal) {
	if r.wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((r.wait+time.Second-1)/time.Second), 10))
	}
	writeJSON(w, r.status, map[string]string{"error": r.text})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	protocol.Inert(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails when the client has left
}

// pass answers a request to the gateway.
func (f *Face) pass(w http.ResponseWriter, r *http.Request) {
	if err := f.forward(w, r); err != nil {
		said, ok := errors.AsType[*refusal](err)
		if !ok {
			f.log.Error("gateway", slog.Any("err", err))
			said = &refusal{status: http.StatusInternalServerError, text: "the gateway cannot be used now; its log says why"}
		}
		writeRefusal(w, said)
	}
}

func (f *Face) forward(w http.ResponseWriter, r *http.Request) error {
	name, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), pathPrefix), "/")
	if !ok || rest == "" {
		return &refusal{status: http.StatusNotFound, text: "not found; call " + pathPrefix + "PROVIDER/PATH"}
	}
	shown := shownKey(r.Header)
	if in := r.URL.Query().Get("key"); shown == "" && virtualKey.FindString(in) == in {
		shown = in
	}
	if shown == "" {
		return &refusal{status: http.StatusUnauthorized, text: "Missing API key"}
	}
	key, err := f.keys.find(shown)
	switch {
	case err != nil:
		return err
	case key == nil:
		return &refusal{status: http.StatusUnauthorized, text: "Invalid API key"}
	}
	if !providerName.MatchString(name) {
		return &refusal{status: http.StatusBadRequest, text: "Unknown provider"}
	}
	to, err := f.providers.find(name)
	switch {
	case err != nil:
		return err
	case to == nil && known[cmp.Or(aliases[name], name)] == "":
		return &refusal{status: http.StatusBadRequest, text: "Unknown provider"}
	case to == nil:
		return &refusal{status: http.StatusInternalServerError, text: "Provider not configured"}
	case !matches(key.Rules.Providers, to.name):
		return &refusal{status: http.StatusForbidden, text: "this key may not use " + to.name}
	}
	if strings.ContainsAny(rest, "%\\") || slices.ContainsFunc(strings.Split(rest, "/"), func(s string) bool {
		return s == "" ||
			s == "." || s == ".."
	}) {
		return &refusal{status: http.StatusBadRequest, text: "the path has an empty segment, . or .., or an escape; write it plainly"}
	}
	if r.Method == http.MethodTrace || r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" {
		return &refusal{status: http.StatusNotImplemented,
			text: "the gateway passes on no TRACE, CONNECT or upgrade; send a plain request, or ask for a stream of events"}
	}
	holder := budget.Key(key.ID)
	budget.Of(r.Context()).For(holder)
	body, err := f.receive(w, r, key)
	if err != nil {
		return err
	}
	leave, err := f.enter(key)
	if err != nil {
		return err
	}
	defer leave()
	// From here on it is held once, and with it what is held of the answer.
	budget.Of(r.Context()).Release()
	held := f.budget.Charge(holder)
	defer held.Release()
	if err := held.Add(int64(len(body))); err != nil {
		return refuseBusy(err)
	}
	strict := len(key.Rules.Models) > 0 || key.Rules.TokensPerDay > 0
	if packed := r.Header.Get("Content-Encoding"); strict && packed != "" && packed != "identity" {
		return &refusal{status: http.StatusForbidden,
			text: "the body is compressed, and this key has rules about what is in it; send it as it is"}
	}
	query, err := queryFor(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if strict {
		err = apiOf(to.name).check(to.name, r.Method, rest, query, body)
	}
	var q question
	if err == nil {
		q, err = ask(r.Method, rest, body, strict)
	}
	if err == nil && q.model != "" && !matches(key.Rules.Models, q.model) {
		err = errForbidden
	}
	for _, model := range q.tools {
		if err == nil && !matches(key.Rules.Models, model) {
			err = errTool
		}
	}
	if err != nil {
		return &refusal{status: http.StatusForbidden, text: err.Error()}
	}
	most := q.reserved(len(q.body))
	if err := f.ledger.begin(key.ID, key.Rules.TokensPerDay, most); err != nil {
		if spent, ok := errors.AsType[*spentError](err); ok {
			return &refusal{status: http.StatusTooManyRequests, text: err.Error(), wait: spent.wait()}
		}
		return err
	}
	f.extend(key)
	f.proxy(w, r, &passed{
		held: held, key: key, to: to, shown: shown, rest: rest, query: query, strict: strict, q: q, most: most, began: f.now(),
	})
	return nil
}

// passed is a request that is passed on.
type passed struct {
	held  *budget.Charge
	key   *Key
	to    *provider
	shown string
	rest  string
	query url.Values
	// strict: the key has rules about models or tokens.
	strict bool
	q      question
	most   int64 // tokens that it was begun with
	left   bool  // it was given up before an answer came
	began  time.Time
	once   sync.Once
}

// log writes the line of a request, once.
func (f *Face) logOnce(p *passed, status int, c *counter) {
	p.once.Do(func() {
		line := Line{Key: p.key.ID, Provider: p.to.name, Model: p.q.model, Status: status, Millis: f.now().Sub(p.began).Milliseconds()}
		asked := int64(len(p.q.body))
		in, out := p.q.guess(asked, 0, 0)
		if c != nil {
			in, out = p.q.guess(asked, c.bytes, c.events)
		}
		switch {
		case c == nil && p.left: // without its answer, which was asked for all the same
			line.In, line.Estimated = in, in > 0
		case c == nil:
		case c.found && (c.ended || out <= c.out):
			line.In, line.Out = c.in, c.out
		case c.found: // not to the end, where the count is
			line.In, line.Out, line.Estimated = c.in, out, true
		case status < 300 && in+out > 0:
			line.In, line.Out, line.Estimated = in, out, true
		}
		if err := f.ledger.end(line, p.most); err != nil {
			f.log.Error("gateway: a request is not in the log", slog.Any("err", err))
		}
	})
}

func (f *Face) proxy(w http.ResponseWriter, r *http.Request, p *passed) {
	ctx, cancel := context.WithTimeout(r.Context(), maxTime)
	defer cancel()
	status := 0
	defer func() { f.logOnce(p, status, nil) }() // what had no answer
	proxy := httputil.ReverseProxy{
		Transport: tripper(func(r *http.Request) (*http.Response, error) { return f.trip(r, p) }), FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite:  func(pr *httputil.ProxyRequest) { rewrite(pr, p) },
		ModifyResponse: func(resp *http.Response) error {
			status = resp.StatusCode
			if status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired {
				return errRealKey // the answer may tell a part of it
			}
			if status == http.StatusSwitchingProtocols {
				return errAway // nobody asked for it
			}
			if packed := resp.Header.Get("Content-Encoding"); packed != "" && packed != "identity" {
				return errPacked // nobody asked for it, and the key cannot be found in it
			}
			tidy(resp.Header, p.to.key)
			resp.Body = &counter{
				held: p.held, body: hide(resp, p.to.key), stream: streams(resp.Header.Get("Content-Type")),
				done:    func(c *counter) { f.logOnce(p, status, c) },
				checked: time.Now(), valid: func() error { return f.stillValid(p) },
			}
			if p.q.asked && streams(resp.Header.Get("Content-Type")) {
				resp.Body = &unaskedUsage{body: resp.Body}
				resp.ContentLength = -1
				resp.Header.Del("Content-Length")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			switch {
			case r.Context().Err() != nil: // the client has left
				p.left = true
				return
			case errors.Is(err, errRealKey):
				f.log.Error("gateway: the provider refuses the key of this server", slog.String("provider", p.to.name))
			default:
				f.log.Warn("gateway", slog.String("provider", p.to.name), slog.String("err", strings.ReplaceAll(err.Error(), p.to.key, "…")))
				p.left = ctx.Err() != nil
				if !errors.Is(err, errPacked) {
					err = errAway
				}
			}
			status = http.StatusBadGateway
			writeRefusal(w, &refusal{status: status, text: err.Error()})
		},
	}
	proxy.ServeHTTP(finalWriter{w}, r.WithContext(ctx))
}

// stillValid is an error when the key of a request has been made void.
func (f *Face) stillValid(p *passed) error {
	if key, err := f.keys.find(p.shown); err == nil && key == nil {
		return errVoid
	}
	return nil
}

var (
	errVoid    = errors.New("the key was made void")
	errRealKey = errors.New("the provider refuses the key of this server; its operator has to set another")
	errAway    = errors.New("the provider does not answer; try again")
	errPacked  = errors.New("the provider's answer is compressed, which nobody asked for, and cannot be passed on; its operator has to turn that off")
)

// rewrite makes the request that the provider gets.
func rewrite(pr *httputil.ProxyRequest, p *passed) {
	out := pr.Out
	rest := p.rest
	if i := strings.LastIndexByte(p.to.base.Path, '/'); i >= 0 { // the SDKs put v1 before their paths, the base has it, too
		if after, ok := strings.CutPrefix(rest, p.to.base.Path[i+1:]+"/"); ok {
			rest = after
		}
	}
	u := *p.to.base
	u.Path += "/" + rest
	u.RawQuery = p.query.Encode()
	out.URL, out.Host = &u, ""
	out.Header = headersFor(pr.In.Header, p)
	if p.strict && len(p.q.body) > 0 {
		out.Header.Set("Content-Type", "application/json") // as it was read
	}
	out.TransferEncoding, out.Trailer = nil, nil // the body was read, and what came after it is not passed on
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(p.q.body)), int64(len(p.q.body))
	out.GetBody = nil
	if len(p.q.body) == 0 {
		out.Body = http.NoBody
	}
}

// refuseBusy is the refusal of what the budget has no room for.
func refuseBusy(err error) error {
	busy, ok := errors.AsType[*budget.BusyError](err)
	switch {
	case !ok:
		return err
	case busy.Holder == (budget.Holder{}):
		return &refusal{status: http.StatusServiceUnavailable, text: busy.Error(), wait: time.Second}
	}
	return &refusal{status: http.StatusTooManyRequests, text: busy.Error(), wait: time.Second}
}

// enter bounds how many requests are passed on at a time, and in a minute. The body has
// arrived: one that does not come holds no place.
func (f *Face) enter(key *Key) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	holder := budget.Key(key.ID)
	open := f.places.UsedBy(holder)
	place := f.places.Charge(holder)
	err = place.Add(1)
	switch busy, _ := errors.AsType[*budget.BusyError](err); {
	case busy != nil && busy.Holder == budget.Holder{}:
		return nil, &refusal{status: http.StatusServiceUnavailable,
			text: fmt.Sprintf("%d requests are being passed on, and no more may be; try again", f.places.Used()), wait: time.Second}
	case err != nil, open >= mostAtOnce:
		place.Release()
		return nil, &refusal{status: http.StatusTooManyRequests,
			text: fmt.Sprintf("%d requests of this key are being passed on, and no more may be; try again", open), wait: time.Second}
	}
	if wait := f.visitsOf(key).asked.admit(f.now(), key.Rules.PerMinute); wait > 0 {
		place.Release()
		return nil, &refusal{status: http.StatusTooManyRequests, text: fmt.Sprintf("this key may be used %d times a minute; try again",
			key.Rules.PerMinute), wait: wait}
	}
	return place.Release, nil
}

// visits are the requests of a key.
type visits struct {
	arriving []*arrival
	asked    pace
	reported pace
	extended time.Time
}

// visitsOf are those of a key. f.mu is held.
func (f *Face) visitsOf(key *Key) *visits {
	v := f.visits[key.ID]
	if v == nil {
		v = new(visits)
		f.visits[key.ID] = v
	}
	return v
}

// pace is when the next one could begin if all had come evenly.
type pace struct{ next time.Time }

// admit lets one begin, or says how long to wait: a minute's worth may come at once.
func (p *pace) admit(now time.Time, perMinute int) time.Duration {
	if perMinute <= 0 {
		return 0
	}
	each := time.Minute / time.Duration(perMinute)
	// It is never in the future, but for a clock that was set back.
	if floor := now.Add(-time.Minute); p.next.Before(floor) || p.next.After(now) {
		p.next = floor
	}
	if next := p.next.Add(each); next.After(now) {
		return next.Sub(now)
	}
	p.next = p.next.Add(each)
	return 0
}
