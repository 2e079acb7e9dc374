package e2bapi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestUploadsHaveABudgetTogether(t *testing.T) {
	s := proctest.Value(openStore(t.TempDir()))(t)
	s.max = 95_000
	name := func(digit string) string { return strings.Repeat(digit, 64) }
	put := func(digit string, n int) error { return s.put(name(digit), strings.NewReader(strings.Repeat("x", n))) }
	proctest.Must(t, errors.Join(put("a", 30_000), put("b", 30_000)))
	for range 5 { // the same again is the same bytes
		proctest.Must(t, put("b", 30_000))
	}
	if err := put("c", 40_000); !errors.Is(err, errUploads) || s.has(name("c")) || s.used != 60_000 {
		t.Fatalf("a third: %v; %d bytes", err, s.used)
	}
	if entries := proctest.Value(os.ReadDir(s.blobs()))(t); len(entries) != 2 {
		t.Errorf("left over: %v", entries)
	}
	past := time.Now().Add(-2 * uploadTime)
	proctest.Must(t, os.Chtimes(filepath.Join(s.blobs(), name("b")), past, past))
	if err := put("c", 40_000); err != nil || s.has(name("b")) || !s.has(name("a")) || !s.has(name("c")) || s.used != 70_000 {
		t.Fatalf("once the link of another has expired: %v; %d bytes", err, s.used)
	}
	again := proctest.Value(openStore(s.dir))(t)
	if again.used != 70_000 {
		t.Errorf("counted anew: %d", again.used)
	}
	if err := put("d", 200_000); !errors.Is(err, errUploads) || problemOf(err).status != 507 {
		t.Errorf("one that is too large: %v", err)
	}
}
