package protocol

import (
	"net/http"
	"slices"
	"testing"
)

func TestAProgramIsGivenNoCookieOfThisServer(t *testing.T) {
	for _, tt := range []struct{ shown, given []string }{
		{[]string{"a=1; tend-session-49983-0123abcd=x; b=2"}, []string{"a=1; b=2"}},
		{[]string{"__Host-tend-session-443-0123abcd=x", "a=1"}, []string{"a=1"}},
		{[]string{"tend-session=x;tend-visit=y; tend-visit=z"}, nil},
		{[]string{"langsmith-sandbox-service-token=x; a=tend-session=x"}, []string{"a=tend-session=x"}},
		{[]string{`a="b c"; d`}, []string{`a="b c"; d`}},
	} {
		h := http.Header{"Cookie": tt.shown}
		DropOwnCookies(h)
		if !slices.Equal(h.Values("Cookie"), tt.given) {
			t.Errorf("of %q the program gets %q", tt.shown, h.Values("Cookie"))
		}
	}
}
