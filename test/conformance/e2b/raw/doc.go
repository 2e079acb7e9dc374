// Package raw tests the envd face of a real tend by raw HTTP, without an SDK
// between: both codecs byte by byte, each fault that E2B's own envd is known
// for, and what happens to clients when the roles of tend are killed.
//
//	go test ./test/conformance/e2b/raw                       builds tend
//	TEND_BIN=$PWD/bin/tend go test ./test/conformance/e2b/raw
//
// Every test talks to `tend serve` started as a person starts it. Tests that
// kill roles start one of their own.
package raw
