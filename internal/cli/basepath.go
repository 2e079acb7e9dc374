package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/place"
)

// basePaths checks --base-path, and returns the directories as absolute paths. None may have to do
// with the state directory, by whatever path.
func basePaths(dirs []string, stateDir string) (all []string, err error) {
	if len(dirs) > container.MaxShow {
		return nil, usageError(fmt.Sprintf("--base-path is given %d times; %d are the most: name a directory above some",
			len(dirs), container.MaxShow))
	}
	homeDir, _ := os.UserHomeDir() // there may be none
	for _, dir := range dirs {
		refuse := func(why string) error { return usageError(fmt.Sprintf("--base-path %.200s %s", dir, why)) }
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		real, err := filepath.EvalSymlinks(abs)
		if err == nil {
			var fi os.FileInfo
			if fi, err = os.Stat(real); err == nil && !fi.IsDir() {
				err = syscall.ENOTDIR
			}
		}
		if err != nil {
			var path *os.PathError
			if errors.As(err, &path) {
				err = path.Err
			}
			return nil, fmt.Errorf("--base-path %.200s: %w; name a directory of this machine", dir, err)
		}
		for _, p := range []string{abs, real} {
			if why := container.CheckShown(p); why != "" {
				return nil, refuse(why)
			}
			if p == filepath.Clean(homeDir) {
				return nil, refuse("is a home; name the directory in it that programs need")
			}
		}
		if why, err := place.Meet(real, stateDir); err != nil {
			return nil, fmt.Errorf("--base-path %.200s: %w", dir, err)
		} else if why {
			return nil, refuse(fmt.Sprintf("has to do with the state directory %s, which no sandbox may see: one is in the other; use --state-dir DIR, elsewhere", stateDir))
		}
		all = append(all, abs)
	}
	return all, nil
}
