package work

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// While a command of a playbook runs, a file of the episode says so, and what it wrote last, without secrets.
func TestACommandOfAPlaybookTellsHowFarItIs(t *testing.T) {
	g := newGround(t, 0)
	w := g.w
	read := func() (c healer.Command, there bool) {
		data, err := os.ReadFile(w.order.Path(healer.RunningFile))
		return c, err == nil && json.Unmarshal(data, &c) == nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.must(t.Context(), command{dir: g.root, env: w.environ(), time: time.Minute, argv: []string{"sh", "-c",
			"printf 'begun with " + secret + "\\n10 %%\\r20 %% of " + secret + " is here \\n\\n'; until [ -e go ]; do sleep 0.1; done"}})
		done <- err
	}()
	proctest.Eventually(t, "its last line is there", func() bool {
		c, _ := read()
		return strings.HasPrefix(c.Line, "20 % of [secret KEY] is")
	})
	c, _ := read()
	if strings.Contains(c.Line+c.Command, secret) || !strings.HasPrefix(c.Command, "sh -c printf 'begun with ") ||
		time.Since(c.Begun) > time.Minute {
		t.Errorf("it says %+v", c)
	}
	g.write("go", "")
	proctest.Must(t, <-done)
	if c, there := read(); there {
		t.Errorf("it has ended, and it is said that it runs: %+v", c)
	}
}

func TestTheLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\nb\n\n": "b", "a\r\nb\r\n": "b", "1 %\r2 %\r": "2 %", " a b ": " a b",
	} {
		if got := lastLine(text); got != want {
			t.Errorf("of %q it is %q", text, got)
		}
	}
	if got := short(strings.Repeat("é", maxLine)); len(got) > maxLine+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("a long one is %q", got)
	}
}
