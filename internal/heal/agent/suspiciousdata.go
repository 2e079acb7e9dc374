package agent

import (
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

// dataRules: settings and data that were taken out, and manifests that ask for
// less.
func dataRules(f FileDiff, say sayer) {
	base := strings.ToLower(path.Base(f.Path))
	switch {
	case base == "package.json":
		packageRules(f, say)
	case strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt"), base == "pyproject.toml", base == "pipfile":
		pythonRules(f, say)
	case base == "go.mod":
		if strings.Count(f.After, "\nreplace ")+strings.Count(f.After, "=>") > strings.Count(f.Before, "\nreplace ")+
			strings.Count(f.Before, "=>") {
			say(f.Path, "a module was replaced by another")
		}
		return
	}
	if base == "tsconfig.json" || strings.HasPrefix(base, "tsconfig.") || base == "jsconfig.json" || strings.Contains(base, "eslint") ||
		base == "biome.json" || base == "mypy.ini" || base == "setup.cfg" {
		strictRules(f, say)
	}
	if languageOf(f.Path) != data || f.Deleted {
		return
	}
	if before, after := strings.TrimSpace(f.Before), strings.TrimSpace(f.After); len(before) > 10 && !f.Added {
		switch after {
		case "", "[]", "{}", "null", `""`:
			say(f.Path, "all data was removed")
			return
		}
	}
	var before, after any
	if base == "package.json" || strings.HasSuffix(base, "-lock.json") || json.Unmarshal([]byte(f.Before), &before) != nil ||
		json.Unmarshal([]byte(f.After), &after) != nil {
		return
	}
	if lost(before, after) {
		say(f.Path, "entries or settings were removed")
	}
}

// lost says whether an array has become shorter, or an object has fewer keys.
func lost(before, after any) bool {
	switch b := before.(type) {
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) < len(b) {
			return true
		}
		if len(a) == len(b) {
			for i := range b {
				if lost(b[i], a[i]) {
					return true
				}
			}
		}
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok || len(a) < len(b) {
			return true
		}
		for k, v := range b {
			if w, ok := a[k]; ok && lost(v, w) {
				return true
			}
		}
	}
	return false
}

// packageRules: package.json.
func packageRules(f FileDiff, say sayer) {
	type manifest struct {
		Scripts                                                               map[string]string
		Dependencies, DevDependencies, OptionalDependencies, PeerDependencies map[string]string
		Overrides, Resolutions                                                map[string]any
	}
	var before, after manifest
	if json.Unmarshal([]byte(f.After), &after) != nil {
		return
	}
	if json.Unmarshal([]byte(f.Before), &before) != nil {
		return // it was broken: what it held is not known
	}
	all := func(m manifest) map[string]string {
		out := map[string]string{}
		for _, d := range []map[string]string{m.PeerDependencies, m.OptionalDependencies, m.DevDependencies, m.Dependencies} {
			for k, v := range d {
				out[k] = v
			}
		}
		return out
	}
	versions(f.Path, all(before), all(after), say)
	if len(after.Overrides)+len(after.Resolutions) > len(before.Overrides)+len(before.Resolutions) {
		say(f.Path, "versions of dependencies are overridden")
	}
	for _, n := range ordered(before.Scripts) {
		s := before.Scripts[n]
		now, is := after.Scripts[n]
		switch {
		case !is:
			say(f.Path, "the script %s was removed", name(n))
		case s != now && idle.MatchString(now):
			say(f.Path, "the script %s does nothing any more", name(n))
		}
	}
}

var (
	idle        = lazyregexp.New(`^\s*(|true|:|exit 0|echo\b[^&;|]*)\s*$|--passWithNoTests|--noCheck|--transpile-?only`)
	requirement = lazyregexp.New(`(?m)^\s*"?([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?"?\s*(?:=\s*"([^"\n]*)"|((?:[=<>!~]=?|===)[^#;\n"]*)?)\s*"?,?\s*(?:[#;].*)?$`)
)

// pythonRules: requirements.txt, and lines of pyproject.toml.
func pythonRules(f FileDiff, say sayer) {
	all := func(s string) map[string]string {
		out := map[string]string{}
		for _, m := range requirement.FindAllStringSubmatch(s, -1) {
			out[strings.ToLower(m[1])] = strings.TrimSpace(m[2] + m[3])
		}
		return out
	}
	versions(f.Path, all(f.Before), all(f.After), say)
}

// ordered are the keys of a map: reasons come in one order.
func ordered[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// versions: a dependency that is gone, or may be more than before.
func versions(file string, before, after map[string]string, say sayer) {
	for _, n := range ordered(before) {
		was := before[n]
		now, is := after[n]
		switch {
		case !is:
			say(file, "the dependency %s was removed", name(n))
		case was != now && loose(now) > loose(was):
			say(file, "the version of %s was loosened", name(n))
		}
	}
}

// loose is how much a version allows: 0 for exactly one.
func loose(v string) int {
	v = strings.TrimSpace(v)
	switch {
	case v == "" || v == "*" || v == "x" || v == "latest" || v == "next":
		return 5
	case strings.Contains(v, "||") || strings.HasPrefix(v, ">") || strings.HasPrefix(v, "!="):
		return 4
	case strings.HasPrefix(v, "<"):
		return 3
	case strings.HasPrefix(v, "^"):
		return 2
	case strings.HasPrefix(v, "~"), strings.HasSuffix(v, ".x"), strings.HasSuffix(v, ".*"):
		return 1
	}
	return 0
}

var setting = lazyregexp.New(`["']?\b(strict\w*|noImplicit\w+|noEmitOnError|noUnchecked\w+|checkJs|forceConsistent\w+|useUnknown\w+|exactOptional\w+|disallow_\w+|check_untyped_defs|warn_\w+)["']?\s*[:=]\s*(true|True)\b`)

// strictRules: settings of compilers and linters.
func strictRules(f FileDiff, say sayer) {
	after := setting.FindAllString(f.After, -1)
	off := regexp.MustCompile(`["'](off|ignore_errors)["']|:\s*0\b|"skipLibCheck"\s*:\s*true|"noEmit(OnError)?"\s*:\s*false|ignore_errors\s*=\s*True|ignoreBuildErrors`)
	if len(after) < len(setting.FindAllString(f.Before, -1)) || len(off.FindAllString(f.After, -1)) > len(off.FindAllString(f.Before, -1)) {
		say(f.Path, "a check of types or style was turned off")
	}
}
