// Command tend-keeper is the small binary of the roles that hold processes: launcher,
// anchor and keeper. It is part of tend, which carries it and starts it; it is never
// called by hand.
package main

import (
	"os"

	"github.com/tend-run/tend/internal/cli/role"
)

func main() { os.Exit(role.Main()) }
