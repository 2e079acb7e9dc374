package eintr_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/eintr"
)

func TestOnlyWhatASignalInterruptedIsRepeated(t *testing.T) {
	for _, want := range []error{nil, syscall.EAGAIN, errors.New("another")} {
		answers := []error{syscall.EINTR, syscall.EINTR, want, errors.New("one call too many")}
		calls := 0
		next := func() error { calls++; return answers[calls-1] }
		if err := eintr.Do(next); err != want || calls != 3 {
			t.Errorf("%d calls, the last with %v; want 3, with %v", calls, err, want)
		}
		calls = 0
		if n, err := eintr.Get(func() (int, error) { err := next(); return calls, err }); n != 3 || err != want {
			t.Errorf("%d calls, the last with %v; want 3, with %v", n, err, want)
		}
	}
}
