package process_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tend-run/tend/process"
)

func TestAnErrorRepeatsLittleOfWhatWasSent(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 200_000), strings.Repeat("é", 100_000), strings.Repeat("\xff", 1000)} {
		for _, reason := range []process.StartReason{process.StartNotFound, process.StartPermission, process.StartBadDir, process.StartBadUser} {
			if text := (&process.StartError{Reason: reason, What: name}).Error(); len(text) > 2000 || !utf8.ValidString(text) {
				t.Errorf("%v: an error of %d bytes", reason, len(text))
			}
		}
	}
}
