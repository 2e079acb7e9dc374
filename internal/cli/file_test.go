package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
