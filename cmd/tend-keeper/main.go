// Command tend-keeper is the small binary of the roles that hold processes:
// launcher, anchor and keeper. It is part of tend, which carries it and starts
// it; nobody calls it by hand.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "tend: %v\n", err)
		os.Exit(1)
	}
}
