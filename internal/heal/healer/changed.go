package healer

// ChangedError: a repair was not taken back, because files that it changed have changed
// again since. Nothing was done.
type ChangedError struct {
	Why   string   // for people
	Paths []string // the first ones, below the root of the project
}

func (e *ChangedError) Error() string { return e.Why }
