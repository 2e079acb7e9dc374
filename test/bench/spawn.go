//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tend-run/tend"
)

const truePath = "/bin/true"

// runner starts /bin/true through the envd face again and again, on one
// connection.
type runner struct {
	c   *conn
	req []byte
}

func newRunner(ctx context.Context, d *daemon) (*runner, error) {
	c, err := dial(ctx, d.addr)
	if err != nil {
		return nil, err
	}
	req, err := startJSON(truePath)
	return &runner{c, req}, err
}

// once returns the time from the request to the end event.
func (r *runner) once() (time.Duration, error) {
	start := time.Now()
	s, err := r.c.stream("/process.Process/Start", "application/connect+json", r.req)
	if err != nil {
		return 0, err
	}
	var f frame
	for {
		if err := s.next(&f); err != nil {
			return 0, unexpected(err)
		}
		if err := f.check(); err != nil {
			return 0, err
		}
		if bytes.Contains(f.head, []byte(`"end":`)) {
			break
		}
	}
	took := time.Since(start)
	if !bytes.Contains(f.head, []byte(`exit status 0`)) {
		return 0, fmt.Errorf("/bin/true ended with %s", f.head)
	}
	return took, s.finish()
}

func benchTrue(ctx context.Context, e *env) ([]row, error) {
	r, err := newRunner(ctx, e.d)
	if err != nil {
		return nil, err
	}
	defer r.c.Close()
	buf := make([]byte, 4096)
	var bare, face, native []float64
	for i := range e.n + 20 {
		_, b, err := bareRun(buf, truePath)
		if err != nil {
			return nil, err
		}
		f, err := r.once()
		if err != nil {
			return nil, err
		}
		start := time.Now()
		p, err := e.d.sdk.Spawn(ctx, tend.Command(truePath))
		if err != nil {
			return nil, err
		}
		if _, err := p.Wait(ctx, tend.WaitOptions{}); err != nil {
			return nil, err
		}
		n := time.Since(start)
		p.Close()
		if i < 20 {
			continue // warms up both sides
		}
		bare, face, native = append(bare, micros(b)), append(face, micros(f)), append(native, micros(n))
	}
	b50, b99 := median(bare), quantile(bare, 0.99)
	f50, f99 := median(face), quantile(face, 0.99)
	n50, n99 := median(native), quantile(native, 0.99)
	return []row{
		figure("Start→end of /bin/true, envd JSON, p50", "µs", b50, f50).ratioAtMost(1.35),
		figure("  p99", "µs", b99, f99).ratioAtMost(2.5).notes("%.2f× the bare p50", f99/b50),
		figure("Spawn→Wait of /bin/true, Go client, p50", "µs", b50, n50).ratioAtMost(1.35),
		figure("  p99", "µs", b99, n99).ratioAtMost(2.5).notes("%.2f× the bare p50", n99/b50),
	}, nil
}

// benchAtOnce compares rates, with 16 under way all the time.
func benchAtOnce(ctx context.Context, e *env) ([]row, error) {
	const workers, rounds = 16, 3
	runners := make([]*runner, workers)
	for i := range runners {
		r, err := newRunner(ctx, e.d)
		if err != nil {
			return nil, err
		}
		defer r.c.Close()
		runners[i] = r
	}
	each := max(e.n/workers, 5)
	all := func(one func(worker int) error) (float64, error) {
		errs := make([]error, workers)
		var wg sync.WaitGroup
		start := time.Now()
		for w := range workers {
			wg.Go(func() {
				for range each {
					if errs[w] = one(w); errs[w] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(start)
		for _, err := range errs {
			if err != nil {
				return 0, err
			}
		}
		return float64(workers*each) / took.Seconds(), nil
	}
	var bare, face []float64
	for range rounds {
		b, err := all(func(int) error {
			_, _, err := bareRun(make([]byte, 4096), truePath)
			return err
		})
		if err != nil {
			return nil, err
		}
		f, err := all(func(w int) error {
			_, err := runners[w].once()
			return err
		})
		if err != nil {
			return nil, err
		}
		bare, face = append(bare, b), append(face, f)
	}
	return []row{figure("16 at once, envd JSON", "processes/s", median(bare), median(face)).ratioAtLeast(0.70)}, nil
}
