package processtest

// watches are about the events of the manager.
var watches = []test{}
