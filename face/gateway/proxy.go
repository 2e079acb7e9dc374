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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/face"
)

const (
	// maxBody bounds a request, in bytes: what Anthropic takes.
	maxBody = 32 << 20
	// maxTime bounds a request with its answer.
	maxTime = 15 * time.Minute
	// mostAtOnce is how many requests of a key are passed on at a time, and mostOfAll of
	// all keys.
	mostAtOnce, mostOfAll = 64, 512
)

// pathPrefix of the gateway.
const pathPrefix = "/api/gateway/"

// virtualKey is what a virtual key looks like in a header.
var virtualKey = regexp.MustCompile(`\b(?:vk|sk)_[A-Za-z0-9_-]+`)

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
	face.Inert(w.Header())
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
	if strings.ContainsAny(rest, "%\\") || slices.ContainsFunc(strings.Split(rest, "/"), func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return &refusal{status: http.StatusBadRequest, text: "the path has an empty segment, . or .., or an escape; write it plainly"}
	}
	leave, err := f.enter(key)
	if err != nil {
		return err
	}
	defer leave()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body has more than %d bytes", maxBody)}
		}
		return &refusal{status: http.StatusBadRequest, text: "the body was not received to its end"}
	}
	strict := len(key.Rules.Models) > 0 || key.Rules.TokensPerDay > 0
	q, err := ask(r.Method, rest, body, strict)
	if err == nil && q.model != "" && !matches(key.Rules.Models, q.model) {
		err = errForbidden
	}
	if err != nil {
		return &refusal{status: http.StatusForbidden, text: err.Error()}
	}
	if err := f.ledger.begin(key.ID, key.Rules.TokensPerDay, q.most); err != nil {
		if spent, ok := errors.AsType[*spentError](err); ok {
			return &refusal{status: http.StatusTooManyRequests, text: err.Error(), wait: spent.wait()}
		}
		return err
	}
	f.extend(key)
	f.proxy(w, r, &passed{key: key, to: to, shown: shown, rest: rest, body: body, q: q, began: f.now()})
	return nil
}

// passed is a request that is passed on.
type passed struct {
	key   *Key
	to    *provider
	shown string
	rest  string
	body  []byte
	q     question
	began time.Time
	once  sync.Once
}

// log writes the line of a request, once.
func (f *Face) logOnce(p *passed, status int, c *counter) {
	p.once.Do(func() {
		line := Line{Key: p.key.ID, Provider: p.to.name, Model: p.q.model, Status: status, Millis: f.now().Sub(p.began).Milliseconds()}
		switch {
		case c != nil && c.found:
			line.In, line.Out = c.in, c.out
		case c != nil && status < 300 && p.q.model != "":
			line.In, line.Out, line.Estimated = int64(len(p.body))/4, c.bytes/4, true
		}
		if err := f.ledger.end(line, p.q.most); err != nil {
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
		Transport: f.transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(pr *httputil.ProxyRequest) { rewrite(pr, p) },
		ModifyResponse: func(resp *http.Response) error {
			status = resp.StatusCode
			if status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired {
				return errRealKey // the answer may tell a part of it
			}
			for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Www-Authenticate", "Alt-Svc"} {
				resp.Header.Del(name)
			}
			face.Inert(resp.Header)
			resp.Header.Set("X-Accel-Buffering", "no") // a proxy in front must not hold back a stream
			resp.Body = &counter{body: resp.Body, stream: streams(resp.Header.Get("Content-Type")), done: func(c *counter) { f.logOnce(p, status, c) }}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			switch {
			case r.Context().Err() != nil:
				return // the client has left
			case errors.Is(err, errRealKey):
				f.log.Error("gateway: the provider refuses the key of this server", slog.String("provider", p.to.name))
			default:
				f.log.Warn("gateway", slog.String("provider", p.to.name), slog.String("err", strings.ReplaceAll(err.Error(), p.to.key, "…")))
				err = errAway
			}
			status = http.StatusBadGateway
			writeRefusal(w, &refusal{status: status, text: err.Error()})
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

var (
	errRealKey = errors.New("the provider refuses the key of this server; its operator has to set another")
	errAway    = errors.New("the provider does not answer; try again")
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
	query, err := url.ParseQuery(pr.In.URL.RawQuery)
	if err == nil {
		query.Del("path") // of the seed's router
		if virtualKey.MatchString(query.Get("key")) {
			query.Set("key", p.to.key)
		}
		u.RawQuery = query.Encode()
	}
	out.URL, out.Host = &u, ""
	for name, values := range out.Header {
		for i, value := range values {
			out.Header[name][i] = strings.ReplaceAll(value, p.shown, p.to.key)
		}
	}
	for _, name := range []string{"Cookie", "Origin", "Referer", "Accept-Encoding", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip"} {
		out.Header.Del(name) // the transport compresses by itself
	}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(p.body)), int64(len(p.body))
	out.GetBody = nil
	if len(p.body) == 0 {
		out.Body = http.NoBody
	}
}

// enter bounds how many requests are passed on at a time, and in a minute.
func (f *Face) enter(key *Key) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all >= mostOfAll {
		return nil, &refusal{status: http.StatusServiceUnavailable, text: fmt.Sprintf("%d requests are being passed on, and no more may be; try again", f.all), wait: time.Second}
	}
	v := f.visits[key.ID]
	if v == nil {
		v = new(visits)
		f.visits[key.ID] = v
	}
	if v.open >= mostAtOnce {
		return nil, &refusal{status: http.StatusTooManyRequests, text: fmt.Sprintf("%d requests of this key are being passed on, and no more may be; try again", v.open), wait: time.Second}
	}
	if wait := v.take(f.now(), key.Rules.PerMinute); wait > 0 {
		return nil, &refusal{status: http.StatusTooManyRequests, text: fmt.Sprintf("this key may be used %d times a minute; try again", key.Rules.PerMinute), wait: wait}
	}
	v.open++
	f.all++
	return func() {
		f.mu.Lock()
		v.open--
		f.all--
		f.mu.Unlock()
	}, nil
}

// visits are the requests of a key.
type visits struct {
	open     int
	next     time.Time // when the next one could begin if all had come at an even pace
	extended time.Time
}

// take lets a request begin, or says how long to wait: a minute's worth may come at once.
func (v *visits) take(now time.Time, perMinute int) time.Duration {
	if perMinute <= 0 {
		return 0
	}
	each := time.Minute / time.Duration(perMinute)
	if floor := now.Add(-time.Minute); v.next.Before(floor) {
		v.next = floor
	}
	if next := v.next.Add(each); next.After(now) {
		return next.Sub(now)
	}
	v.next = v.next.Add(each)
	return 0
}
