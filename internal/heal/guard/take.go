package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/tend-run/tend/internal/lib/exchange"
)

// Replace is WriteFile for what a command has made, of any size, in the place of a file whose
// content has a sum: SHA-256 in hex, "" for none. Mode are its permissions; 0: all is as WriteFile
// has it. A path through a link is refused, because the paths of a command are real.
func (g *Guard) Replace(name string, data []byte, mode fs.FileMode, was string) error {
	t, err := g.findReal(name)
	if err != nil {
		return err
	}
	defer t.close()
	if err := g.allowChange(name, t); err != nil {
		return err
	}
	switch t.was = was; {
	case (was == "") != (t.info == nil):
		return exchange.ErrChanged
	case mode == 0 && len(data) > MaxFile:
		return &fs.PathError{Op: "write", Path: t.rel(), Err: ErrTooLarge}
	case mode == 0:
		return t.write(data, 0o644, nil)
	}
	mode = mode.Perm()
	return t.write(data, mode, &mode)
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Remove removes a file whose content has a sum, or an empty directory. A path through a link is
// refused.
func (g *Guard) Remove(name, was string) error {
	t, err := g.findReal(name)
	if err != nil {
		return err
	}
	defer t.close()
	switch {
	case t.info == nil:
		return nil
	case t.info.IsDir():
		return g.removeDir(name)
	}
	if err := g.allowChange(name, t); err != nil {
		return err
	}
	t.was = was
	return exchange.Remove(t.dir, ".tend-"+rand.Text(), t.base, t.is)
}

func (g *Guard) removeDir(name string) error {
	if path.Clean(name) == "." {
		return &DeniedError{name, "kind", "it is the project"}
	}
	if r := g.denied(path.Clean(name), true); r != nil {
		return r.refuse(name)
	}
	in, err := g.findReal(path.Dir(path.Clean(name)))
	if err != nil {
		return err
	}
	defer in.close()
	return in.dir.Remove(path.Base(name))
}

// MakeDir creates a directory and its parents.
func (g *Guard) MakeDir(name string) error {
	t, err := g.findReal(name)
	if err != nil {
		return err
	}
	defer t.close()
	if t.info != nil && t.info.IsDir() {
		return nil
	}
	if err := g.allowChange(name, t); err != nil {
		return err
	}
	if t.info != nil {
		return &DeniedError{name, "kind", "it is a file"}
	}
	t.missing = append(t.missing, t.base)
	return t.makeMissing()
}

// at finds what a path leads to. What a person has allowed is a real path, as [Guard.Check] returns
// it: one that leads through a link by now was not allowed.
func (g *Guard) at(name string) (*target, error) {
	if !g.allowed {
		return g.find(name)
	}
	if rel, ok := g.below(filepath.Clean(name)); ok {
		name = rel
	}
	return g.findReal(name)
}

// findReal finds what a path leads to without any link.
func (g *Guard) findReal(name string) (*target, error) {
	t, err := g.find(name)
	if err != nil {
		return nil, err
	}
	if t.rel() != path.Clean(name) {
		t.close()
		return nil, &DeniedError{name, "links", "it leads through a link"}
	}
	return t, nil
}
