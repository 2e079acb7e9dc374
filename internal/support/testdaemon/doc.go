// Package testdaemon runs real daemons for tests, and for `tend torture`, which tests the machine of a user: it starts them, finds and
// kills their roles, starts them again, and ends them with a check that nothing is left.
package testdaemon
