package healer

// ChangedError says that a repair is not taken back, since what it has changed has changed
// again. Nothing was done.
type ChangedError struct {
	Why   string   // for people
	Paths []string // the first ones, below the root of the project
}

func (e *ChangedError) Error() string { return e.Why }
