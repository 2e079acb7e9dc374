// Package certificates has the certificate that the server shows for its domain D and for all
// names one level below it (D and *.D), in one of three ways:
//
//	own     of an authority (CA) of this daemon's own. It is made once for each domain; its key never
//	        leaves the state directory, and its name constraints make it worthless for other names
//	files   of the operator's files, which are read again when they change
//	acme    of an ACME server (RFC 8555), by DNS-01: a program of the operator's sets the TXT records
//
// Names below D are secrets, because with a sandbox's ID anybody reaches its public ports. So there is one
// wildcard and never a certificate for each sandbox, which public logs would show; and a wildcard
// needs DNS-01.
//
// # Files, below tls/D in the state directory
//
//	ca.pem, ca-key.pem              the own authority: ECDSA P-256, ten years
//	account-key.pem                 the account at the ACME server
//	certificate.pem                 what the ACME server has issued, with its key
//
// All have mode 0600, in directories of mode 0700. Certificates of the own authority are in memory alone: they are valid
// for a week, and replaced after half of it. What an ACME server issued is renewed when a third of its time is
// left; a renewal that fails is tried again after 5, 10, 20 … minutes, at most 6 hours. No renewal
// ends a connection.
//
// # The program for DNS-01
//
// It is called as
//
//	PROGRAM present _acme-challenge.D VALUE
//	PROGRAM cleanup _acme-challenge.D VALUE
//
// as the daemon's user. After present has ended with 0, each name server of D must answer with the TXT record: the
// program waits for that. Two values may be there at the same time. It is killed after 10 minutes.
package certificates
