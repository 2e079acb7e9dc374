package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Config says how to reach a model, and how long to wait for it.
type Config struct {
	// BaseURL of the provider's API; empty: the provider's own. For Anthropic with or
	// without /v1, for OpenAI with it. If {base}/v1/... is not found, {base}/... is tried,
	// and the reverse, because gateways differ.
	BaseURL   string
	Key       string        // appears in no error and no transcript
	Model     string        // required
	HTTP      *http.Client  // nil: one that honours the proxies of the environment. Redirects are never followed
	MaxTokens int           // of one reply; default 8,192
	Idle      time.Duration // longest wait for the next byte; default 90 s
	Reply     time.Duration // longest time of one reply; default 5 min
	Retries   int           // further tries of one request; default 4; negative: none
	Backoff   time.Duration // before the first of them, doubled each time up to 30 s, less up to a quarter; default 1 s
}

const (
	maxBackoff    = 30 * time.Second
	maxRetryAfter = 2 * time.Minute // a provider that asks for more is not available
	maxReplyBytes = 16 << 20        // of one stream
	maxErrorBytes = 64 << 10        // of the body of an error
	maxCalls      = 16              // in one reply; further ones are not run
	maxAnswer     = 4 << 20         // of the text and the calls of one reply
)

// one carries out a single try.
type one interface {
	once(ctx context.Context, hc *exchange, r Request, live func(Delta)) (Reply, error)
}

// client is a Model: it repeats tries, and ends those that stand still.
type client struct {
	Config
	one one
}

func newClient(c Config) (*client, error) {
	if c.Model == "" {
		return nil, errors.New("model: required: the name of the model, as its provider calls it")
	}
	if c.BaseURL != "" {
		u, err := url.Parse(c.BaseURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("base_url: %q is no http or https URL", c.BaseURL)
		}
		if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, errors.New("base_url: a user, a query or a fragment has no place in it; give the key by its environment variable")
		}
	}
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	hc := *c.HTTP
	hc.Timeout = 0 // Idle and Reply bound it
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTP = &hc
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Idle, 90*time.Second)
	def(&c.Reply, 5*time.Minute)
	def(&c.Backoff, time.Second)
	if c.MaxTokens <= 0 {
		c.MaxTokens = 8192
	}
	if c.Retries == 0 {
		c.Retries = 4
	}
	return &client{Config: c}, nil
}

var (
	errIdle = errors.New("nothing came for too long")
	errSlow = errors.New("the reply takes too long")
)

// Ask implements Model.
func (c *client) Ask(ctx context.Context, r Request, live func(Delta)) (Reply, error) {
	if live == nil {
		live = func(Delta) {}
	}
	var used Usage
	pause := c.Backoff
	for try := 0; ; try++ {
		reply, after, err := c.try(ctx, r, live)
		used.Add(reply.Usage)
		reply.Usage = used
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return Reply{Usage: used}, ctx.Err()
		}
		var e *ModelError
		if !errors.As(err, &e) {
			e = &ModelError{Kind: Unavailable, Err: err}
		}
		e = &ModelError{Kind: e.Kind, Status: e.Status, Message: c.clean(e.Message), Err: e.Err} // errLarge is everybody's
		if e.Kind > Broken || try >= c.Retries {
			return Reply{Usage: used}, e
		}
		wait := pause - time.Duration(rand.Int64N(int64(pause)/4+1))
		pause = min(2*pause, max(maxBackoff, c.Backoff))
		if after >= 0 {
			wait = after
		}
		end, bounded := ctx.Deadline()
		if after > maxRetryAfter || bounded && time.Until(end) < wait {
			return Reply{Usage: used}, e
		}
		live(Delta{Again: true})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return Reply{Usage: used}, ctx.Err()
		}
	}
}

// try makes one request. after is what the provider asks to wait, -1 if it does
// not say.
func (c *client) try(ctx context.Context, r Request, live func(Delta)) (reply Reply, after time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(c.Idle, func() { cancel(errIdle) })
	defer idle.Stop()
	slow := time.AfterFunc(c.Reply, func() { cancel(errSlow) })
	defer slow.Stop()
	hc := &exchange{client: c.HTTP, alive: func() { idle.Reset(c.Idle) }, after: -1}
	reply, err = c.one.once(ctx, hc, r, live)
	if err == nil {
		err = reply.check()
	}
	if cause := context.Cause(ctx); err != nil && (cause == errIdle || cause == errSlow) {
		err = &ModelError{Kind: Broken, Err: cause}
	}
	if err != nil {
		reply.Usage.estimate(r, reply)
		if hc.status == 0 {
			reply.Usage = Usage{} // it was never read
		}
		return Reply{Usage: reply.Usage}, hc.after, err
	}
	reply.Usage.estimate(r, reply)
	return reply, hc.after, nil
}

// bound is how many tokens a reply may have, where its model allows most.
func (r Request) bound(most int) int {
	if r.MaxTokens > 0 {
		return min(r.MaxTokens, most)
	}
	return most
}

// check refuses what is no whole reply.
func (r *Reply) check() error {
	if r.Stop == "" {
		return &ModelError{Kind: Broken, Message: "it has no reason to stop"}
	}
	return nil
}

// estimate fills in what the provider has not counted: budgets hold for those
// that count nothing as well.
func (u *Usage) estimate(r Request, reply Reply) {
	if u.read() <= 0 {
		n := len(r.System)
		for _, m := range r.Messages {
			n += m.size()
		}
		u.Input = int64(n / 4)
	}
	if u.Output <= 0 {
		n := Message{Blocks: reply.Blocks}.size()
		u.Output = int64(n / 4)
	}
}

// clean takes the key out of what a provider says, and bounds it.
func (c *client) clean(s string) string {
	if c.Key != "" {
		s = strings.ReplaceAll(s, c.Key, "[key]")
	}
	return clip(strings.ToValidUTF8(s, "�"), 500)
}

// atPlaces asks at the first of the addresses that knows the path: a base may
// hold the version of the API or not, and a gateway may add it by itself. It
// remembers which one that was.
type atPlaces struct {
	urls []*url.URL
	mu   sync.Mutex
	good int // guarded by mu: index in urls
}

func newPlaces(base, path string) (*atPlaces, error) {
	bare := strings.TrimSuffix(base, "/v1")
	all := []string{base + "/v1" + path, base + path}
	if bare != base {
		all = []string{base + path, bare + path}
	}
	p := &atPlaces{}
	for _, s := range all {
		u, err := url.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("base_url: %w", err)
		}
		p.urls = append(p.urls, u)
	}
	return p, nil
}

func (p *atPlaces) ask(hc *exchange, send func() (Reply, error)) (Reply, error) {
	p.mu.Lock()
	good := p.good
	p.mu.Unlock()
	hc.place = p.urls[good]
	reply, err := send()
	var e *ModelError
	if !errors.As(err, &e) || e.Status != http.StatusNotFound && e.Status != http.StatusMethodNotAllowed {
		return reply, err
	}
	other := (good + 1) % len(p.urls)
	hc.place = p.urls[other]
	again, err2 := send()
	if errors.As(err2, &e) && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed) {
		return reply, err // neither: what the first one says is meant
	}
	p.mu.Lock()
	p.good = other
	p.mu.Unlock()
	return again, err2
}
