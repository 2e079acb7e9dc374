// Package scope is what sandbox drivers over this machine's keeper share: the times
// at which sandboxes end.
package scope
