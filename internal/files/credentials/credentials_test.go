//go:build linux

package credentials

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestNumbersThatNoUserHasAreRefused(t *testing.T) {
	t.Parallel()
	own := os.Geteuid()
	for _, name := range []string{
		"4294967295", "4294967296", "99999999999999999999", "1x", "0x1",
		fmt.Sprintf("%d:4294967295", own), fmt.Sprintf("%d:4294967296", own), fmt.Sprintf("%d:", own), fmt.Sprintf("%d:-1", own), fmt.Sprintf("%d:1:1", own),
	} {
		a, err := Lookup(name)
		if err == nil || !strings.Contains(err.Error(), "4294967294") {
			t.Errorf("%q is %+v, %v; an error that says what is allowed was expected", name, a, err)
		}
	}
}

func TestTheLargestNumbersAreUsers(t *testing.T) {
	t.Parallel()
	proctest.Root(t)
	a, err := Lookup("4294967294:4294967294")
	if err != nil || a.UID != 4294967294 || a.GID != 4294967294 || !a.Other {
		t.Errorf("%+v, %v", a, err)
	}
}
