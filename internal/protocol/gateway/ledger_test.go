package gateway

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// A name of a model is text of a client. However long it is, what others use is counted.
func TestALongNameOfAModelStopsNoCount(t *testing.T) {
	upstream := far(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		fmt.Fprint(w, `{"usage":{"prompt_tokens":600,"completion_tokens":0}}`)
	})
	g := open(t, t.TempDir(), upstream)
	long := `{"model":"` + strings.Repeat("é\\n", 1<<20) + `"}`
	g.ask("POST", "/api/gateway/openai/chat/completions", g.key("free", Rules{}), long)
	key := g.key("a", Rules{TokensPerDay: 1000})
	for i, want := range []int{200, 200, 429} {
		if status, _, body := g.ask("POST", "/api/gateway/openai/chat/completions", key, `{"model":"m"}`); status != want {
			t.Fatalf("request %d: %d %s", i+1, status, body)
		}
	}
	lines := g.lines()
	if len(lines) != 3 || len(lines[0].Model) > maxLogged || !strings.HasPrefix(lines[0].Model, "é\né") {
		t.Errorf("the log has %d lines", len(lines))
	}
}

// A line that is too long for a line of ours, and a part of one, do not hide the next ones.
func TestDamageInTheLogHidesNothing(t *testing.T) {
	g := open(t, t.TempDir(), "")
	path := g.ledger.path(g.clock.now().Format(dayForm))
	proctest.Must(t, os.WriteFile(path, []byte(strings.Repeat("x", 3*maxLine)+"\n{\"key\":\"a\",\n"), 0o600))
	proctest.Must(t, g.ledger.end(Line{Key: "a", In: 7}, 0))
	if used := proctest.Value(g.ledger.of("a"))(t); used.Tokens != 7 {
		t.Errorf("used are %+v", used)
	}
}

// What a full disk does not take counts all the same, and spoils no later line.
func TestAFullDiskGivesNoTokensAway(t *testing.T) {
	g := open(t, t.TempDir(), "")
	proctest.Must(t, g.ledger.begin("a", 1000, 0))
	path := g.ledger.path(g.clock.now().Format(dayForm))
	proctest.Must(t, os.Symlink("/dev/full", path)) // atomicfile.Open follows no link: the write fails
	if err := g.ledger.end(Line{Key: "a", In: 1000}, 0); err == nil {
		t.Fatal("the line was written")
	}
	proctest.Must(t, os.Remove(path))
	if err := g.ledger.begin("a", 1000, 0); err == nil {
		t.Error("the tokens are there again")
	}
	proctest.Must(t, os.WriteFile(path, []byte(`{"key":"b","in":1`), 0o600))
	g.ledger.torn = true
	proctest.Must(t, g.ledger.end(Line{Key: "b", In: 5}, 0))
	if used := proctest.Value(g.ledger.of("b"))(t); used.Tokens != 5 {
		t.Errorf("used are %+v", used)
	}
}
