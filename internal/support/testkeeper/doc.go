// Package testkeeper gives a test a real keeper: a [process.Manager] over
// launcher, anchor and keeper on a state directory of the test's own.
//
//	m := testkeeper.New(t)
//
// The roles are the built program tend-keeper, in processes of their own. So a
// test with the race detector has only its own side of the pair in it, which
// is package internal/core/client. The test takes the place of the server.
//
// At the end of the test all processes and roles end, and the test fails if
// the launcher does not end well.
package testkeeper
