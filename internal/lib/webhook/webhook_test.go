package webhook

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// failing is a network that is down.
type failing struct{}

var errDown = errors.New("the network is down")

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errDown }

// URLs of webhooks have their secrets in the path and the query, and errors are logged.
func TestAnErrorHasNothingOfTheURLButTheHost(t *testing.T) {
	c := Client()
	c.Transport = failing{}
	err := Send(t.Context(), c, &Message{URL: "https://name:hunter2@hooks.example/services/hunter2?key=hunter2"})
	if !errors.Is(err, errDown) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "hooks.example") {
		t.Errorf("it says: %v", err)
	}
	if err := Send(t.Context(), c, &Message{URL: "https://hooks.example:hunter2/"}); err == nil || strings.Contains(err.Error(), "https://") {
		t.Errorf("of a URL that is none it says: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Send(ended, Client(), &Message{URL: "http://192.0.2.1/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("it is %v", err)
	}
}
