// Package acme runs tend serve --tls acme against pebble, the ACME server that Let's Encrypt tests its clients with, and against the DNS
// server beside it. Both are built from their published modules, which are none of this one's.
package acme
