package exits

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// What an earlier server has done is not done again: the names of its files are the record.
// One of a later version says nothing.
func TestWhatAnEarlierServerHasDoneIsKnown(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"p1.command": "done\n", "p1.url": "done\n", "p2.url": "it was given up\n", "p3.mail": "{}"} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	x := Open(Config{Dir: dir})
	if !x.isDone("p1", doneCommand) || !x.isDone("p1", doneURL) || !x.isDone("p2", doneURL) {
		t.Error("what is done is not known")
	}
	if x.isDone("p2", doneCommand) || x.isDone("p3", doneCommand) || x.isDone("p3", doneURL) {
		t.Error("what is not done is called done")
	}
}
