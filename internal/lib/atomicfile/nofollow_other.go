//go:build !unix

package atomicfile

// NoFollow has the open of a link fail; this system cannot do it.
const NoFollow = 0
