package guard

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDumpsOfTheToolsThemselves: what the programs of this machine write is searched, too.
func TestDumpsOfTheToolsThemselves(t *testing.T) {
	const secret = "postgres-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c"
	r := NewRedactor()
	r.AddSecret("S", secret)
	for _, line := range []string{
		"hexdump", "hexdump -C", "hexdump -c", "hexdump -b", "hexdump -d", "hexdump -o", "hexdump -x",
		"xxd", "xxd -p", "xxd -i", "xxd -e", "xxd -b", "xxd -u", "xxd -c 5", "xxd -g 1", "xxd -g 8", "xxd -s 1",
		"od", "od -a", "od -b", "od -c", "od -d", "od -i", "od -l", "od -s", "od -x",
		"od -An -tx1", "od -Ax -tx1z -v", "od -Ad -tu4", "od -to8", "od -td8",
		"base64", "base64 -w 10", "base32", "base32 -w 7", "rev",
	} {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			if _, err := exec.LookPath(args[0]); err != nil {
				if os.Getenv("TEND_TEST_TOOLS") == "all" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Stdin = strings.NewReader("PORT=3000\nKEY=" + secret + "\nDEBUG=yes\n")
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			got := r.Text(string(out))
			if !strings.Contains(got, "[secret S]") || strings.Contains(got, "9f86d081884c") || strings.Contains(got, "55ad015a3b") {
				t.Errorf("%q became %q", out, got)
			}
		})
	}
}
