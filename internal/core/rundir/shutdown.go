//go:build linux

package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// A process that is asked to end in a shutdown of everything, and does so with a code
// of its own, has an exit like any other. When the newest shutdown was is what tells
// its reason: the file Shutdown holds in milliseconds since 1970 when it began and, once
// there is an anchor again, until when it lasted.

// BeginShutdown notes that all processes are about to be ended.
func (d *Dir) BeginShutdown(now time.Time) error {
	return d.WriteFile(Shutdown, fmt.Appendf(nil, "%d\n", now.UnixMilli()))
}

// EndShutdown notes the end of a shutdown that had none yet.
func (d *Dir) EndShutdown(now time.Time) error {
	began, over, err := d.shutdown()
	if err != nil || began.IsZero() || !over.IsZero() {
		return err
	}
	return d.WriteFile(Shutdown, fmt.Appendf(nil, "%d %d\n", began.UnixMilli(), now.UnixMilli()))
}

// InShutdown reports whether all was being ended at a time.
func (d *Dir) InShutdown(at time.Time) bool {
	began, over, err := d.shutdown()
	return err == nil && !began.IsZero() && !at.Before(began) && (over.IsZero() || !at.After(over))
}

// shutdown reads the file. Zero times are not known.
func (d *Dir) shutdown() (began, over time.Time, err error) {
	text, err := d.ReadFile(Shutdown)
	if errors.Is(err, fs.ErrNotExist) {
		return began, over, nil
	}
	if err != nil {
		return began, over, err
	}
	var from, to int64
	switch n, _ := fmt.Sscanf(string(text), "%d %d", &from, &to); n {
	case 2:
		return time.UnixMilli(from), time.UnixMilli(to), nil
	case 1:
		return time.UnixMilli(from), over, nil
	}
	return began, over, nil
}
