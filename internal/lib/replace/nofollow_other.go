//go:build !unix

package replace

const noFollow = 0
