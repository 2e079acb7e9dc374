package work

import (
	"path/filepath"
	"testing"
)

// Nothing confines a command of a model, and so there is none.
func TestAModelRunsNoCommands(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	if _, err := new(hands).Exec(t.Context(), "touch "+mark); err == nil {
		t.Error("it was run")
	}
	if found, _ := filepath.Glob(mark); len(found) > 0 {
		t.Error("it was run")
	}
}
