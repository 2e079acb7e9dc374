package cli

// tortureCmd proves on this machine that nothing is lost.
type tortureCmd struct {
	Minutes float64 `default:"5" placeholder:"N" help:"How long, in minutes. Default: 5."`
	Dir     string  `default:"." placeholder:"DIR" help:"Directory of the daemon's state: the filesystem under test. Default: this one."`
	Seed    uint64  `placeholder:"N" help:"Repeat a run's choices. Default: a new one."`
}

// tortureWorkCmd is a program that runs under torture.
type tortureWorkCmd struct {
	Args []string `arg:"" passthrough:"" optional:""`
}
