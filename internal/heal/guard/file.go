package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"

	"github.com/tend-run/tend/internal/lib/exchange"
)

// ReadFile reads at most max bytes of a file, from an offset; max is at most [MaxFile]. It
// also returns the size of the file. A file of variables is read without its values.
func (g *Guard) ReadFile(name string, off, max int64) (data []byte, size int64, err error) {
	f, t, err := g.open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	max = min(max, MaxFile)
	if off < 0 || max < 0 {
		return nil, 0, fmt.Errorf("the offset and the length may not be negative")
	}
	if t.envFile() {
		all, err := io.ReadAll(io.LimitReader(f, MaxFile))
		if err != nil {
			return nil, 0, err
		}
		view := namesOnly(string(all))
		size = int64(len(view))
		off = min(off, size)
		return []byte(view[off:min(off+max, size)]), size, nil
	}
	data, err = io.ReadAll(io.NewSectionReader(f, off, max))
	return data, t.info.Size(), err
}

// open opens a regular file for reading.
func (g *Guard) open(name string) (*os.File, *target, error) {
	t, err := g.at(name)
	if err != nil {
		return nil, nil, err
	}
	defer t.close()
	if err := g.allow(name, t, false); err != nil {
		return nil, nil, err
	}
	switch {
	case t.info == nil:
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case t.info.IsDir():
		return nil, nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory; list it")}
	}
	f, err := openSeen(t.dir, t.base, t.info)
	return f, t, err
}

// openSeen opens a regular file, and makes sure that it is the one that was seen.
func openSeen(dir *os.Root, name string, seen fs.FileInfo) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(info, seen)) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("was replaced at this moment; try again")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// WriteFile makes data the content of a file. Readers see the old content or the new one.
// What somebody else is saving at this moment stays. The mode and the owner stay; a new file has mode 0644 minus the umask, and missing
// directories are created. Other hard links keep the old content.
func (g *Guard) WriteFile(name string, data []byte) error {
	t, err := g.at(name)
	if err != nil {
		return err
	}
	defer t.close()
	if err := g.allowChange(name, t); err != nil {
		return err
	}
	if len(data) > MaxFile {
		return &fs.PathError{Op: "write", Path: t.rel(), Err: ErrTooLarge}
	}
	return t.write(data, 0o644, nil)
}

// allowChange is allow for what changes a file, and refuses files of variables.
func (g *Guard) allowChange(name string, t *target) error {
	if err := g.allow(name, t, true); err != nil {
		return err
	}
	if t.envFile() {
		return &DeniedError{name, envRule, "its values are secret; set_env adds a name to it"}
	}
	return nil
}

// write replaces the file, or makes it with a mode, less the umask. exact, if there is one,
// is the mode that it has then. If somebody else is changing it, it stays theirs.
func (t *target) write(data []byte, mode fs.FileMode, exact *fs.FileMode) error {
	if err := t.makeMissing(); err != nil {
		return err
	}
	temp := ".tend-" + rand.Text()
	f, err := t.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openFlags, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if t.info != nil && err == nil {
		err = errors.Join(giveTo(f, t.info), f.Chmod(t.info.Mode().Perm()))
	} else if info, serr := t.dir.Stat("."); err == nil && serr == nil {
		err = giveTo(f, info)
	}
	if exact != nil && err == nil {
		err = f.Chmod(*exact)
	}
	var is func(*os.File) bool
	if t.info != nil {
		is = t.is
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = exchange.File(t.dir, temp, t.base, is)
	}
	if err != nil {
		return errors.Join(err, t.dir.Remove(temp))
	}
	return nil
}

// is reports whether a file is the one that was found, as it was.
func (t *target) is(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !os.SameFile(info, t.info) || info.Size() != t.info.Size() || !info.ModTime().Equal(t.info.ModTime()) {
		return false
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && (t.was == "" || hex.EncodeToString(h.Sum(nil)) == t.was)
}

// makeMissing makes the directories that are missing, and opens them.
func (t *target) makeMissing() error {
	for _, name := range t.missing {
		merr := t.dir.Mkdir(name, 0o777)
		if merr != nil && !errors.Is(merr, fs.ErrExist) {
			return merr
		}
		info, err := t.dir.Lstat(name)
		if err != nil {
			return err
		}
		next, err := openDir(t.dir, name, info)
		if err != nil {
			return err
		}
		t.own = append(t.own, next)
		if merr == nil {
			if err := giveLike(next, t.dir); err != nil {
				return err
			}
		}
		t.dir = next
	}
	return nil
}

// giveLike gives a new directory the owner of the one that it is in.
func giveLike(dir, in *os.Root) error {
	info, err := in.Stat(".")
	if err != nil {
		return err
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(giveTo(f, info), f.Close())
}

// SetEnv adds a variable to a file of variables (.env), or sets an empty one. A missing
// file is created with mode 0600. An existing value is never replaced, because the user's
// secret would be lost: the error is a *DeniedError.
func (g *Guard) SetEnv(name, variable, value string) error {
	return g.setEnv(name, variable, value, false)
}

// CheckEnv says why SetEnv would not set a variable; nil: it would.
func (g *Guard) CheckEnv(name, variable, value string) error {
	return g.setEnv(name, variable, value, true)
}

func (g *Guard) setEnv(name, variable, value string, only bool) error {
	if !variableName.MatchString(variable) {
		return fmt.Errorf("%.80q is no name of a variable", variable)
	}
	if Steers(variable) {
		return &DeniedError{name, envRule, variable + " has programs load code, or run others"}
	}
	t, err := g.find(name)
	if err != nil {
		return err
	}
	defer t.close()
	if !IsEnv(t.base) {
		return &DeniedError{name, envRule, "set_env changes files of variables alone"}
	}
	if err := g.allow(name, t, true); err != nil {
		return err
	}
	var old []byte
	if t.info != nil {
		f, err := openSeen(t.dir, t.base, t.info)
		if err != nil {
			return err
		}
		old, err = io.ReadAll(io.LimitReader(f, MaxFile+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		t.was = sumOf(old)
	}
	text, err := setVariable(string(old), variable, value)
	if err != nil {
		return &DeniedError{name, "values", err.Error()}
	}
	if len(text) > MaxFile {
		return &fs.PathError{Op: "write", Path: t.rel(), Err: ErrTooLarge}
	}
	if only {
		return nil
	}
	return t.write([]byte(text), 0o600, nil)
}

// List lists a directory, sorted by name; at most max names; more reports whether there are
// others. Names that may not be read are included.
func (g *Guard) List(name string, max int) (entries []Entry, more bool, err error) {
	t, err := g.at(name)
	if err != nil {
		return nil, false, err
	}
	defer t.close()
	if err := g.allow(name, t, false); err != nil {
		return nil, false, err
	}
	if t.info == nil || !t.info.IsDir() {
		return nil, false, &fs.PathError{Op: "list", Path: name, Err: errors.New("is no directory")}
	}
	dir, err := t.dir.Open(".")
	if err != nil {
		return nil, false, err
	}
	defer dir.Close()
	max = min(max, maxList)
	found, err := dir.ReadDir(max + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if more = len(found) > max; more {
		found = found[:max]
	}
	for _, d := range found {
		e := Entry{Name: d.Name(), Kind: "other"}
		switch {
		case d.IsDir():
			e.Kind = "directory"
		case d.Type()&fs.ModeSymlink != 0:
			e.Kind = "link"
		case d.Type().IsRegular():
			e.Kind = "file"
			if info, err := d.Info(); err == nil {
				e.Size = info.Size()
			}
		}
		rel := strings.TrimPrefix(t.rel()+"/"+d.Name(), "./")
		e.Protected = IsEnv(d.Name()) || g.denied(rel, true) != nil
		entries = append(entries, e)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	return entries, more, nil
}

// maxList is the most names of one list.
const maxList = 10_000

// Entry is a name in a directory.
type Entry struct {
	Name      string
	Kind      string // "file", "directory", "link" or "other"
	Size      int64  // of a file, in bytes
	Protected bool   // may not be changed
}
