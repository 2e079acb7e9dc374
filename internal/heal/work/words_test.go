package work

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/support/proctest"
)

// What a model is writing is shown word by word, and no part of a secret before it is known
// to be one.
func TestWordsAreShownWithoutSecrets(t *testing.T) {
	r := guard.NewRedactor()
	r.AddSecret("DB_PASSWORD", "hunter2 and more")
	w := &words{path: filepath.Join(t.TempDir(), healer.WordsFile), redact: r}
	shown := func() (got healer.Words) {
		data, err := os.ReadFile(w.path)
		if os.IsNotExist(err) {
			return got
		}
		proctest.Must(t, err)
		proctest.Must(t, json.Unmarshal(data, &got))
		return got
	}
	text := "The key sk-ant-" + "abcdefghijklmnopqrstuvwx is in the file, and hunter2 and more; Authorization: Bearer 0123456789abcdef0123 goes with it."
	for _, c := range text {
		w.take(agent.Delta{Text: string(c)})
		w.mu.Lock()
		w.show()
		w.mu.Unlock()
		if got := shown().Text; strings.Contains(got, "sk-") || strings.Contains(got, "hunter2") || strings.Contains(got, "01234") {
			t.Fatalf("%q is shown", got)
		}
	}
	w.take(agent.Delta{Tool: "restart"})
	// Nothing more comes, and what has come is shown all the same.
	proctest.Eventually(t, "the tool is shown", func() bool { return shown().Tool == "restart" })
	if got := shown(); !strings.HasPrefix(got.Text, "The key [secret key] is in the file, and [secret DB_PASSWORD]; Authorization: Bearer [secret token]") || got.Tool != "restart" {
		t.Errorf("in the end %+v is shown", got)
	}
	w.take(agent.Delta{Again: true})
	if got := shown(); got.Text != "" || got.Tool != "" {
		t.Errorf("of a reply that is void %+v is shown", got)
	}
}
