package work

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/service/config"
	"github.com/tend-run/tend/internal/support/proctest"
)

// A journal that was damaged leads to nothing: the daemon ends its episode.
func TestAJournalWithoutABeginningIsAnError(t *testing.T) {
	dir := t.TempDir()
	order := healer.Order{ID: "one", Dir: dir, Service: "app", Rules: &config.Service{}, Healer: &config.Healer{Root: dir}}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, healer.OrderFile), proctest.Value(json.Marshal(order))(t), 0o600))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, healer.JournalFile), []byte("?\n"), 0o600))
	if err := Run(t.Context(), dir, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "no beginning") {
		t.Error(err)
	}
}

// A model is told all that was seen, in the words of the supervisor.
func TestAModelIsToldWhatWasSeen(t *testing.T) {
	got := signalText(&healer.State{Signals: []healer.Signal{{Kind: "health", Text: "refused; the kernel has killed a process of it"}, {Kind: "asked"}}})
	if want := "health: refused; the kernel has killed a process of it\nasked"; got != want {
		t.Errorf("it is told %q; want %q", got, want)
	}
}
