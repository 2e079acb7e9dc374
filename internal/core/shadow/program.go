package shadow

import "os"

// Program is what runs in a shadow: this one.
type Program struct {
	Argv, Env []string
	Dir       string // absolute, inside
	// File becomes descriptor 3; 0 to 2 are those of this process, and 4 is this program.
	File *os.File
}
