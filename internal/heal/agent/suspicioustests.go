package agent

import (
	"slices"

	"github.com/tend-run/tend/internal/lib/lazyregexp"
)

var (
	assertion = lazyregexp.New(`\bassert|\bexpect\s*\(|\.should\b|\brequire\.\w+\(|\bt\.(Error|Fatal)|\bcmp\.Diff|\bself\.assert`)
	oneTest   = lazyregexp.New(`\b(it|test|describe)(\.each)?\s*\(|\bdef\s+test_|\bfunc\s+(Test|Fuzz)\w`)
	skipped   = lazyregexp.New(`\.(skip|only|todo|fixme|failing)\s*\(|\b(xit|xtest|xdescribe|fit|fdescribe)\s*\(|@(pytest\.mark|unittest)\.(skip|xfail|expectedFailure)|\bpytest\.(skip|xfail)\(|\bself\.skipTest\(|\bt\.Skip\w*\(|\bprocess\.exit\(\s*0?\s*\)`)
)

// testRules: tests say what a program must do; a repair does not change that.
func testRules(f FileDiff, say sayer) {
	lang := languageOf(f.Path)
	before, after := code(lang, f.Before), code(lang, f.After)
	if len(skipped.FindAllString(after, -1)) > len(skipped.FindAllString(before, -1)) {
		say(f.Path, "a test is skipped")
	}
	if len(oneTest.FindAllString(after, -1)) < len(oneTest.FindAllString(before, -1)) {
		say(f.Path, "a test was removed")
	}
	for _, h := range hunks(before, after) {
		if slices.ContainsFunc(h.removed, assertion.MatchString) {
			say(f.Path, "what a test wants was changed or removed")
		}
	}
}
