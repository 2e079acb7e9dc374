// Command tend is the process runtime for agent sandboxes: package cli has its verbs.
package main

import (
	"os"

	"github.com/tend-run/tend/internal/cli"
)

// version is set by the linker in release builds: -X main.version=v1.2.3.
var version = ""

func main() { os.Exit(cli.Main(version)) }
