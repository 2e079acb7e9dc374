package playbook

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	maxArchive  = 32 << 20  // bytes of an archive
	maxUnpacked = 256 << 20 // bytes of what is in it
)

// compare reports whether an installed package differs from the archive that it was
// installed from. known is false where there is no archive: the lock file names none,
// it is neither a file of the project nor in the cache of npm, or it is another one.
func (l *lock) compare(p *project, dir string) (differs, known bool) {
	if l.npm == nil {
		return false, false
	}
	key := dir
	if l.dir != "." {
		key = strings.TrimPrefix(dir, l.dir+"/")
	}
	e, ok := l.npm.Packages[key]
	if !ok || e.Link {
		return false, false
	}
	data := l.archive(p, e)
	if data == nil {
		return false, false
	}
	if want, ok := strings.CutPrefix(strings.Fields(e.Integrity + " x")[0], "sha512-"); ok {
		sum := sha512.Sum512(data)
		if want != base64.StdEncoding.EncodeToString(sum[:]) {
			return false, false
		}
	}
	return p.unlike(dir, data, e.Scripts)
}

// archive returns the archive of a package; nil: there is none here.
func (l *lock) archive(p *project, e npmEntry) []byte {
	if file, ok := strings.CutPrefix(e.Resolved, "file:"); ok {
		rel, ok := p.below(file, l.dir)
		if !ok {
			return nil
		}
		data, _ := p.read(rel)
		return data
	}
	want, ok := strings.CutPrefix(strings.Fields(e.Integrity + " x")[0], "sha512-")
	sum, err := base64.StdEncoding.DecodeString(want)
	home := p.Env["npm_config_cache"]
	if home == "" && filepath.IsAbs(p.Env["HOME"]) {
		home = filepath.Join(p.Env["HOME"], ".npm")
	}
	if !ok || err != nil || len(sum) != sha512.Size || !filepath.IsAbs(home) {
		return nil
	}
	name := hex.EncodeToString(sum)
	f, err := os.Open(filepath.Join(home, "_cacache/content-v2/sha512", name[:2], name[2:4], name[4:]))
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxArchive {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxArchive))
	if err != nil {
		return nil
	}
	return data
}

// unlike reports whether a file of an archive is absent in a directory, or another one.
// What is in the directory alone does not count: installs make files. If scripts of the package
// have run, as those of esbuild put a program in the place of a file, only a file that is
// absent, empty or shorter is another one.
func (p *project) unlike(dir string, archive []byte, scripts bool) (differs, known bool) {
	zr, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return false, false
	}
	total := int64(0)
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return false, true
		}
		if err != nil || p.ctx.Err() != nil {
			return false, false
		}
		if total += h.Size; total > maxUnpacked {
			return false, false
		}
		_, name, ok := strings.Cut(path.Clean(h.Name), "/") // the first part is package/
		if h.Typeflag != tar.TypeReg || !ok || !filepath.IsLocal(name) || name == "package.json" {
			continue // npm writes package.json anew for some
		}
		file := path.Join(dir, name)
		if scripts {
			if st, err := p.root.Stat(file); err == nil && st.Mode().IsRegular() && st.Size() >= h.Size && (st.Size() > 0 || h.Size == 0) {
				continue
			}
		}
		if !p.sameBytes(file, tr, h.Size) {
			return true, true
		}
	}
}

// sameBytes reports whether a file has just these bytes.
func (p *project) sameBytes(rel string, want io.Reader, size int64) bool {
	st, err := p.root.Stat(rel)
	if err != nil || !st.Mode().IsRegular() || st.Size() != size {
		return errors.Is(err, fs.ErrPermission)
	}
	f, err := p.root.Open(rel)
	if err != nil {
		return true // nobody can say
	}
	defer f.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(want, a)
		m, _ := io.ReadFull(f, b[:n])
		if !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if err != nil {
			return true
		}
	}
}
