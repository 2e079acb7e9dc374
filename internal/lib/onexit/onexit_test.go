package onexit

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/tend-run/tend/process"
)

func TestAskingSetsLabelsAndPins(t *testing.T) {
	const to = "https://example.com/hook"
	for name, c := range map[string]struct {
		line, to string
		pin      bool
		want     map[string]string
	}{
		"nothing is asked for":           {want: map[string]string{"a": "b"}},
		"nothing, of one that is pinned": {pin: true, want: map[string]string{"a": "b"}},
		"a line":                         {line: "true", want: map[string]string{"a": "b", LabelCommand: "true"}},
		"a message":                      {to: to, want: map[string]string{"a": "b", LabelURL: to}},
		"both, of one that stays pinned": {line: "true", to: to, pin: true, want: map[string]string{"a": "b", LabelCommand: "true", LabelURL: to, LabelPin: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			mine := map[string]string{"a": "b"}
			s := process.Spec{Labels: mine, Retention: process.Retention{Pin: c.pin}}
			if err := Ask(&s, c.line, c.to); err != nil || !maps.Equal(s.Labels, c.want) || s.Retention.Pin != (c.pin || len(c.want) > 1) {
				t.Errorf("%v; the labels are %v, pinned: %v", err, s.Labels, s.Retention.Pin)
			}
			if len(mine) != 1 {
				t.Errorf("the caller's labels have become %v", mine)
			}
		})
	}
	var bare process.Spec
	if err := Ask(&bare, "true", ""); err != nil || len(bare.Labels) != 1 {
		t.Errorf("without labels: %v, %v", bare.Labels, err)
	}
}

func TestWhatIsNoURLIsRefusedAndNotShown(t *testing.T) {
	for _, to := range []string{"ftp://secret.example", "secret", "http://", "http:secret", "://secret", "http://secret\x7f"} {
		var s process.Spec
		err := Ask(&s, "true", to)
		if wrong, ok := errors.AsType[*process.InvalidError](err); !ok || wrong.Field != "on_exit_url" || strings.Contains(err.Error(), "secret") || s.Labels != nil || s.Retention.Pin {
			t.Errorf("%q: %v, and the spec is %+v", to, err, s)
		}
	}
}
