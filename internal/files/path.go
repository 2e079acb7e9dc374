package files

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// MaxPath is the most bytes a path may have: the kernel's limit without the
// terminating NUL.
const MaxPath = 4095

// Resolve makes path absolute and clean by the rules of the package comment.
// The errors are of type [InvalidError].
func (f FS) Resolve(path string) (string, error) {
	if err := checkPath(path); err != nil {
		return "", err
	}
	if path == "" {
		path = f.Workdir
	}
	if strings.HasPrefix(path, "~") {
		if len(path) > 1 && path[1] != '/' {
			return "", &InvalidError{Field: "path", Reason: fmt.Sprintf("'%s' names another user's home; write it out", path)}
		}
		path = f.User.Home + "/" + path[1:]
	}
	if !filepath.IsAbs(path) {
		path = f.User.Home + "/" + path
	}
	path = filepath.Clean("/" + path)
	if len(path) > MaxPath {
		return "", tooLong(path)
	}
	return path, nil
}

func checkPath(path string) error {
	if len(path) > MaxPath {
		return tooLong(path)
	}
	if strings.IndexByte(path, 0) >= 0 {
		return &InvalidError{Field: "path", Reason: fmt.Sprintf("%.80q has a NUL byte", path)}
	}
	return nil
}

// checkNew refuses names for new files that no listing over JSON or protobuf
// could show. Files that have such names can still be read and removed.
func checkNew(path string) error {
	if !utf8.ValidString(path) {
		return &InvalidError{Field: "path", Reason: fmt.Sprintf("%.80q is not valid UTF-8", path)}
	}
	return nil
}

func tooLong(path string) error {
	return &InvalidError{Field: "path", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(path), MaxPath)}
}
