package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/tend-run/tend/internal/lib/saferegexp"
)

const (
	// maxNames bounds what a walk looks at.
	maxNames = 200_000
	// maxHits and maxLine bound what a search answers.
	maxHits = 1000
	maxLine = 4 << 10
	// maxSearched is the most bytes that one search reads.
	maxSearched = 256 << 20
)

// Hit is a line that matches.
type Hit struct {
	Path string
	Line int    // from 1
	Text string // all of it; of one with more than 4 KiB only that. A part could hold a part of a secret, which nobody recognises
}

var errEnough = errors.New("enough")

// Search finds the lines that match a regular expression (RE2), in files whose path below
// the root matches a glob; the empty glob matches any file, and a glob without a slash
// matches names. It follows no links, and skips what may not be read, files of variables,
// binary files, what is beyond the first 1 MiB of a file, and directories of packages and
// of other tools (node_modules, .venv, __pycache__, .cache, .next). more says that not
// everything was searched or answered.
func (g *Guard) Search(ctx context.Context, re, glob string, max int) (hits []Hit, more bool, err error) {
	compiled, err := saferegexp.Compile(re)
	if err != nil {
		return nil, false, fmt.Errorf("the pattern %.80q %w", re, err)
	}
	if !doublestar.ValidatePattern(glob) {
		return nil, false, fmt.Errorf("%.80q is no glob", glob)
	}
	if glob != "" && !strings.Contains(glob, "/") {
		glob = "**/" + glob
	}
	if max <= 0 || max > maxHits {
		max = maxHits
	}
	left := int64(maxSearched)
	linked := &linkedFiles{g: g}
	err = g.walk(func(dir *os.Root, rel string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		base := rel[strings.LastIndexByte(rel, '/')+1:]
		if info.IsDir() {
			if derived(base) || g.denied(rel, false) != nil {
				return fs.SkipDir
			}
			return nil
		}
		if !info.Mode().IsRegular() || IsEnv(base) || g.denied(rel, false) != nil ||
			glob != "" && !doublestar.MatchUnvalidated(glob, rel) || links(info) > 1 && linked.denied(info, false) != nil {
			return nil
		}
		f, err := openSeen(dir, base, info)
		if err != nil {
			return nil // gone, or not ours to read
		}
		data, err := io.ReadAll(io.LimitReader(f, MaxFile))
		f.Close()
		if left -= int64(len(data)); err != nil || left < 0 {
			more = more || left < 0
			if left < 0 {
				return errEnough
			}
			return nil
		}
		more = more || info.Size() > MaxFile
		if bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
			return nil
		}
		for n := 1; len(data) > 0; n++ {
			line, after, whole := bytes.Cut(data, []byte("\n"))
			if !whole && info.Size() > MaxFile {
				break // it goes on
			}
			data = after
			ok, err := compiled.Match(ctx, line)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if len(hits) == max {
				more = true
				return errEnough
			}
			text := fmt.Sprintf("[a line of %d bytes, which is not shown]", len(line))
			if len(line) <= maxLine {
				text = strings.ToValidUTF8(string(line), "\ufffd")
			}
			hits = append(hits, Hit{rel, n, text})
		}
		return nil
	})
	if errors.Is(err, errTooMany) {
		more, err = true, nil
	} else if errors.Is(err, errEnough) {
		err = nil
	}
	return hits, more, err
}

// derived reports whether a directory is made by a tool, and holds nobody's own work.
func derived(name string) bool {
	return slices.Contains([]string{"node_modules", ".venv", "__pycache__", ".cache", ".next", ".pnpm-store"}, name)
}

var errTooMany = fmt.Errorf("there are more than %d names", maxNames)

// walk calls back for each name below the root, with the directory that it is in. It
// follows no link. What cannot be read is passed over.
func (g *Guard) walk(each func(dir *os.Root, rel string, info fs.FileInfo) error) error {
	left := maxNames
	return walkDir(g.root, "", &left, each)
}

func walkDir(dir *os.Root, rel string, left *int, each func(*os.Root, string, fs.FileInfo) error) error {
	d, err := dir.Open(".")
	if err != nil {
		return nil
	}
	names, err := d.Readdirnames(*left + 1)
	d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	if *left -= len(names); *left < 0 {
		return errTooMany
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := dir.Lstat(name)
		if err != nil {
			continue
		}
		at := name
		if rel != "" {
			at = rel + "/" + name
		}
		switch err := each(dir, at, info); {
		case errors.Is(err, fs.SkipDir):
			continue
		case err != nil:
			return err
		case !info.IsDir():
			continue
		}
		sub, err := openDir(dir, name, info)
		if err != nil {
			continue
		}
		err = walkDir(sub, at, left, each)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// linkedFiles are the files with several names of which one is under a rule, by what
// one walk has found. It is made for each question anew: links come and go.
type linkedFiles struct {
	g     *Guard
	done  bool
	err   error
	found []linkedFile
}

type linkedFile struct {
	info fs.FileInfo
	rule rule
}

// denied returns the rule that holds for another name of the file.
func (l *linkedFiles) denied(info fs.FileInfo, write bool) *rule {
	if !l.done {
		l.done = true
		l.err = l.g.walk(func(_ *os.Root, rel string, info fs.FileInfo) error {
			if !info.Mode().IsRegular() || links(info) < 2 {
				return nil
			}
			if IsEnv(rel[strings.LastIndexByte(rel, '/')+1:]) {
				l.found = append(l.found, linkedFile{info, rule{name: envRule, read: true, write: true,
					reason: "it is another name of a file of secrets"}})
			}
			for _, write := range []bool{false, true} {
				if r := l.g.denied(rel, write); r != nil {
					l.found = append(l.found, linkedFile{info, *r})
				}
			}
			return nil
		})
	}
	if l.err != nil {
		return &rule{name: "links", reason: "the file has several names, and the project has too many files to look for them"}
	}
	for i := range l.found {
		if f := &l.found[i]; (f.rule.read || write) && os.SameFile(f.info, info) {
			return &f.rule
		}
	}
	return nil
}

// allowLinked is allow for a file with several names.
func (g *Guard) allowLinked(asked string, t *target, write bool) error {
	linked := &linkedFiles{g: g}
	r := linked.denied(t.info, write)
	if r == nil || r.name == envRule && t.envFile() {
		return nil
	}
	return &DeniedError{asked, r.name, "another name of this file is under that rule: " + r.reason}
}
