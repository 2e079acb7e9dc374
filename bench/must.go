//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A measurement has one answer to every error: it ends. So what a bench calls
// throws its errors, by check and must, and whoever starts the bench catches them.
// Only what has another answer returns an error.

// failure is a thrown error.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// fail throws a new error.
func fail(format string, a ...any) { check(fmt.Errorf(format, a...)) }

// caught returns what f throws.
func caught(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// also is deferred: it runs f, and throws its error beside the one under way.
func also(f func()) {
	under := recover()
	err := caught(f)
	if first, ok := under.(failure); ok {
		err = errors.Join(first.error, err)
	} else if under != nil {
		panic(under)
	}
	check(err)
}

// as names what f throws.
func as(name string, f func()) {
	if err := caught(f); err != nil {
		fail("%s: %w", name, err)
	}
}

// together runs f(i) for all i < n, each in a goroutine, and throws what they throw,
// the same error once.
func together(n int, f func(i int)) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = caught(func() { f(i) }) })
	}
	wg.Wait()
	errs = slices.CompactFunc(errs, func(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() })
	check(errors.Join(errs...))
}

// timed returns how long f takes.
func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// pause waits, and throws if the run ends meanwhile.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
		check(ctx.Err())
	case <-time.After(d):
	}
}
