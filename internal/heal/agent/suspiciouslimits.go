package agent

import (
	"fmt"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

var comparison = lazyregexp.New(`([<>]=?)\s*(-?[\w.]+(?:\([^()]*\))?)`)

// limitRules: a bound in a condition that no longer bounds, and memory that is
// raised in place of a leak that is closed.
func limitRules(f FileDiff, say sayer) {
	for _, h := range hunks(f.Before, f.After) {
		for _, a := range h.removed {
			for _, b := range h.added {
				if a != b && comparison.ReplaceAllString(a, "$1 N") == comparison.ReplaceAllString(b, "$1 N") && looser(a, b) {
					say(f.Path, "a limit in a condition was taken away")
				}
			}
		}
	}
	if heap(f.After) > heap(f.Before) && heap(f.Before) > 0 {
		say(f.Path, "the limit of memory was raised: a leak would only take longer")
	}
}

func looser(a, b string) bool {
	x, y := comparison.FindAllStringSubmatch(a, -1), comparison.FindAllStringSubmatch(b, -1)
	for i := range min(len(x), len(y)) {
		old, now := x[i][2], y[i][2]
		if old == now {
			continue
		}
		switch strings.ToLower(now) {
		case "0", "-1", "infinity", "number.max_safe_integer", "number.max_value", "math.maxint", "math.maxint64", "sys.maxsize",
			"float('inf')", `float("inf")`, "math.inf":
			return true
		}
		var n, m float64
		if _, err := fmt.Sscan(old, &n); err != nil {
			continue
		}
		if _, err := fmt.Sscan(now, &m); err == nil && n > 0 && m >= 100*n {
			return true
		}
	}
	return false
}

var heapSize = lazyregexp.New(`max[-_]old[-_]space[-_]size[= ](\d+)`)

func heap(s string) (most int) {
	for _, m := range heapSize.FindAllStringSubmatch(s, -1) {
		n := 0
		if _, err := fmt.Sscan(m[1], &n); err == nil {
			most = max(most, n)
		}
	}
	return most
}
