package playbook

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

const (
	logKeep    = 1 << 20  // bytes of a log that stay
	largeLog   = 64 << 20 // of a log that is worth cutting, whatever the disk
	maxLogs    = 20
	fullPart   = 50 // a disk is full below a 50th
	worthwhile = 20 // a log is worth cutting from a 20th of the disk
)

func itoa(n int) string { return strconv.Itoa(n) }

var logName = lazyregexp.New(`(?i)(?:\.log(?:\.\d+)?|\.(?:out|err)\.log|npm-debug\.log.*)$`)

// isLog reports whether a path is that of an untracked log file.
func (p *project) isLog(rel string) bool {
	st, err := p.root.Lstat(rel)
	return err == nil && st.Mode().IsRegular() && links(st) == 1 && logName.MatchString(rel) && p.unlinked(rel) && !p.git.tracks(rel)
}

// diskFull: there is no space left where the project is, and logs of the project take a
// good part of it.
func diskFull(p *project, _ map[string]string) []finding {
	free, total, ok := space(p.Root)
	if !ok || free > total/fullPart {
		return nil // it is full elsewhere, or it was
	}
	type file struct {
		rel  string
		size int64
	}
	var logs []file
	looked, enough := 0, errors.New("enough")
	_ = fs.WalkDir(p.root.FS(), ".", func(name string, e fs.DirEntry, err error) error { // what cannot be read is passed over
		if looked++; looked > maxEntries || p.ctx.Err() != nil {
			return enough
		}
		if err != nil {
			return fs.SkipDir
		}
		if e.IsDir() {
			if base := e.Name(); base == ".git" || base == ".tend" || base == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !logName.MatchString(name) {
			return nil
		}
		if st, err := e.Info(); err == nil && st.Size() >= 2*logKeep && (st.Size() >= largeLog || uint64(st.Size()) >= total/worthwhile) {
			logs = append(logs, file{name, st.Size()})
		}
		return nil
	})
	sort.Slice(logs, func(i, j int) bool { return logs[i].size > logs[j].size }) // slices.SortFunc is compiled for each type
	f := finding{why: "the disk is full, and logs of the project take a good part of it", strong: true}
	for _, l := range logs[:min(len(logs), maxLogs)] {
		if p.isLog(l.rel) {
			f.actions = append(f.actions, Action{Kind: Truncate, Path: l.rel, Keep: logKeep,
				Reason: fmt.Sprintf("keep the end of %s, which has %d MiB", l.rel, l.size>>20)})
		}
	}
	if len(f.actions) == 0 {
		return []finding{proposal("the disk is full, and it is no log of the project that fills it; free some space")}
	}
	return []finding{f}
}

// staleCache: the error was raised in, or names, something in a derived directory that
// tools make again.
func staleCache(p *project, groups map[string]string) []finding {
	var candidates []string
	if dir := groups["dir"]; dir != "" {
		candidates = append(candidates, dir)
	}
	if file := groups["file"]; file != "" {
		candidates = append(candidates, file)
	}
	if len(candidates) == 0 {
		if at, ok := p.first(); ok {
			candidates = append(candidates, at.file)
		}
	}
	for _, name := range candidates {
		rel, ok := p.below(name, p.dir)
		for ok && rel != "." {
			if slices.Contains(cacheDirs[:], path.Base(rel)) || strings.HasSuffix(rel, "node_modules/.vite") {
				if p.removable(rel) {
					return []finding{{why: "the error is of " + rel + ", which is made again", strong: true,
						actions: []Action{{Kind: Remove, Path: rel, Reason: "remove " + rel + ", which is made again"}}}}
				}
				return nil
			}
			rel = path.Dir(rel)
		}
	}
	return nil
}

// cacheDirs hold nothing but what a dev server makes at its start.
var cacheDirs = [...]string{".next", ".nuxt", ".svelte-kit", ".astro", ".angular", ".parcel-cache", ".turbo", ".vite", "__pycache__"}
