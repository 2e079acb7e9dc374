//go:build !unix

package server

// descriptorLimit: there is no such limit here.
func descriptorLimit() int { return 0 }
