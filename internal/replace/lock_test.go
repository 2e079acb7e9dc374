//go:build unix

package replace

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestALockIsOnePersonsAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(gone, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one: %v", err)
	}
	next := make(chan error)
	go func() {
		free, err := Lock(t.Context(), path)
		if err == nil {
			free()
		}
		next <- err
	}()
	unlock()
	if err := <-next; err != nil {
		t.Error(err)
	}
}
