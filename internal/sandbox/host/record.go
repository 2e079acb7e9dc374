package host

import "github.com/tend-run/tend/internal/sandbox/sandboxrecord"

const workName = "work"

// record is what is kept of a sandbox. The JSON names are the format on disk.
type record struct {
	sandboxrecord.Record
	Work string `json:"work"`
}

func (r *record) write(dir string) error { return sandboxrecord.Write(dir, r, true) }
