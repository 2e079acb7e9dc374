// Package local attacks a real daemon from beside it: as another user of the machine, as a web
// page in the browser of its owner, and as the holder of a credential that opens little.
//
// Each attempt is a subtest whose name says what is done. It says what would have been won, fails
// if it is won, and then looks whether the daemon works as before.
package local
