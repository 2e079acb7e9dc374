package processtest

// identities are about ids, selectors and filters.
var identities = []test{}
