package view_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

// TestAHardPatternIsRefusedOrEndsWithItsCaller: a pattern of a few bytes can
// mean hours of work.
func TestAHardPatternIsRefusedOrEndsWithItsCaller(t *testing.T) {
	p := finished(t, `head -c 67108864 /dev/zero | tr '\0' x`)
	nothing := func(view.Match) error { return nil }
	lost := func(process.Gap) error { return nil }
	err := view.Grep(t.Context(), p, view.GrepOptions{Pattern: strings.Repeat("x{1000}", 20) + "y"}, nothing, lost)
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "pattern" || !strings.Contains(err.Error(), "10000 steps") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	err = view.Grep(ctx, p, view.GrepOptions{Pattern: "(?:x?){900}x{900}(?:x?){900}x{900}y"}, nothing, lost)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
