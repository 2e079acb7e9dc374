package healing

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/scene"
	"github.com/tend-run/tend/supervisor/config"
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
		scene.Must(t, r.load())
		r.to(d)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.run(ctx) })
		return r, func() { cancel(); wg.Wait() }
	}
	r, end := open()
	r.tell(d, "healing", "")
	calls := func() (n int) { k.with(func() { n = k.calls }); return n }
	scene.Eventually(t, "it is sent again", func() bool { return calls() >= 2 })
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
	scene.Eventually(t, "it is taken", sent)
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
	scene.Eventually(t, "the next one is taken", sent)
	end()
	if k.taken[1].Status != "ready" || k.taken[1].Sequence <= first {
		t.Errorf("then it took %+v", k.taken)
	}
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
	scene.Must(t, s.save(declaredFile, &declaration{Service: "web"}))
	if st := scene.Value(os.Stat(s.path(declaredFile)))(t); st.Mode() != 0o600 {
		t.Errorf("it is %v", st.Mode())
	}
}
