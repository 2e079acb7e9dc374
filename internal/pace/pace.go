// Package pace says how long tests, and programs that try a daemon, wait before they look
// again for what no event reports. Who looks often takes CPU from what they wait for; who
// looks seldom notices late.
package pace

import "time"

const (
	shortest = 2 * time.Millisecond
	longest  = 50 * time.Millisecond
)

// Next is the pause before another look by somebody who has waited since then: an eighth
// of that time, 2 to 50 ms.
func Next(since time.Time) time.Duration {
	return min(max(time.Since(since)/8, shortest), longest)
}
