//go:build unix

package atomicfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Whoever has waited for a file that was removed has locked the one that is there now, so that
// the next one waits.
func TestALockIsOfTheFileThatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	waits, locked := make(chan func()), make(chan error, 1)
	go func() {
		unlock, err := Lock(t.Context(), path)
		locked <- err
		waits <- unlock
	}()
	// It has opened the file by now, or opens the next one: both are right.
	for range 100 {
		runtime.Gosched()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	first()
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	unlock := <-waits
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(gone, path); !errors.Is(err, context.Canceled) {
		t.Errorf("another one: %v", err)
	}
	unlock()
}

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
