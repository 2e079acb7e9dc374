package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

const (
	sameTimes   = 3 // the same call with the same result
	failTimes   = 4 // one tool that fails in one way, call after call of it
	longestLoop = 6 // calls that are done a second time in the same order
	quietTimes  = 3 // replies in a row that call nothing, and do not end
)

// progress finds out whether a model still gets on.
type progress struct {
	seen  []signature         // of all calls, in order
	times map[signature]int   // since the newest change
	new   map[signature]bool  // changes that were made before
	fails map[string]*failing // by tool
	quiet int
}

type failing struct {
	print signature
	times int
}

type signature [sha256.Size]byte

var noise = lazyregexp.New(`0x[0-9a-fA-F]+|[0-9]+`)

// call notes what a call has led to, and says what loop it is, or "". t is zero for
// a tool that there is not.
func (p *progress) call(tool string, t Tool, input json.RawMessage, res result) string {
	result, failed := res.text, res.err != nil
	if failed {
		result += "\n" + res.err.Error()
	}
	if t.Noisy {
		result = noise.ReplaceAllString(result, "0")
	}
	var compact bytes.Buffer
	if json.Compact(&compact, input) == nil {
		input = compact.Bytes()
	}
	s := sign(tool, string(input), result)
	if p.times == nil {
		p.times, p.new, p.fails = map[signature]int{}, map[signature]bool{}, map[string]*failing{}
	}
	if t.Changes && !failed && !p.new[s] {
		p.new[s] = true
		clear(p.times)
	}
	p.seen = append(p.seen, s)
	p.times[s]++
	if p.times[s] >= sameTimes {
		return fmt.Sprintf("loop: %s was called %d times with the same result", clip(name(tool), 64), sameTimes)
	}
	if !failed {
		delete(p.fails, tool)
	} else {
		print := sign(tool, noise.ReplaceAllString(result, "0"))
		if f := p.fails[tool]; f == nil || f.print != print {
			p.fails[tool] = &failing{print, 1}
		} else if f.times++; f.times >= failTimes {
			return fmt.Sprintf("loop: %s has failed %d times in a row with the same error", clip(name(tool), 64), failTimes)
		}
	}
	for n := 2; n <= longestLoop; n++ {
		if p.repeated(n) {
			return fmt.Sprintf("loop: the same %d calls again, with the same results", n)
		}
	}
	return ""
}

// repeated says whether the newest n calls are those before them.
func (p *progress) repeated(n int) bool {
	if len(p.seen) < 2*n {
		return false
	}
	tail := p.seen[len(p.seen)-2*n:]
	for i := range n {
		if tail[i] != tail[n+i] {
			return false
		}
	}
	return true
}

// silence notes a reply that called nothing, though it does not end.
func (p *progress) silence() string {
	if p.quiet++; p.quiet >= quietTimes {
		return fmt.Sprintf("loop: %d replies in a row that call no tool", quietTimes)
	}
	return ""
}

func sign(parts ...string) signature {
	h := sha256.New()
	for _, s := range parts {
		fmt.Fprintf(h, "%d\n%s\n", len(s), s)
	}
	return signature(h.Sum(nil))
}
