//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "bench: this measures a daemon and the bare limit beside it, which needs Linux; this is %s\n", runtime.GOOS)
	os.Exit(1)
}
