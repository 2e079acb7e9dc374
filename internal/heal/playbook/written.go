package playbook

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/parser"

	"github.com/tend-run/tend/internal/lib/yamldepth"
)

const (
	maxConfigs = 500     // files that are read
	maxConfig  = 1 << 20 // bytes of one
)

// whole says why a text is not a whole file of a format that is checked here.
func whole(name string, data []byte) (err error) {
	defer func() {
		if recover() != nil { // of the library, for a text that is no YAML
			err = errors.New("is no YAML")
		}
	}()
	var v any
	if path.Ext(name) == ".json" {
		return json.Unmarshal(data, &v)
	}
	if err := yamldepth.Check(data); err != nil {
		return err
	}
	_, err = parser.ParseBytes(data, 0) // no value is made: a short text may stand for many
	return err
}

// halfWritten: a tracked file cannot be read by a program, and what HEAD has of it can.
// The version of HEAD is only proposed: what somebody wrote last may be worth more.
func halfWritten(p *project, groups map[string]string) (all []finding) {
	if file := groups["file"]; file != "" {
		for _, dir := range append([]string{p.dir}, p.importers("")...) {
			if rel, ok := p.below(file, dir); ok && p.isFile(rel) {
				return p.propose(rel, false)
			}
		}
		return nil
	}
	// No file is named. Those that a program may read as data are few.
	count := 0
	for _, rel := range p.git.tracked(".json", ".yaml", ".yml") {
		if count++; count > maxConfigs || p.ctx.Err() != nil {
			break
		}
		all = append(all, p.propose(rel, true)...)
	}
	return all
}

// propose offers the version of HEAD of a file that differs from it; with check, if this
// one is not whole and that of HEAD is.
func (p *project) propose(rel string, check bool) []finding {
	if !plainPath(rel) || !p.unlinked(rel) {
		return nil
	}
	now, ok := p.read(rel)
	if !ok || len(now) > maxConfig || check && whole(rel, now) == nil {
		return nil
	}
	head, ok := p.git.head(rel)
	if !ok || bytes.Equal(head, now) || check && whole(rel, head) != nil {
		return nil
	}
	why := rel + " cannot be read, and HEAD has another version of it"
	if check {
		why = rel + " is not whole, and the version of HEAD is"
	}
	f := proposal(why)
	f.actions[0].Path = rel
	f.actions[0].Diff = p.diff(rel, head, now)
	return []finding{f}
}

// diff returns what became of the version of HEAD, or "" if nobody can say. It is made
// outside of the repository, so that no program that is configured there runs.
func (p *project) diff(rel string, head, now []byte) string {
	dir, err := os.MkdirTemp("", "tend-diff-")
	if err != nil {
		return ""
	}
	defer os.RemoveAll(dir)
	for side, text := range map[string][]byte{"a": head, "b": now} {
		file := filepath.Join(dir, side, filepath.FromSlash(rel))
		if os.MkdirAll(filepath.Dir(file), 0o700) != nil || os.WriteFile(file, text, 0o600) != nil {
			return ""
		}
	}
	text := strings.ToValidUTF8(string(differ(p.ctx, dir, "a/"+rel, "b/"+rel)), "\uFFFD")
	if len(text) > MaxDiff {
		text = strings.ToValidUTF8(text[:MaxDiff-4], "") + "\n…"
	}
	return text
}
