package processtest

// terminals are about terminals, their size and their keys.
var terminals = []test{}
