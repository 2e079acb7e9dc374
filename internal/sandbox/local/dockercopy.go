package local

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/tend-run/tend/internal/sandbox/dockerfile"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// copying is a COPY or ADD, with its variables expanded.
type copying struct {
	instructions.SourcesAndDest
	chown, chmod, from, checksum string
	exclude                      []string
	parents, add                 bool
	unpack                       *bool
}

// placed is a file or directory of a source, and where it goes.
type placed struct {
	source   fileSource
	name, to string
	h        *tar.Header
	archive  bool // its content goes there
}

// picker finds what a COPY places.
type picker struct {
	below   *unpack.View // what is there already; nil: nothing
	o       copying
	into    bool   // the destination is a directory
	dest    string // relative to the root
	uid     int    // -1: as in the source
	gid     int
	mode    int64 // -1: as in the source
	all     []placed
	parents map[string]bool // directories that have to be made, as those who do the copying own them
	// inTheWay is what has the name of one, and is none; "": nothing.
	inTheWay string
}

// view looks at what is built so far.
func (s *stage) view() (*unpack.View, error) { return s.d.viewOf(s.top) }

func (d *Driver) viewOf(top layer.ID) (*unpack.View, error) {
	chain, err := d.layers.Chain(top)
	if err != nil {
		return nil, err
	}
	return unpack.OpenView(chain.Dirs)
}

// copy does a COPY or ADD: a layer of its own, for which nothing runs.
func (s *stage) copy(ctx context.Context, step dockerfile.Step, o copying) error {
	view, err := s.view()
	if err != nil {
		return err
	}
	defer view.Close()
	p, err := s.picker(view, o)
	if err != nil {
		return err
	}
	from := fileSource(s.f.context)
	if o.from != "" {
		other, done, err := s.other(ctx, step, o.from)
		if err != nil {
			return err
		}
		defer done()
		from = other
	}
	for _, source := range o.SourcePaths {
		if o.add && dockerfile.IsURL(source) {
			f, done, err := s.fetch(ctx, source, o.checksum)
			if err != nil {
				return err
			}
			defer done()
			err = p.tree(f, f.name, path.Base(f.name))
			if err != nil {
				return err
			}
			continue
		}
		if err := p.pick(from, source, o.add && (o.unpack == nil || *o.unpack)); err != nil {
			return err
		}
	}
	for _, c := range o.SourceContents {
		f := &oneFile{path.Base(c.Path), &tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(c.Data))}, strings.NewReader(c.Data)}
		if err := p.tree(f, f.name, f.name); err != nil {
			return err
		}
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q COPY %q %v %d %d %d", s.key, p.dest, p.into, p.uid, p.gid, p.mode)
	if err := p.sum(sum); err != nil {
		return err
	}
	return s.placed(ctx, "docker copy 1 "+hex.EncodeToString(sum.Sum(nil)), p)
}

// layerOf makes a layer on top, of what write says.
func (s *stage) layerOf(ctx context.Context, write func(*tar.Writer) error) (layer.ID, error) {
	parent, release, err := s.d.below(ctx, s.top, s.by+" merge", nil)
	if err != nil {
		return "", err
	}
	defer release()
	meta := layer.Meta{Parent: parent, Whole: true, Key: s.key, By: s.by}
	return s.d.layers.Unpack(meta, func(dir string, below []string) (_, _ int64, err error) {
		done, err := s.d.fill(ctx, dir, below, write)
		return done.Entries, done.Bytes, err
	})
}

// fill unpacks what write says into an empty directory.
func (d *Driver) fill(ctx context.Context, dir string, below []string, write func(*tar.Writer) error) (unpack.Result, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		t := tar.NewWriter(w)
		err := errors.Join(write(t), t.Close())
		w.CloseWithError(err)
		written <- err
	}()
	room := func() int64 { return roomToCopy(d.cfg.State) }
	done, err := unpack.Layer(ctx, r, dir, unpack.Options{Below: below, Room: room})
	_ = r.Close() // the writer stops
	if werr := <-written; werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
		err = werr
	}
	return done, err
}

// other opens the files of a stage or an image.
func (s *stage) other(ctx context.Context, step dockerfile.Step, name string) (fileSource, func(), error) {
	if from := step.From[name]; from != nil {
		view, err := s.d.viewOf(s.f.stages[from].top)
		if err != nil {
			return nil, nil, err
		}
		return layersSource{view}, view.Close, nil
	}
	m, err := s.f.image(ctx, name, s.step)
	if err != nil {
		return nil, nil, err
	}
	by := s.by + " from " + m.ID
	top, _, err := s.d.images.Use(m.ID, by)
	if err != nil {
		return nil, nil, err
	}
	view, err := s.d.viewOf(top)
	if err != nil {
		s.d.layers.Release(top, by)
		return nil, nil, err
	}
	return layersSource{view}, func() { view.Close(); s.d.layers.Release(top, by) }, nil
}

// picker begins a COPY.
func (s *stage) picker(view *unpack.View, o copying) (*picker, error) {
	p := &picker{below: view, o: o, uid: -1, gid: -1, mode: -1, parents: map[string]bool{}}
	if o.chown != "" {
		var err error
		if p.uid, p.gid, err = owner(view, o.chown); err != nil {
			return nil, fmt.Errorf("--chown=%w", err)
		}
	}
	if o.chmod != "" {
		n, err := strconv.ParseUint(o.chmod, 8, 32)
		if err != nil || n > 0o7777 {
			return nil, fmt.Errorf("--chmod is %.40q; octal digits up to 7777 are allowed", o.chmod)
		}
		p.mode = int64(n)
	}
	to := o.DestPath
	p.dest = relative(cmpDir(s.conf.Dir, to))
	p.into = strings.HasSuffix(to, "/") || to == "." || strings.HasSuffix(to, "/.") || to == ".." || strings.HasSuffix(to, "/..") ||
		len(o.SourcePaths)+len(o.SourceContents) > 1 || view.IsDir(p.dest)
	return p, nil
}

// owner reads "user", "user:group" or numbers of them.
func owner(view *unpack.View, text string) (uid, gid int, err error) {
	user := oci.UserOf(view, text)
	if who, _, both := strings.Cut(user, ":"); !both {
		if user = oci.UserOf(view, who+":"); user == who+":" {
			return 0, 0, fmt.Errorf("%.80s: the image has no such user", text)
		}
	}
	who, group, _ := strings.Cut(user, ":")
	uid, uerr := strconv.Atoi(who)
	gid, gerr := strconv.Atoi(group)
	if uerr != nil || gerr != nil {
		return 0, 0, fmt.Errorf("%.80s: the image has no such user or group", text)
	}
	if _, _, both := strings.Cut(text, ":"); !both && uid != 0 && strconv.Itoa(uid) == text {
		gid = uid // as for the builders of others, of a number alone
	}
	return uid, gid, nil
}

// pick finds what a source stands for.
func (p *picker) pick(from fileSource, source string, unpacks bool) error {
	pivot := ""
	pattern := relative(source)
	if p.o.parents {
		before, after, ok := strings.Cut(source, "/./")
		if ok {
			pivot, pattern = relative(before), relative(path.Join(before, after))
		}
	}
	names := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		var err error
		if names, err = glob(from, pattern); err != nil {
			return fmt.Errorf("%.200q: %w", source, err)
		}
		if len(names) == 0 {
			return fmt.Errorf("%.200q: nothing matches it", source)
		}
		p.into = p.into || len(names) > 1
	}
	for _, name := range names {
		real, h, err := follow(from, name)
		if err != nil {
			return err
		}
		if unpacks && h.Typeflag == tar.TypeReg {
			archive, err := isArchive(from, real)
			if err != nil {
				return err
			}
			if archive {
				p.all = append(p.all, placed{from, real, p.dest, h, true})
				p.make(p.dest)
				continue
			}
		}
		as := path.Base(name)
		if p.o.parents {
			as = strings.TrimPrefix(strings.TrimPrefix(name, pivot), "/")
		}
		if err := p.tree(from, real, as); err != nil {
			return err
		}
	}
	return nil
}

// glob finds what a pattern matches, sorted.
func glob(from fileSource, pattern string) (all []string, err error) {
	if !doublestar.ValidatePattern(pattern) {
		return nil, errors.New("the pattern has a mistake")
	}
	parts := strings.Split(pattern, "/")
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		names, err := from.List(dir)
		if err != nil {
			return err
		}
		for _, n := range names {
			at := path.Join(dir, n)
			h, err := from.Lstat(at)
			if err != nil {
				return err
			}
			if doublestar.MatchUnvalidated(pattern, at) {
				all = append(all, at)
				continue
			}
			if h.Typeflag == tar.TypeDir && (depth+1 < len(parts) || slices.Contains(parts, "**")) {
				if err := walk(at, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return all, walk("", 0)
}

// tree places a file, or what is in a directory. as is its name in a directory.
func (p *picker) tree(from fileSource, name, as string) error {
	h, err := from.Lstat(name)
	if err != nil {
		return err
	}
	to := p.dest
	if h.Typeflag != tar.TypeDir {
		if p.excluded(as) {
			return nil
		}
		if p.into || p.o.parents {
			to = path.Join(to, as)
		}
		p.make(relative(path.Dir("/" + to)))
		p.all = append(p.all, placed{from, name, to, h, false})
		return nil
	}
	if p.o.parents {
		to = path.Join(to, as)
	}
	p.make(relative(path.Dir("/" + to)))
	below := name // what is left out is named as it is below the source, or with its parents
	if p.o.parents {
		below = strings.TrimSuffix(strings.TrimSuffix(name, as), "/")
	}
	return p.directory(from, name, below, to, h, true)
}

func (p *picker) directory(from fileSource, name, below, to string, h *tar.Header, top bool) error {
	if !p.below.IsDir(to) || !top {
		p.all = append(p.all, placed{from, name, to, h, false})
	} else {
		p.make(to)
	}
	names, err := from.List(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		at := path.Join(name, n)
		if p.excluded(relative(strings.TrimPrefix(at, below))) {
			continue
		}
		h, err := from.Lstat(at)
		switch {
		case err != nil:
			return err
		case h.Typeflag == tar.TypeDir:
			err = p.directory(from, at, below, path.Join(to, n), h, false)
		case h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeSymlink:
			p.all = append(p.all, placed{from, at, path.Join(to, n), h, false})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *picker) excluded(name string) bool {
	return slices.ContainsFunc(p.o.exclude, func(pattern string) bool {
		pattern = relative(pattern)
		ok, err := doublestar.Match(pattern, name)
		in, _ := doublestar.Match(pattern+"/**", name)
		return err == nil && (ok || in)
	})
}

// make has a directory be there, and those above it.
func (p *picker) make(dir string) {
	for ; dir != "" && !p.below.IsDir(dir); dir = relative(path.Dir("/" + dir)) {
		if h, err := p.below.Lstat(dir); err == nil && h.Typeflag != tar.TypeSymlink {
			p.inTheWay = dir
		}
		p.parents[dir] = true
	}
}

// sum adds all that decides what comes to be.
func (p *picker) sum(w hash.Hash) error {
	if p.inTheWay != "" {
		return fmt.Errorf("%.200q is no directory: %w", "/"+p.inTheWay, fs.ErrExist)
	}
	for _, dir := range slices.Sorted(maps.Keys(p.parents)) {
		fmt.Fprintf(w, " %q", dir)
	}
	for _, f := range p.all {
		fmt.Fprintf(w, " %q %q %v %v %o %d %d %q", f.name, f.to, f.archive, f.h.Typeflag, f.h.Mode, f.h.Uid, f.h.Gid, f.h.Linkname)
		if f.h.Typeflag == tar.TypeReg {
			sum, err := f.source.sum(f.name)
			if err != nil {
				return err
			}
			w.Write(sum)
		}
	}
	return nil
}

// write writes the layer.
func (p *picker) write(w *tar.Writer) error {
	for _, dir := range slices.Sorted(maps.Keys(p.parents)) {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, Uid: max(p.uid, 0), Gid: max(p.gid, 0)}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	for _, f := range p.all {
		if err := p.one(w, f); err != nil {
			return fmt.Errorf("%.200q: %w", f.name, err)
		}
	}
	return nil
}

// own gives an entry the owner and mode that were asked for.
func (p *picker) own(h *tar.Header) {
	if p.uid >= 0 {
		h.Uid, h.Gid = p.uid, p.gid
	}
	if p.mode >= 0 && h.Typeflag != tar.TypeSymlink {
		h.Mode = p.mode
	}
	h.Uname, h.Gname = "", ""
}

func (p *picker) one(w *tar.Writer, f placed) error {
	if f.archive {
		return p.archive(w, f)
	}
	h := &tar.Header{Typeflag: f.h.Typeflag, Name: f.to, Linkname: f.h.Linkname, Mode: f.h.Mode, Uid: f.h.Uid, Gid: f.h.Gid, Size: f.h.Size,
		ModTime: f.h.ModTime}
	if strings.Contains("/"+f.to, "/.wh.") {
		return errors.New("a name that begins with .wh. removes files in a layer; give it another one")
	}
	p.own(h)
	switch h.Typeflag {
	case tar.TypeDir:
		// A link to a directory stays one: what comes into it comes to where it leads.
		if old, err := p.below.Lstat(f.to); f.to == "" || err == nil && old.Typeflag == tar.TypeSymlink && p.below.IsDir(f.to) {
			return nil
		}
		h.Name += "/"
		return w.WriteHeader(h)
	case tar.TypeSymlink:
		return w.WriteHeader(h)
	}
	if p.below.IsDir(f.to) {
		return fmt.Errorf("the destination %.200q is a directory, and this is none: %w", "/"+f.to, fs.ErrExist)
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	in, err := f.source.open(f.name)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.CopyN(w, in, h.Size)
	return err
}
