//go:build linux

package main

import (
	"bytes"
	"context"
	"time"

	"github.com/tend-run/tend/sdk/go"
)

const truePath = "/bin/true"

// runner starts /bin/true through the envd face again and again, on one
// connection.
type runner struct {
	c   *conn
	req []byte
}

func newRunner(ctx context.Context, d *daemon) *runner {
	return &runner{dial(ctx, d.addr), startJSON(truePath)}
}

// once returns the time from the request to the end event.
func (r *runner) once() time.Duration {
	start := time.Now()
	s := r.c.stream("/process.Process/Start", "application/connect+json", r.req)
	var f frame
	for !bytes.Contains(f.head, []byte(`"end":`)) {
		s.next(&f)
	}
	took := time.Since(start)
	if !bytes.Contains(f.head, []byte(`exit status 0`)) {
		fail("/bin/true ended with %s", f.head)
	}
	s.finish()
	return took
}

func benchTrue(ctx context.Context, e *env) {
	r := newRunner(ctx, e.d)
	defer r.c.Close()
	buf := make([]byte, 4096)
	var bare, face, native []float64
	for i := range e.n + 20 {
		b := bareRun(buf, 0, truePath)
		f := r.once()
		start := time.Now()
		p := must(e.d.sdk.Spawn(ctx, tend.Command(truePath)))
		must(p.Wait(ctx, tend.WaitOptions{}))
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
	e.add(
		figure("Start→end of /bin/true, envd JSON, p50", "µs", b50, f50).ratioAtMost(1.35),
		figure("  p99", "µs", b99, f99).ratioAtMost(2.5).notes("%.2f× the bare p50", f99/b50),
		figure("Spawn→Wait of /bin/true, Go client, p50", "µs", b50, n50).ratioAtMost(1.35),
		figure("  p99", "µs", b99, n99).ratioAtMost(2.5).notes("%.2f× the bare p50", n99/b50),
	)
}

// benchAtOnce compares rates, with 16 under way all the time.
func benchAtOnce(ctx context.Context, e *env) {
	const workers, rounds = 16, 3
	runners := make([]*runner, workers)
	for i := range runners {
		runners[i] = newRunner(ctx, e.d)
		defer runners[i].c.Close()
	}
	each := max(e.n/workers, 5)
	all := func(one func(worker int)) float64 {
		took := timed(func() {
			together(workers, func(w int) {
				for range each {
					one(w)
				}
			})
		})
		return float64(workers*each) / took.Seconds()
	}
	var bare, face []float64
	for range rounds {
		bare = append(bare, all(func(int) { bareRun(make([]byte, 4096), 0, truePath) }))
		face = append(face, all(func(w int) { runners[w].once() }))
	}
	e.add(figure("16 at once, envd JSON", "processes/s", median(bare), median(face)).ratioAtLeast(0.70))
}
