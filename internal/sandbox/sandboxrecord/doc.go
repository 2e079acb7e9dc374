// Package sandboxrecord holds code that the sandbox drivers over this machine's keeper share:
// the record of a sandbox with its names and times, and its processes as a
// process.Manager.
package sandboxrecord
