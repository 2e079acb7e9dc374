package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
)

// mostPlaces bounds how many places are named.
const mostPlaces = 8

// Elsewhere names the places where this machine has programs that isolated sandboxes do not see, by what
// the directories of path, and the links among programs, lead to. shown are those of --base-path.
func Elsewhere(path string, shown []string) (out []Finding) {
	seen := map[string]bool{}
	dirs := append(filepath.SplitList(path), "/usr/local/bin", "/usr/bin", "/etc/alternatives")
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		entries, _ := os.ReadDir(real)
		inside := isShown(real, shown) || real == "/etc/alternatives"
		for _, e := range entries {
			name := filepath.Join(real, e.Name())
			to, err := filepath.EvalSymlinks(name)
			fi, serr := os.Stat(name)
			if err != nil || serr != nil || !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 ||
				inside && (e.Type()&os.ModeSymlink == 0 || isShown(to, shown)) {
				continue
			}
			at := placeOf(to)
			if !inside {
				at = placeOf(name)
			}
			if isShown(at, shown) || seen[at] {
				continue
			}
			seen[at] = true
			f := Finding{Name: "base_path", State: Limited, Detail: fmt.Sprintf("%s is in %s, which isolated sandboxes do not see", e.Name(), at),
				Mend: "tend serve --base-path " + at}
			if strings.HasPrefix(at, "/snap") || container.CheckShown(at) != "" {
				f.Mend = "install it in a template"
			}
			if out = append(out, f); len(out) == mostPlaces {
				return out
			}
		}
	}
	return out
}

// isShown reports whether sandboxes see a path.
func isShown(p string, more []string) bool {
	for _, dir := range slices.Concat(container.Programs, more) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

// tools are the directories in a home of programs that bring others.
var tools = []string{".nvm/versions/node/*", ".rustup/toolchains/*", ".pyenv", ".cargo", ".bun", ".deno", ".asdf",
	".local/share/mise", ".local/share/uv"}

// placeOf is the directory that has to be shown for a program.
func placeOf(program string) string {
	parts := strings.Split(program, "/")
	first := func(n int) string { return strings.Join(parts[:min(n, len(parts)-1)], "/") }
	switch {
	case strings.HasPrefix(program, "/nix/store/"), strings.HasPrefix(program, "/opt/"):
		return first(3)
	case strings.HasPrefix(program, "/snap/"):
		return first(2)
	case strings.HasPrefix(program, "/home/linuxbrew/.linuxbrew/"):
		return first(4)
	}
	for _, t := range tools {
		want := strings.Split(t, "/")
		for i := range parts {
			if i+len(want) >= len(parts) {
				break
			}
			if ok, _ := filepath.Match(t, strings.Join(parts[i:i+len(want)], "/")); ok {
				return strings.Join(parts[:i+len(want)], "/")
			}
		}
	}
	dir := filepath.Dir(program)
	if base := filepath.Base(dir); (base == "bin" || base == "sbin") && container.CheckShown(filepath.Dir(dir)) == "" {
		return filepath.Dir(dir)
	}
	return dir
}
