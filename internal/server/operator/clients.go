package operator

// ClientsPath is where a daemon answers with [Clients], as JSON.
const ClientsPath = "/-/clients"

// Clients is what clients of other protocols need to know of a daemon.
type Clients struct {
	// URL of the listener without TLS: http://host:port, or unix:///path.
	URL string `json:"url"`
	// Domain with its port, if the daemon answers by TLS; else empty, as TLS, the way that the certificate comes from.
	Domain string `json:"domain"`
	TLS    string `json:"tls"`
	// CA is the certificate that clients must trust, PEM; empty: they do already.
	CA string `json:"ca"`
	// Locked: callers need a key. Token and E2BKey are empty if the caller did not show the token itself.
	Locked bool   `json:"locked"`
	Token  string `json:"token"`
	E2BKey string `json:"e2b_key"`
}
