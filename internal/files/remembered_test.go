package files

import (
	"fmt"
	"os"
	"testing"
)

func TestAsManyAccountsAsThereAreNumbersAreNotRemembered(t *testing.T) {
	t.Parallel()
	var m Machine
	for i := range 3 * maxKnown {
		// The leading zeros make other names of the own number, which nobody
		// is refused.
		if _, err := m.User(fmt.Sprintf("%0*d", 10+i, os.Geteuid())); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.known) > maxKnown {
		t.Errorf("%d accounts are remembered; the limit is %d", len(m.known), maxKnown)
	}
}
