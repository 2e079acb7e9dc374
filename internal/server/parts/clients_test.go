package parts

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/server/operator"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A session of the page may do all that the token allows, and yet a script in it gets no key that outlives it.
func TestOnlyThoseWhoShowTheTokenAreToldKeys(t *testing.T) {
	trusted := false
	token := protocol.Token("s3cret")
	part := clients{&Config{Address: "http://127.0.0.1:1", Trusted: func(*http.Request) bool { return trusted }},
		func() protocol.Token { return token }, new(Set)}
	ask := func(header string) (facts operator.Clients) {
		t.Helper()
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", operator.ClientsPath, nil)
		r.Header.Set("Authorization", header)
		part.tell(w, r)
		proctest.Must(t, json.Unmarshal(w.Body.Bytes(), &facts))
		if facts.URL != "http://127.0.0.1:1" || facts.Domain != "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%+v with %v", facts, w.Header())
		}
		return facts
	}
	for _, header := range []string{"", "Bearer wrong", "Session s3cret"} {
		if facts := ask(header); !facts.Locked || facts.Token != "" || facts.E2BKey != "" {
			t.Errorf("with %q: %+v", header, facts)
		}
	}
	want := string(protocol.E2BKey(token))
	if facts := ask("Bearer s3cret"); facts.Token != "s3cret" || facts.E2BKey != want {
		t.Errorf("with the token: %+v", facts)
	}
	if trusted = true; ask("").E2BKey != want {
		t.Error("on the socket there is no key")
	}
	if token = ""; ask("").Locked || ask("").E2BKey != "" {
		t.Error("without a token there is a key")
	}
}
