// Package doctor checks a machine and a daemon: what is in order, what is weaker here
// than it could be, what is broken, and the command that fixes it. It checks what no
// role of tend checks: limits, capabilities, the filesystem and the clock. For what the
// roles test themselves ([Promise], the layers of the driver) it uses their results,
// and probes nothing twice.
package doctor

// State is how a thing is.
type State string

const (
	OK      State = "ok"
	Limited State = "limited" // tend works, and something is weaker than it could be
	Broken  State = "broken"  // something that tend needs or promises does not hold
)

// Finding is the result of one check. Its name stays: it is in the JSON of tend doctor.
type Finding struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"`
	// Mend is a command, or a sentence where no command does it. Empty where nothing is
	// to be mended.
	Mend string `json:"mend,omitempty"`
}

// Healthy reports whether nothing is broken.
func Healthy(all []Finding) bool {
	for _, f := range all {
		if f.State == Broken {
			return false
		}
	}
	return true
}
