//go:build !unix

package work

func isSelf(string) bool { return false }
