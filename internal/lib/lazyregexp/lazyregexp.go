// Package lazyregexp holds regular expressions in package variables that are compiled
// when they are first used. Each role and each call of the command line initializes all
// packages of the program: an expression compiled at package level costs each of them
// time and memory, even if it is never used. In a test program an expression is
// compiled at once, so that an invalid one fails the tests of its package.
package lazyregexp

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Regexp is a regular expression that any number of goroutines may use. Its methods are
// those of [regexp.Regexp].
type Regexp struct{ compiled func() *regexp.Regexp }

// New returns the expression of an RE2 text, which is a constant of the program: its
// first use panics if it is wrong.
func New(text string) *Regexp {
	r := lazy(text)
	if inTest {
		r.compiled()
	}
	return r
}

func lazy(text string) *Regexp {
	return &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// inTest: package testing would say it, but belongs to no program.
var inTest = len(os.Args) > 0 && strings.HasSuffix(strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), ".test")

func (r *Regexp) Match(b []byte) bool { return r.compiled().Match(b) }

func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

func (r *Regexp) FindString(s string) string { return r.compiled().FindString(s) }

func (r *Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

func (r *Regexp) FindSubmatch(b []byte) [][]byte { return r.compiled().FindSubmatch(b) }

func (r *Regexp) FindAllString(s string, n int) []string { return r.compiled().FindAllString(s, n) }

func (r *Regexp) FindAllStringIndex(s string, n int) [][]int {
	return r.compiled().FindAllStringIndex(s, n)
}

func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.compiled().FindAllStringSubmatch(s, n)
}

func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.compiled().FindAllStringSubmatchIndex(s, n)
}

func (r *Regexp) FindAllSubmatch(b []byte, n int) [][][]byte {
	return r.compiled().FindAllSubmatch(b, n)
}

func (r *Regexp) ReplaceAllString(s, with string) string {
	return r.compiled().ReplaceAllString(s, with)
}

func (r *Regexp) ReplaceAllStringFunc(s string, with func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(s, with)
}
