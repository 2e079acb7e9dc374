package envd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/route"
	"github.com/tend-run/tend/internal/support/proctest"
)

// FuzzInit: a body of POST /init is applied or refused, opens nothing without
// the token, and leaves what /envs tells whole.
func FuzzInit(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `[]`, `{"envVars":{"A":"b","E2B_SANDBOX":"false","":"","A=B":"\u0000"},"defaultUser":"user","defaultWorkdir":"/x"}`,
		`{"accessToken":"a token that nobody guesses","timestamp":"2024-01-01T00:00:00Z"}`, `{"accessToken":""}`, `{"accessToken":7}`, `{"timestamp":"x"}`,
		`{"timestamp":"9999-12-31T23:59:59.999999999Z","hyperloopIP":"1.2.3.4","volumeMounts":[]}`, "{\"envVars\":{\"\xff\":\"\xfe\"}}", `{"envVars":null}`, `{"envVars":{}} x`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, guarded bool) {
		cfg := Config{Sandboxes: new(route.Router)} // nothing is started
		if guarded {
			cfg.Token = "another one, which no seed has"
		}
		face := proctest.Value(New(cfg))(t)
		defer face.Close()
		w := httptest.NewRecorder()
		face.init(w, httptest.NewRequest("POST", "/init", bytes.NewReader(body)))
		switch {
		case w.Code == http.StatusNoContent && guarded:
			t.Errorf("%q was applied without the token", body)
		case w.Code == http.StatusNoContent:
		case w.Code != http.StatusBadRequest && (w.Code != http.StatusUnauthorized || !guarded):
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		default:
			var said struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || said.Message == "" {
				t.Errorf("%q: %d %s, %v", body, w.Code, w.Body, err)
			}
			if cur := face.settings.get(); cur.EnvVars != nil || cur.DefaultUser != "" || cur.AccessToken != cfg.Token {
				t.Errorf("%q was refused with %d, and applied: %+v", body, w.Code, cur)
			}
		}
		w = httptest.NewRecorder()
		face.envs(w, httptest.NewRequest("GET", "/envs", nil))
		var env map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &env); err != nil || env["E2B_SANDBOX"] != "true" {
			t.Errorf("%q makes /envs %s, %v", body, w.Body, err)
		}
	})
}
