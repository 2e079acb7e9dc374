package guard

import "errors"

// ErrAsk is set beside [DeniedError] if a person may allow the access: paths outside of the
// project, protected globs, and files that configure tend or git. Nobody can allow keys,
// logins, values of variables, and the own files of git and tend.
var ErrAsk = errors.New("a person may allow it")

// askable is a DeniedError of what a person may allow.
type askable struct{ *DeniedError }

func (e askable) Unwrap() []error { return []error{e.DeniedError, ErrAsk} }

// refuse is the error of a rule.
func (r *rule) refuse(asked string) error {
	if r.ask {
		return Ask(asked, r.name, r.reason)
	}
	return &DeniedError{asked, r.name, r.reason}
}

// Ask is the error of an access that a person may allow.
func Ask(path, rule, reason string) error { return askable{&DeniedError{path, rule, reason}} }

// outside is the error of a path that leads out of the root.
func outside(asked, reason string) error { return Ask(asked, "root", reason) }

// noneIn is a rule by which all below a path is neither read nor changed.
func (g *Guard) noneIn(path string, rules *[]rule) {
	before := len(*rules)
	g.addFile(path, rules)
	for i := range (*rules)[before:] {
		r := &(*rules)[before+i]
		r.read, r.ask, r.reason = true, false, "nobody can allow it: it belongs to tend, or to the machine"
	}
}
