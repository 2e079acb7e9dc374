package work

import "testing"

func TestTheCauseIsTheLineThatNamesTheFault(t *testing.T) {
	for log, want := range map[string]string{
		"":             "",
		"up\nand gone": "and gone",
		"node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module './x'\nRequire stack:\n- /app/a.js\n" +
			"    at Module._resolve (node:internal:1140:15)\n  code: 'MODULE_NOT_FOUND',\n}\n\nNode.js v20.1.0\n": "Error: Cannot find module './x'",
		"Traceback (most recent call last):\n  File \"/app/a.py\", line 1, in <module>\n    import x\nModuleNotFoundError: No module named 'x'\n": "ModuleNotFoundError: No module named 'x'",
		"panic: runtime error: index out of range [1]\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/a.go:3 +0x1d\nexit status 2\n":               "panic: runtime error: index out of range [1]",
		"sh: 1: vite: not found\n":                                         "sh: 1: vite: not found",
		"2026 ERROR db: connection refused\nshutting down\n":               "2026 ERROR db: connection refused",
		"error[E0425]: cannot find value `x`\n --> src/main.rs:1:5\nbye\n": "error[E0425]: cannot find value `x`",
	} {
		if got := causeIn(log); got != want {
			t.Errorf("of %q: got %q, want %q", log, got, want)
		}
	}
}
