package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	release    = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)*)(.*)$`)
	prerelease = regexp.MustCompile(`^-(alpha|beta|rc|pre)`)
)

// packageVersion is the version as deb and rpm order them: a prerelease before its
// release, commits after it, those on the way to a release by their time, and a commit without any
// release by its time, before all releases. Neither a hyphen nor anything else that one of them does not know is in it.
func (b *build) packageVersion() string {
	m := release.FindStringSubmatch(b.version)
	if m == nil || !strings.Contains(m[1], ".") {
		return fmt.Sprintf("0+%s.%s", b.when.Format("20060102150405"), plain(b.version))
	}
	rest := m[2]
	if commit, dev := strings.CutPrefix(rest, "-dev"); dev {
		return fmt.Sprintf("%s~dev.%s%s", m[1], b.when.Format("20060102150405"), plain(strings.Replace(commit, "+", ".", 1)))
	}
	if prerelease.MatchString(rest) {
		return m[1] + "~" + plain(rest[1:])
	}
	if rest != "" {
		return m[1] + "+" + plain(strings.TrimLeft(rest, "-+."))
	}
	return m[1]
}

// plain replaces what is not allowed in a part of a version.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '+' {
			return r
		}
		return '.'
	}, s)
}
