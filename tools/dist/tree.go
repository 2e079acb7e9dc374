package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file of a package, or a directory.
type entry struct {
	path   string // relative
	mode   int64  // permissions
	data   []byte
	dir    bool
	config bool // belongs to the administrator once it is installed
}

// units has those of systemd, which tend startup writes as well.
const units = "internal/cli/startup/units"

// installed are the files of the deb and the rpm. zsh is the directory in which that
// system's zsh looks for the completions of packages.
func (b *build) installed(zsh string) ([]entry, error) {
	entries := []entry{
		{path: "usr/bin/tend", mode: 0o755, data: b.tend},
		{path: "usr/share/doc/tend/copyright", mode: 0o644, data: b.license},
		{path: "usr/share/doc/tend/README.md", mode: 0o644, data: b.readme},
		{path: "usr/share/doc/tend/tend.cdx.json", mode: 0o644, data: b.sbom},
	}
	for _, f := range []struct {
		from, to string
		mode     int64
		config   bool
	}{
		{units + "/tend.service", "usr/lib/systemd/system/tend.service", 0o644, false},
		{units + "/tend.socket", "usr/lib/systemd/system/tend.socket", 0o644, false},
		{units + "/user.service", "usr/lib/systemd/user/tend.service", 0o644, false},
		{"packaging/lib/package", "usr/lib/tend/package", 0o755, false},
		{"packaging/apparmor/tend", "usr/lib/tend/apparmor", 0o644, false},
		{"packaging/default", "etc/default/tend", 0o644, true},
	} {
		data, err := b.file(f.from)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{path: f.to, mode: f.mode, data: data, config: f.config})
	}
	pages, err := b.shared("man1")
	if err != nil {
		return nil, err
	}
	for name, text := range pages {
		packed, err := gzipped(text, b.when)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{path: "usr/share/man/man1/" + name + ".gz", mode: 0o644, data: packed})
	}
	completions, err := b.shared("completions")
	if err != nil {
		return nil, err
	}
	for shell, path := range map[string]string{
		"bash": "usr/share/bash-completion/completions/tend",
		"zsh":  zsh + "/_tend",
		"fish": "usr/share/fish/vendor_completions.d/tend.fish",
	} {
		if completions[shell] == nil {
			return nil, fmt.Errorf("no completion for %s", shell)
		}
		entries = append(entries, entry{path: path, mode: 0o644, data: completions[shell]})
	}
	return sorted(entries), nil
}

// file reads one of the project.
func (b *build) file(name string) ([]byte, error) { return os.ReadFile(filepath.Join(b.root, name)) }

func sorted(entries []entry) []entry {
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.path, y.path) })
	return entries
}

// withParents adds the directories in which the entries are, each before what is in it.
func withParents(entries []entry) []entry {
	seen := map[string]bool{".": true}
	for _, e := range entries {
		if e.dir {
			seen[e.path] = true
		}
	}
	var out []entry
	var parents func(path string)
	parents = func(path string) {
		if dir := filepath.Dir(path); !seen[dir] {
			seen[dir] = true
			parents(dir)
			out = append(out, entry{path: dir, mode: 0o755, dir: true})
		}
	}
	for _, e := range entries {
		parents(e.path)
		out = append(out, e)
	}
	return out
}
