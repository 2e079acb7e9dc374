//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
)

// computesdkScript becomes computesdk.mjs, which asks the server at the URL.
const computesdkScript = `at=test/conformance/agents/computesdk; export PATH="$(scripts/node):$PATH"; scripts/npm-ci "$at" >&2
unset E2B_DEBUG; export E2B_API_URL=%[1]s E2B_SANDBOX_URL=%[1]s; exec node bench/computesdk.mjs "$PWD/$at"`

// interactive is what computesdk.mjs answers, in ms.
type interactive struct {
	TTI         []float64
	Failed      int
	First, Wall float64
}

// benchComputeSDK measures as computesdk's public benchmark does, with the same client on
// tend and on the floor.
func benchComputeSDK(ctx context.Context, e *env) {
	const many, rounds = 100, 3
	url, stop := startFloorURL(ctx)
	defer also(stop)
	ours := startProgram(ctx, e, fmt.Sprintf(computesdkScript, e.d.url))
	defer ours.close()
	bare := startProgram(ctx, e, fmt.Sprintf(computesdkScript, url))
	defer bare.close()
	ask := func(c *clientProgram, sum *interactive, mode string, n int) {
		var got interactive
		c.ask(&got, "%s %d\n", mode, n)
		sum.TTI, sum.Failed = append(sum.TTI, got.TTI...), sum.Failed+got.Failed
		sum.First, sum.Wall = math.Max(sum.First, got.First), math.Max(sum.Wall, got.Wall)
	}
	var warm interactive
	for _, c := range []*clientProgram{ours, bare} {
		ask(c, &warm, "sequential", 5)
		ask(c, &warm, "burst", 10)
	}
	var alone, aloneBare, burst, burstBare, staggered interactive
	each := max(e.n/10/rounds, 2)
	inTurns(rounds,
		func() { ask(ours, &alone, "sequential", each) },
		func() { ask(bare, &aloneBare, "sequential", each) },
		func() { ask(ours, &burst, "burst", many) },
		func() { ask(bare, &burstBare, "burst", many) },
	)
	ask(ours, &staggered, "staggered", many)

	one := figure("computesdk: create and first command, one at a time, p50", "ms", 0, median(alone.TTI)).atMost(10).
		notes("HTTP alone: a server that only answers; p95 %s, p99 %s", number(quantile(alone.TTI, 0.95)), number(quantile(alone.TTI, 0.99)))
	one.HTTP = median(aloneBare.TTI)
	every := figure("  one every 200 ms, 100 of them, p50", "ms", 0, median(staggered.TTI)).
		notes("p95 %s, p99 %s", number(quantile(staggered.TTI, 0.95)), number(quantile(staggered.TTI, 0.99)))
	all := row{Name: "  100 at once, p50", Unit: "ms", HTTP: median(burstBare.TTI), Tend: median(burst.TTI)}
	all = all.goal(all.Tend <= 2*all.HTTP, "≤ 2× HTTP alone").
		notes("p95 %s, p99 %s; of the worst round the first after %s, the last after %s", number(quantile(burst.TTI, 0.95)), number(quantile(burst.TTI, 0.99)), number(burst.First), number(burst.Wall))
	failed, made := alone.Failed+staggered.Failed+burst.Failed, len(alone.TTI)+len(staggered.TTI)+len(burst.TTI)
	good := figure("  success", "%", 0, 100*float64(made)/float64(made+failed)).atLeast(100).notes("%d of %d", made, made+failed)
	e.add(one, every, all, good)
	if n := aloneBare.Failed + burstBare.Failed; n > 0 {
		fail("%d failed on the server that only answers", n)
	}
}

// sandboxes answers the calls of E2B's control plane as [floor] does those of processes: it
// makes no sandbox.
func (f *floor) sandboxes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	case r.URL.Path == "/v2/sandboxes":
		w.WriteHeader(http.StatusCreated)
	}
	fmt.Fprintf(w, `{"templateID":"base","sandboxID":"i%019d","clientID":"floor","envdVersion":"0.6.13","envdAccessToken":"any","domain":"localhost"}`, f.last.Add(1))
}
