package healer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Whoever reads an order need not look whether it says of which service it is.
func TestAnOrderIsReadWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadOrder(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("where there is none: %v", err)
	}
	for text, whole := range map[string]bool{
		`{"id":"x","service":"web","rules":{},"healer":{}}`: true,
		`{"id":"x","service":"web","rules":{}}`:             false,
		`{"id":"x","service":"web","healer":{}}`:            false,
		`{}`:                                                false,
		`null`:                                              false,
		`{"id":"x"`:                                         false,
		``:                                                  false,
	} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, OrderFile), []byte(text), 0o600))
		o, err := ReadOrder(dir)
		if whole != (err == nil) || errors.Is(err, fs.ErrNotExist) || whole && (o.Rules == nil || o.Rules.Name != "web" || o.Healer == nil) {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
	}
}
