package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/scene"
)

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	scene.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
