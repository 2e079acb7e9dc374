// Package heal attacks the healer: a hostile repository, a hostile model and a hostile service
// against the owner of the machine. Each subtest is an attempt. Its name says what is tried, and
// its text what would have been won; it fails if that is won, or if the service, the person's
// uncommitted work or the repository are not as they were.
package heal
