package native

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/tendpb"
)

// A client that is one too many is told so, over a connection that is still HTTP.
func TestAConnectionToAPortTooManyIsRefusedByName(t *testing.T) {
	p := newPorts(nil)
	p.most = 1
	proctest.Must(t, p.begin())
	ask := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, tendpb.DialPath+"?sandbox=x&port=80", nil)
		r.Header.Set("Upgrade", tendpb.DialProtocol)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w
	}
	if w := ask(); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "connections to ports") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	p.end()
	if w := ask(); w.Code == http.StatusTooManyRequests {
		t.Errorf("with room again: %d %s", w.Code, w.Body)
	}
}
