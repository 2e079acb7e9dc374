package healing

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

// taker is a URL that takes what it likes.
type taker struct {
	mu     sync.Mutex
	down   bool
	calls  int
	taken  []report
	bearer string
}

func (k *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.down {
		http.Error(w, "no", http.StatusBadGateway)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var one report
	if r.Method != http.MethodPost || json.Unmarshal(body, &one) != nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	k.bearer = r.Header.Get("Authorization")
	k.taken = append(k.taken, one)
}

func (k *taker) with(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// A status is sent until it is taken, also by the next server; only the newest is.
func TestAReportIsSentUntilItIsTaken(t *testing.T) {
	k := &taker{down: true}
	url := httptest.NewServer(k)
	defer url.Close()
	d := &declaration{Healer: &config.Healer{Report: &config.Report{URL: url.URL}}, ReportKey: "vk_1"}
	s := store{t.TempDir()}
	log := slog.New(slog.DiscardHandler)
	open := func() (*reporter, func()) {
		r := newReporter(s, nil, log)
		proctest.Must(t, r.load())
		r.to(d)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.run(ctx) })
		return r, func() { cancel(); wg.Wait() }
	}
	r, end := open()
	r.tell(d, "healing", "")
	calls := func() (n int) { k.with(func() { n = k.calls }); return n }
	proctest.Eventually(t, "it is sent again", func() bool { return calls() >= 2 })
	r.tell(d, "broken", "nothing helped")
	end()
	k.with(func() { k.down = false })
	r, end = open()
	// Whoever dies between the answer and its record sends it once more.
	sent := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.newest.Sent
	}
	proctest.Eventually(t, "it is taken", sent)
	end()
	k.with(func() {
		if len(k.taken) != 1 || k.taken[0].Status != "broken" || k.taken[0].Error != "nothing helped" || k.bearer != "Bearer vk_1" {
			t.Errorf("it took %+v with %q", k.taken, k.bearer)
		}
	})
	r, end = open()
	first := k.taken[0].Sequence
	r.tell(d, "broken", "nothing helped") // the same is not said twice
	r.tell(d, "ready", "")
	proctest.Eventually(t, "the next one is taken", sent)
	end()
	if k.taken[1].Status != "ready" || k.taken[1].Sequence <= first {
		t.Errorf("then it took %+v", k.taken)
	}
}

// trip is a network to one URL.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The URL is down for an hour, in each of the ways in which one can be, and the server is
// killed in the midst of it: it is asked at most once a minute, and what it takes then is the
// newest status alone, once.
func TestTheURLOfReportsIsDownForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries int
		var taken []report
		up := time.Now().Add(time.Hour)
		client := &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			answer := func(code int) (*http.Response, error) {
				return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: http.NoBody, Request: r}, nil
			}
			if tries++; time.Now().Before(up) {
				switch tries % 4 {
				case 0:
					return nil, errors.New("connection refused")
				case 1:
					<-r.Context().Done() // it does not answer
					return nil, r.Context().Err()
				case 2:
					return answer(http.StatusTooManyRequests)
				}
				return answer(http.StatusFound)
			}
			var one report
			proctest.Must(t, json.NewDecoder(r.Body).Decode(&one))
			taken = append(taken, one)
			return answer(http.StatusOK)
		})}
		d := &declaration{Healer: &config.Healer{Report: &config.Report{URL: "http://cloud.example/api/sandbox/heal"}}}
		s, log := store{t.TempDir()}, slog.New(slog.DiscardHandler)
		serve := func(while func(r *reporter)) {
			r := newReporter(s, client, log)
			proctest.Must(t, r.load())
			r.to(d)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { r.run(ctx) })
			while(r)
			cancel()
			wg.Wait()
		}
		serve(func(r *reporter) {
			r.tell(d, "healing", "")
			time.Sleep(20 * time.Minute)
			r.tell(d, "broken", "nothing helped")
			time.Sleep(20 * time.Minute)
		})
		if tries < 30 || tries > 50 {
			t.Errorf("it was asked %d times in 40 minutes", tries)
		}
		serve(func(r *reporter) {
			time.Sleep(10 * time.Minute)
			r.tell(d, "ready", "")
			time.Sleep(12 * time.Hour)
		})
		if len(taken) != 1 || taken[0].Status != "ready" {
			t.Errorf("it took %+v", taken)
		}
	})
}

// What is declared is kept for the daemon's user alone.
func TestKeysAreTheDaemonsOwn(t *testing.T) {
	env := map[string]string{"ANTHROPIC_API_KEY": "sk-1", "OPENAI_API_KEY": "sk-2", "OWN": "sk-3", "ANTHROPIC_BASE_URL": "http://gateway", "OPENAI_BASE_URL": "http://other"}
	for _, c := range []struct {
		llm       *config.LLM
		key, base string
	}{
		{nil, "", ""},
		{&config.LLM{Provider: "anthropic"}, "sk-1", "http://gateway"},
		{&config.LLM{Provider: "openai", BaseURL: "http://mine"}, "sk-2", "http://mine"},
		{&config.LLM{Provider: "anthropic", KeyEnv: "OWN"}, "sk-3", "http://gateway"},
	} {
		if s := secretsOf(c.llm, env); s.Key != c.key || s.BaseURL != c.base {
			t.Errorf("%+v: %+v", c.llm, s)
		}
	}
	s := store{t.TempDir()}
	proctest.Must(t, s.save(declaredFile, &declaration{Service: "web"}))
	if st := proctest.Value(os.Stat(s.path(declaredFile)))(t); st.Mode() != 0o600 {
		t.Errorf("it is %v", st.Mode())
	}
}
