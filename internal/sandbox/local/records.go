package local

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// maxRecord bounds the file of a snapshot or a template, in bytes.
const maxRecord = 4 << 20

// readRecords reads the files ID.json of a directory, which is made if it is missing, and
// gives each to take. One that cannot be read, that says another ID, or that take refuses
// stays where it is, with a warning.
func readRecords[T any](d *Driver, what, dir string, idOf func(*T) string, take func(*T) error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of the %ss: %w", what, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("directory of the %ss: %w", what, err)
	}
	for _, e := range names {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !driver.LikeID(id) {
			continue
		}
		r := new(T)
		b, err := atomicfile.Read(filepath.Join(dir, e.Name()), maxRecord)
		if err == nil {
			err = json.Unmarshal(b, r)
		}
		if err == nil && idOf(r) != id {
			err = fmt.Errorf("it is that of %.40q", idOf(r))
		}
		if err == nil {
			err = take(r)
		}
		if err != nil {
			d.log.Warn(what+" is not usable, leaving it", slog.String("file", e.Name()), slog.Any("err", err))
		}
	}
	return nil
}
